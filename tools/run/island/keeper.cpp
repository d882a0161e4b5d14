#include "tools/run/island/keeper.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "switchyard/fd.h"
#include "tools/run/close_from.h"
#include "tools/run/island/daemon.h"
#include "tools/run/island/locks.h"

namespace switchyard::tools::island {
namespace {

// A server and its first client take seconds to start, so it waits for the next job for a while.
// Tests say another.
std::chrono::milliseconds grace() {
  const char* said = std::getenv("SWITCHYARD_TEST_ISLAND_GRACE_MS");
  return std::chrono::milliseconds(said != nullptr ? std::atoi(said) : 10'000);
}

// True: nothing is left to do. The daemon has ended; or its folder has gone, as at a logout, and no
// job will find it.
bool end_if_left(const Island& island, int members) {
  const Fd starting = lock_file(island, "starting", LOCK_EX);
  if (!starting) return true;
  if (::flock(members, LOCK_EX | LOCK_NB) != 0) return false;
  const bool left = !has_clients(island.pipe());
  if (left) quit(island.pipe());
  ::flock(members, LOCK_UN);
  return left;
}

void keep(const Island& island) {
  const Fd members = open_file(island, "members");
  while (members) {
    while (::flock(members.get(), LOCK_EX) != 0 && errno == EINTR) continue;
    ::flock(members.get(), LOCK_UN);
    std::this_thread::sleep_for(grace());
    if (end_if_left(island, members.get())) return;
  }
}

// The caller's locks, terminal, pipes and folder are not its own. `kept`: its only descriptor.
void detach(int kept) {
  close_from(STDERR_FILENO + 1, kept);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "switchyard-isl");
  if (const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      ::dup2(null.get(), stream);
    }
  }
  [[maybe_unused]] const int root = ::chdir("/");
}

}  // namespace

void leave_keeper(const Island& island) {
  const Fd kept = lock_file(island, "keeper", LOCK_EX | LOCK_NB);
  if (!kept) return;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (::fork() != 0) std::_Exit(0);
    detach(kept.get());
    keep(island);
    std::_Exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

}  // namespace switchyard::tools::island
