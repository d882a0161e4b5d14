// `switchyard ps --memory`: what of each job's memory can leave the GPU, what stays and why.
#pragma once

#include <nlohmann/json.hpp>

namespace switchyard::tools {

// `jobs`: as the monitor lists them.
void print_memory(const nlohmann::json& jobs);

}  // namespace switchyard::tools
