#include "spawned.h"

#include <spawn.h>
#include <unistd.h>

#include <algorithm>

namespace conformance {
namespace {

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

// Ends with a null, as execve() wants it.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& each : texts) out.push_back(each.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

pid_t spawn(Spawned what) {
  std::vector<std::string> environment = what.more;
  for (char** each = environ; *each != nullptr; ++each) {
    const bool replaced =
        std::any_of(what.more.begin(), what.more.end(),
                    [&](const std::string& other) { return name_of(other) == name_of(*each); });
    if (!replaced) environment.emplace_back(*each);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  for (const auto& [here, there] : what.descriptors) {
    posix_spawn_file_actions_adddup2(&actions, here, there);
  }
  if (what.session) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, what.program.c_str(), &actions, &attributes,
                                 pointers_to(what.words).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return failed == 0 ? pid : 0;
}

Spawned own_child(const std::string& name) {
  return {.program = "/proc/self/exe", .words = {"conformance", "--child=" + name}};
}

}  // namespace conformance
