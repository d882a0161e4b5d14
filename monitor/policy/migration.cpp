#include "monitor/policy/migration.h"

namespace switchyard::monitor::migration {
namespace {

Step stays(const State& from) { return {from, Action::kNothing}; }

Step enter(State to, Stage stage, Action action, Time now) {
  to.stage = stage;
  to.since = now;
  to.fails = false;
  return {to, action};
}

Step back_to(State to, Stage stage, Action action, Time now) {
  to.back = true;
  return enter(to, stage, action, now);
}

Step preparing(const State& from, const Seen& seen, Time now) {
  if (!leaves_now(from, seen, now)) return stays(from);
  return seen.refused ? enter(from, Stage::kIdle, Action::kEnd, now)
                      : enter(from, Stage::kLeaving, Action::kLeave, now);
}

Step leaving(const State& from, const Seen& seen, Time now) {
  if (seen.stays) return back_to(from, Stage::kArriving, Action::kArrive, now);
  return seen.away ? enter(from, Stage::kLanding, Action::kLand, now) : stays(from);
}

Step landing(const State& from, const Seen& seen, Time now) {
  const bool late = now - from.since >= kLandsWithin;
  if (seen.on_its_way && !late) return stays(from);
  const bool all = !seen.on_its_way && !seen.elsewhere;
  if (all || from.back) return enter(from, Stage::kArriving, Action::kArrive, now);
  if (seen.on_its_way || seen.there) return back_to(from, Stage::kLeaving, Action::kLeave, now);
  return back_to(from, Stage::kArriving, Action::kArrive, now);
}

Step arriving(State from, const Seen& seen, Time now) {
  if (seen.in) return enter(from, Stage::kIdle, Action::kEnd, now);
  if (seen.cut_off && !from.back) return back_to(from, Stage::kLeaving, Action::kLeave, now);
  if (seen.comes) from.fails = false;
  if (!from.fails) from.since = now;
  from.fails = from.fails || seen.does_not_come;
  // An attempt that is under way may succeed.
  if (!seen.does_not_come || now - from.since < kComesWithin) return stays(from);
  return from.back ? enter(from, Stage::kIdle, Action::kEnd, now)
                   : back_to(from, Stage::kLeaving, Action::kLeave, now);
}

}  // namespace

Step begin(bool prepares, Time now) {
  return prepares ? enter({}, Stage::kPreparing, Action::kPrepare, now)
                  : enter({}, Stage::kLeaving, Action::kLeave, now);
}

bool leaves_now(const State& state, const Seen& seen, Time now) {
  return !seen.prepares || seen.held || now - state.since >= kPreparesWithin;
}

Step next(const State& from, const Seen& seen, Time now) {
  if (is_under_way(from) && !seen.any) return enter(from, Stage::kIdle, Action::kEnd, now);
  switch (from.stage) {
    case Stage::kIdle:
      return stays(from);
    case Stage::kPreparing:
      return preparing(from, seen, now);
    case Stage::kLeaving:
      return leaving(from, seen, now);
    case Stage::kLanding:
      return landing(from, seen, now);
    case Stage::kArriving:
      return arriving(from, seen, now);
  }
  return stays(from);
}

}  // namespace switchyard::monitor::migration
