#include "shim/nccl/agreement.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/client/client.h"
#include "shim/clock.h"
#include "shim/lock.h"
#include "shim/own_fd.h"
#include "shim/reset.h"

namespace switchyard::shim::nccl::agreement {
namespace {

using namespace switchyard::agreement;

struct State {
  // Two ranks of this process may want one board: the second finds that of the first.
  pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// -1: the system has none.
int make_file() {
  const int fd = ::memfd_create("switchyard-agreement", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && (::ftruncate(fd, kBoardBytes) != 0 ||
                  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
    close_file(fd);
    return -1;
  }
  return fd;
}

// Null: the file is none of ours.
Board* map(int fd) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::syscall(SYS_fstat, fd, &info) != 0 ||
      info.st_size != kBoardBytes) {
    return nullptr;
  }
  void* mapped = ::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return mapped != MAP_FAILED ? static_cast<Board*>(mapped) : nullptr;
}

// The board that another rank has made.
Board* find(const wire::Key& key) {
  Descriptors came;
  wire::Shared answer{};
  const bool found = share(wire::kOpenShared, {key, 0, 0}, came, answer) &&
                     answer.verdict == wire::kTaken && came.count == 1;
  Board* board = found ? map(came.fd[0]) : nullptr;
  came.close();
  return board;
}

// A new one. Null: another rank was faster, or it could not be.
Board* make(const wire::Key& key) {
  const int fd = make_file();
  if (fd < 0) return nullptr;
  Board* board = map(fd);
  Descriptors along;
  along.add(fd);
  wire::Shared answer{};
  const bool taken =
      share(wire::kShare, {key, 0, 1}, along, answer) && answer.verdict == wire::kTaken;
  if (taken || board == nullptr) return board;
  ::munmap(board, kBoardBytes);
  return nullptr;
}

void decide(Vote& vote, std::uint32_t how) {
  std::uint32_t open = kOpen;
  vote.decision.compare_exchange_strong(open, how, std::memory_order_acq_rel);
}

}  // namespace
SWITCHYARD_RENEW(kState, g_state);

Board* attend(std::uint64_t id) {
  if (id == 0 || sharing_monitor() == 0) return nullptr;
  const wire::Key key = key_of(id);
  const Locked locked(g_state.opening);
  Board* board = find(key);
  if (board == nullptr) board = make(key);
  if (board == nullptr) board = find(key);
  if (board != nullptr) board->registered.fetch_add(1, std::memory_order_acq_rel);
  return board;
}

bool all_attend(const Board& board, unsigned ranks) {
  return board.registered.load(std::memory_order_acquire) == ranks;
}

void vote(Board& board, Question question, unsigned ranks, bool yes) {
  Vote& vote = board.votes[question];
  if (!yes) return decide(vote, kNo);
  if (vote.voted.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) decide(vote, kYes);
}

bool outcome(Board& board, Question question) {
  Vote& vote = board.votes[question];
  const std::uint64_t until = monotonic_ns() + kPatienceNs;
  while (vote.decision.load(std::memory_order_acquire) == kOpen) {
    if (monotonic_ns() >= until) decide(vote, kNo);
    sleep_ns(kLookAgainNs);
  }
  return vote.decision.load(std::memory_order_acquire) == kYes;
}

void leave(Board* board, std::uint64_t id) {
  ::munmap(board, kBoardBytes);
  Descriptors none;
  wire::Shared answer{};
  // Only the rank that made it is heard. All others have it by now.
  share(wire::kEndShare, {key_of(id), 0, 0}, none, answer);
}

}  // namespace switchyard::shim::nccl::agreement
