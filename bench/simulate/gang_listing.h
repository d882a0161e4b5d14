// What came out of a simulation of gangs, for people and programs.
//
// Threading: none.
#pragma once

#include "bench/simulate/gangs.h"

namespace switchyard::simulate {

void print_gangs(const std::vector<GangSpec>& jobs, const GangSettings& settings,
                 const GangsResult& result, bool json);

}  // namespace switchyard::simulate
