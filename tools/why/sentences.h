// Why a job does not run, or is slow: one paragraph for people.
//
// Concept. The monitor decides what a job does (monitor/status/job_status.h); its state and reason
// choose the row here. The paragraph says what the job waits for and since when, whose doing that
// is, what it had lately, and what would help:
//
//     state      reason           says                             would help
//     paused     pause            who paused it, what is left      resume, or the time-out
//     stopped    signal           which process                    kill -CONT, fg
//     stopped    debugger         likewise                         detach the debugger
//     stopped    frozen           likewise                         thaw its cgroup
//     stopped    core dump, disk  likewise                         nothing: it ends by itself
//     moving     move prepares    from where, to where             nothing: it goes on by itself
//     moving     move             likewise, how far                likewise
//     waiting    room             how much, whose the room is      swap that out, if it can be
//     waiting    allocation       likewise                         likewise, or a larger quota
//     swapped    swap-out         who wanted it                    swap-in
//     swapped    idle release     after which time without work    nothing: its next work
//     swapped    yield            which job has the memory         that one's swap-out or end
//     moving     swap-out, ...    out, and how far                 as of `swapped`
//     moving     returns          in, and how far                  nothing
//     held       cut, turn ends   what its ranks are stopped for   nothing: 5 s at most
//     held       guard            the job that guards itself       its --guard, or less work
//     held       limit            the limit                        a higher one
//     waiting    turn             the job that has the GPU         priority or share
//     running    -                what it lacked most, see below   by that
//     idle       no CUDA          that it has made no context      nothing of ours holds it
//     idle       -                that it brings no work           likewise
//     unmanaged  old library      which library                    a restart
//
// Of a job whose island has failed, that is told behind it, with the members that were at work.
//
// A job whose gates alone decide (held, waiting for a turn, running, idle) has a sentence of what
// it had within the last second. Of a running job that chooses the help, too:
//
//     at least 90 % of its GPUs    nothing holds it: its own kernels take the time
//     most is lacked by slices     the job that had most of them; priority or share
//     most is lacked by turn       likewise, without a name
//     most is lacked by limit      a higher limit
//     most is lacked by guard      the job that guards itself
//     most is lacked by others     what it was: a pause, memory, a swap
//     none lacks it 10 %           its CPU brought no work; also told beside one of these
//
// Ranks that stand still, and moves that failed, are told after that.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// The paragraph about `job`, which is one of `jobs`. `lately`: the same in the listing of rates()
// (stats/rates.h); null: not known.
std::string why_text(const nlohmann::json& jobs, const nlohmann::json& job,
                     const nlohmann::json& lately);

// Whether what it had lately is a part of the paragraph.
bool needs_lately(const nlohmann::json& job);

}  // namespace switchyard::tools
