#include "jobs.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>

#include "child.h"

namespace demo {
namespace {

std::string self() {
  char path[PATH_MAX] = {};
  return ::readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 ? path : "";
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

std::string build_folder() { return folder_of(folder_of(self())); }

bool disabled() { return std::getenv("SWITCHYARD_DISABLE") != nullptr; }

std::vector<std::string> plain(const char* job) { return {self(), "--worker", job}; }

// --require: the figures must not quietly be those of an unmanaged run. A user who switches
// Switchyard off wants just that.
std::vector<std::string> under_switchyard(const std::vector<std::string>& options,
                                          const char* job) {
  std::vector<std::string> command = {build_folder() + "/switchyard", "run"};
  command.insert(command.end(), options.begin(), options.end());
  if (!disabled()) command.push_back("--require");
  for (const std::string& word : plain(job)) command.push_back(word);
  return command;
}

bool switchyard(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {build_folder() + "/switchyard"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Child child(command);
  for (std::string line; child.read_line(line);) {
  }
  return child.succeeded();
}

}  // namespace demo
