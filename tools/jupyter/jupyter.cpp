#include "tools/jupyter/jupyter.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "switchyard/card.h"
#include "tools/base/knobs.h"
#include "tools/base/places.h"
#include "tools/base/write_file.h"
#include "tools/jupyter/kernels.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string verb;
  std::string name = "switchyard";
  std::string from = "python3";
  std::string prefix;
  std::string idle_release = "10m";
  std::string memory, priority;
};

constexpr char kExamples[] = R"(Examples:
  switchyard jupyter install
      "Python 3, switchyard" in Jupyter's list of kernels; its memory leaves the GPU after 10 idle
      minutes, and comes back with the next cell that uses it
  switchyard jupyter install --name small --memory 8GiB --priority low
  sudo switchyard jupyter install --prefix /opt/hub
      for all users of a hub

A kernel that another one is made of (--from) stays as it is. To remove one:
`jupyter kernelspec remove NAME`. Exit status: 0, 1 not written, 2 bad value.)";

// The settings of the kernel's job, or what is wrong with one.
Result<std::vector<std::string>> run_words(const Options& options) {
  std::vector<std::string> out{own_program(), "run", "--separate", "--report=after"};
  const std::pair<const char*, const std::string*> given[] = {
      {"idle_release", &options.idle_release},
      {"memory", &options.memory},
      {"priority", &options.priority}};
  for (const auto& [field, text] : given) {
    if (text->empty()) continue;
    const Knob& setting = knob(field);
    if (auto refused = refuse(setting, setting.option, *text)) return *refused;
    out.insert(out.end(), {setting.option, *text});
  }
  out.emplace_back("--");
  return out;
}

// A spec's folder has pictures beside it.
void copy_pictures(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator(from, ignored)) {
    if (each.path().extension() == ".json") continue;
    fs::copy_file(each.path(), to / each.path().filename(), fs::copy_options::overwrite_existing,
                  ignored);
  }
}

int install(const Options& options) {
  if (options.verb != "install") return fail(bad_value("the word", options.verb, "install"));
  if (auto refused = refuse(knob("name"), "--name", options.name)) return fail(*refused);
  auto run = run_words(options);
  if (!run) return fail(run.error());
  auto spec = find_kernel(options.from, kernel_folders(options.prefix));
  if (!spec) return fail(spec.error());
  const fs::path kernels = options.prefix.empty() ? jupyter_user_folder() / "kernels"
                                                  : kernel_folders(options.prefix).front();
  const fs::path folder = kernels / options.name;
  if (is_of_others(folder)) {
    return fail({kFailure, fmt::format("{} is there already, and not of Switchyard: choose another "
                                       "--name",
                                       folder.string())});
  }
  const auto content = wrapped_kernel(*spec, options.name, *run);
  if (auto failed = write_file((folder / "kernel.json").string(), content.dump(1) + "\n")) {
    return fail(*failed);
  }
  copy_pictures(spec->folder, folder);
  fmt::print("{}: '{}'\n", folder.string(), content["display_name"].get<std::string>());
  return kOk;
}

}  // namespace

void add_jupyter(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("jupyter", "make a kernel of Jupyter that shares GPUs", kExamples)
      .required_word("VERB", options->verb, "install: write the kernel's spec")
      .option("--name", "NAME", options->name, "the kernel's name in Jupyter [switchyard]")
      .option("--from", "KERNEL", options->from, "the kernel that it runs [python3]")
      .option("--idle-release", "TIME[,contexts]", options->idle_release,
              "its memory leaves the GPU after this time without work [10m]")
      .option("--memory", "SIZE", options->memory, "as of `switchyard run`")
      .option("--priority", "CLASS", options->priority, "as of `switchyard run`")
      .option("--prefix", "PATH", options->prefix,
              "into PATH/share/jupyter, for all who use that environment; without it, for you")
      .acts([options] { return install(*options); });
}

}  // namespace switchyard::tools
