#include "tools/jupyter/kernels.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "tools/base/places.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kFile[] = "kernel.json";
constexpr char kOurs[] = "switchyard";  // in its metadata
constexpr char kInPrefix[] = "share/jupyter/kernels";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

json read_spec(const fs::path& folder) {
  std::ifstream file(folder / kFile);
  return json::parse(file, nullptr, false);
}

bool is_spec(const json& content) {
  const auto argv = content.is_object() ? content.find("argv") : content.end();
  return argv != content.end() && argv->is_array() && !argv->empty() &&
         std::all_of(argv->begin(), argv->end(), [](const json& each) { return each.is_string(); });
}

bool is_wrapped(const json& content) {
  return content.is_object() && content.contains("metadata") && content["metadata"].is_object() &&
         content["metadata"].contains(kOurs);
}

// Jupyter puts its own Python in the place of this word, where it is the first. Behind `switchyard`
// it is not, and PATH may have another one.
std::string program_of(const KernelSpec& spec) {
  std::string word = spec.content["argv"][0];
  const std::string_view rest = std::string_view(word).substr(word.rfind("python", 0) == 0 ? 6 : 0);
  if (rest.size() == word.size() || rest.find_first_not_of("0123456789.") != rest.npos) return word;
  // PREFIX/share/jupyter/kernels/NAME
  const fs::path kernels = spec.folder.parent_path();
  const fs::path prefix = kernels.parent_path().parent_path().parent_path();
  const fs::path python = prefix / "bin" / word;
  return prefix / kInPrefix == kernels && ::access(python.c_str(), X_OK) == 0 ? python.string()
                                                                              : word;
}

}  // namespace

fs::path jupyter_user_folder() {
  if (std::string told = variable("JUPYTER_DATA_DIR"); !told.empty()) return told;
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty()) {
    return fs::path(data) / "jupyter";
  }
  return fs::path(variable("HOME")) / ".local/share/jupyter";
}

std::vector<fs::path> kernel_folders(const std::string& prefix) {
  std::vector<fs::path> out;
  const auto add_prefix = [&out](const fs::path& place) {
    if (!place.empty()) out.push_back((place / kInPrefix).lexically_normal());
  };
  add_prefix(prefix);
  std::istringstream told(variable("JUPYTER_PATH"));
  for (std::string folder; std::getline(told, folder, ':');) {
    if (!folder.empty()) out.push_back(fs::path(folder) / "kernels");
  }
  for (const char* environment : {"VIRTUAL_ENV", "CONDA_PREFIX"}) add_prefix(variable(environment));
  out.push_back(jupyter_user_folder() / "kernels");
  // Of an environment that has our wheel, and is not activated.
  add_prefix(fs::path(own_program()).parent_path().parent_path());
  add_prefix("/usr/local");
  add_prefix("/usr");
  return out;
}

Result<KernelSpec> find_kernel(const std::string& name, const std::vector<fs::path>& folders) {
  std::string looked;
  for (const fs::path& folder : folders) {
    const fs::path place = folder / name;
    std::error_code ignored;
    if (fs::is_regular_file(place / kFile, ignored)) {
      KernelSpec spec{place, read_spec(place)};
      if (is_wrapped(spec.content)) {
        return Error{kUsage, fmt::format("kernel '{}' runs under Switchyard already: --from names "
                                         "the one to be wrapped",
                                         name)};
      }
      if (is_spec(spec.content)) return spec;
      return Error{kFailure, fmt::format("{} is no kernel spec: it has no list of words `argv`",
                                         (place / kFile).string())};
    }
    looked += (looked.empty() ? "" : ", ") + folder.string();
  }
  return Error{kFailure,
               fmt::format("no kernel '{}' in {}; `jupyter kernelspec list` has the names for "
                           "--from, and `python3 -m ipykernel install --user` makes 'python3'",
                           name, looked)};
}

bool is_of_others(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kFile, ignored) && !is_wrapped(read_spec(folder));
}

json wrapped_kernel(const KernelSpec& spec, const std::string& name,
                    const std::vector<std::string>& run) {
  json out = spec.content;
  json argv = run;
  argv.insert(argv.end(), out["argv"].begin(), out["argv"].end());
  argv[run.size()] = program_of(spec);
  out["argv"] = argv;
  const auto shown = out.find("display_name");
  const std::string display = shown != out.end() && shown->is_string()
                                  ? shown->get<std::string>()
                                  : spec.folder.filename().string();
  out["display_name"] = fmt::format("{}, {}", display, name);
  if (!out["metadata"].is_object()) out["metadata"] = json::object();
  out["metadata"][kOurs] = {{"from", spec.folder.filename().string()}};
  return out;
}

}  // namespace switchyard::tools
