// Kernel specs of Jupyter: where they are, and one that runs another under `switchyard run`.
//
// Concept. A spec is a folder NAME/kernel.json, below a folder `kernels`. The wrapped kernel keeps
// all that its spec says but for these. `argv` has `switchyard run` before it. The display name and
// the metadata tell who made it.
//
// Threading: reads the environment and the file system; call it from the only thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

// Jupyter's folder of this user.
std::filesystem::path jupyter_user_folder();

// The folders that may have specs, in the order of Jupyter. `prefix`: of an environment that comes
// first; empty: none.
std::vector<std::filesystem::path> kernel_folders(const std::string& prefix);

struct KernelSpec {
  std::filesystem::path folder;  // that has kernel.json
  nlohmann::json content;
};
Result<KernelSpec> find_kernel(const std::string& name,
                               const std::vector<std::filesystem::path>& folders);

// Whether `folder` has a spec that wrapped_kernel() has not made.
bool is_of_others(const std::filesystem::path& folder);

// `run`: what stands before the command of `spec`, `--` included. `name`: of the new spec.
nlohmann::json wrapped_kernel(const KernelSpec& spec, const std::string& name,
                              const std::vector<std::string>& run);

}  // namespace switchyard::tools
