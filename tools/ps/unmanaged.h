// The GPU processes that no job has, below the jobs of `ps`.
//
// Threading: call it from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

struct UnmanagedView {
  bool rows = false;    // one for each process and GPU; else a line counts them
  bool managed = true;  // there is a monitor, which manages others
};

// On stdout.
void print_unmanaged(const nlohmann::json& outside, const UnmanagedView& view);

// A row for each process and GPU.
std::string unmanaged_table(const nlohmann::json& outside);

// What a person may do about some of them, a line each; empty: nothing.
std::string unmanaged_hints(const nlohmann::json& outside);

// "2 unmanaged GPU processes hold 3.5 GiB: switchyard ps -a"; empty: there is none.
std::string unmanaged_line(const nlohmann::json& outside);

}  // namespace switchyard::tools
