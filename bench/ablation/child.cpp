#include "bench/ablation/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace switchyard::bench::ablation {

void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

Child start_self(std::vector<std::string> arguments) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) fail("pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  arguments.insert(arguments.begin(), "swap_ablation");
  std::vector<char*> texts;
  for (std::string& argument : arguments) texts.push_back(argument.data());
  texts.push_back(nullptr);
  Child child;
  if (::posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, texts.data(), environ) != 0) {
    fail("posix_spawn");
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  child.to = in[1];
  child.from = out[0];
  return child;
}

void end(const Child& child) {
  ::kill(child.pid, SIGTERM);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  ::close(child.to);
  ::close(child.from);
}

}  // namespace switchyard::bench::ablation
