// What the table doesn't show: a quota of memory, and a pause.
//
// Threading: one thread; the jobs are child processes.
#pragma once

namespace demo {

// A job allocates more than its quota. Prints what it got. False: the quota did not hold.
bool show_quota();

// A job is paused and resumed at work. Prints what ran meanwhile. False: it ran while it was
// paused, or did not go on.
bool show_pause();

}  // namespace demo
