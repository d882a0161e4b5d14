#include "spawned.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
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

int run_child(const std::string& name, const std::string& input) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  Spawned what = own_child(name);
  what.descriptors = {{ends[0], STDIN_FILENO}};
  const pid_t child = spawn(std::move(what));
  close(ends[0]);
  const bool sent =
      write(ends[1], input.data(), input.size()) == static_cast<ssize_t>(input.size());
  close(ends[1]);
  if (child == 0) return -1;
  int status = 0;
  waitpid(child, &status, 0);
  return sent && WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace conformance
