// What a monitor that only observes answers whoever wants more than to read.
//
// Threading: a constant.
#pragma once

namespace switchyard::monitor {

inline constexpr char kObserves[] =
    "this monitor only observes (--observe): it takes no jobs and changes nothing; start one that "
    "does with `switchyard run` or `switchyardd`";

}  // namespace switchyard::monitor
