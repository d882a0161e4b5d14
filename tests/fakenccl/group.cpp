#include "group.h"

#include <time.h>

#include <algorithm>

#include "hash.h"

namespace fakenccl {
namespace {

// A child of `parent`, of which this rank has said its colour and key.
struct Child {
  ncclComm_t* out;
  ncclComm_t parent;
  int color, key;
  std::vector<int> excluded;
  std::uint64_t number;  // of the parent's children
};

struct Put {
  ncclComm_t comm;
  CUstream stream;
  std::vector<Operation> operations;
};

struct Window {
  ncclComm_t comm;
  void* memory;
  void** out;
};

struct Group {
  unsigned depth = 0;
  std::vector<ncclComm_t> aborted, revoked;
  std::vector<std::pair<ncclComm_t, std::uint64_t>> births;
  std::vector<Child> children;
  std::vector<Window> windows;
  std::vector<Put> put;
};

thread_local Group t_group;

void end_work(const Group& group) {
  for (const ncclComm_t comm : group.revoked) wait_until_quiet(*comm);
  if (group.aborted.empty()) return;
  const timespec nap{0, 1'000'000};
  while (!all_quiet()) ::nanosleep(&nap, nullptr);
  for (const ncclComm_t comm : group.aborted) end_communicator(*comm);
}

void announce(Child& child) {
  Meeting::Rank& mine = child.parent->meeting.rank[child.parent->rank];
  child.number = ++child.parent->children;
  mine.color = child.color;
  mine.key = child.key;
  mine.children.store(child.number, std::memory_order_release);
}

// Waits for the others, and finds its place among them.
ncclResult_t find_place(Group& group, const Child& child) {
  const ncclComm& parent = *child.parent;
  const timespec nap{0, 1'000'000};
  int ranks = 0;
  int own = 0;
  for (int rank = 0; rank < parent.ranks; ++rank) {
    const auto& out = child.excluded;
    if (std::find(out.begin(), out.end(), rank) != out.end()) continue;
    const Meeting::Rank& other = parent.meeting.rank[rank];
    while (other.children.load(std::memory_order_acquire) < child.number) {
      ::nanosleep(&nap, nullptr);
    }
    if (other.color != child.color) continue;
    ++ranks;
    const bool before = other.key != child.key ? other.key < child.key : rank < parent.rank;
    own += before ? 1 : 0;
  }
  if (child.color == kNcclSplitNoColor) return kNcclSuccess;
  *child.out = make_communicator(ranks, own, parent.device);
  if (*child.out == nullptr) return 1;
  const std::uint64_t words[] = {parent.id, child.number, static_cast<std::uint64_t>(child.color),
                                 child.excluded.size()};
  group.births.emplace_back(*child.out, hash(words, sizeof words));
  return kNcclSuccess;
}

ncclResult_t conclude(Group& group) {
  end_work(group);
  for (const Window& window : group.windows) {
    window.comm->windows.push_back(window.memory);
    *window.out = new Registration{window.comm, window.comm->windows.size()};
    ++g_registered;
  }
  for (Child& child : group.children) announce(child);
  for (const Child& child : group.children) {
    if (const auto result = find_place(group, child)) return result;
  }
  for (const auto& [comm, id] : group.births) {
    if (!join(*comm, id)) return kNcclInternalError;
  }
  for (const auto& [comm, id] : group.births) wait_for_all(*comm);
  for (Put& put : group.put) {
    if (const auto result = launch(*put.comm, put.stream, std::move(put.operations))) return result;
  }
  return kNcclSuccess;
}

bool fits(const ncclComm& comm, const Operation& operation) {
  if (operation.kind == Collective::kSend || operation.kind == Collective::kReceive) {
    return operation.peer >= 0 && operation.peer < comm.ranks &&
           operation.count * nccl_type_bytes(operation.type) <= kMostSent;
  }
  return bytes_read(comm, operation) <= kMostBytes && bytes_written(comm, operation) <= kMostBytes;
}

}  // namespace

void begin_group() { ++t_group.depth; }

ncclResult_t end_group() {
  if (t_group.depth == 0) return kNcclInvalidUsage;
  if (--t_group.depth != 0) return kNcclSuccess;
  Group group;
  std::swap(group, t_group);
  return conclude(group);
}

ncclResult_t drop_group() {
  if (t_group.depth == 0) return kNcclInvalidUsage;
  if (--t_group.depth == 0) t_group = {};
  return kNcclSuccess;
}

ncclResult_t add_communicator(ncclComm_t* out, std::uint64_t id, int ranks, int rank, int device) {
  if (out == nullptr || ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) {
    return kNcclInvalidArgument;
  }
  begin_group();
  *out = make_communicator(ranks, rank, device);
  if (*out != nullptr) t_group.births.emplace_back(*out, id);
  const ncclResult_t result = end_group();
  return *out != nullptr ? result : 1;
}

ncclResult_t add_child(ncclComm_t* out, ncclComm_t parent, int color, int key,
                       std::vector<int> excluded) {
  if (out == nullptr || parent == nullptr) return kNcclInvalidArgument;
  *out = nullptr;
  begin_group();
  t_group.children.push_back({out, parent, color, key, std::move(excluded), 0});
  return end_group();
}

ncclResult_t abort_communicator(ncclComm_t comm) {
  if (comm == nullptr) return kNcclInvalidArgument;
  comm->aborted = true;
  begin_group();
  t_group.aborted.push_back(comm);
  return end_group();
}

ncclResult_t revoke_communicator(ncclComm_t comm) {
  if (comm == nullptr) return kNcclInvalidArgument;
  comm->aborted = true;
  begin_group();
  t_group.revoked.push_back(comm);
  return end_group();
}

ncclResult_t add_window(ncclComm_t comm, void* memory, void** window) {
  if (comm == nullptr || window == nullptr) return kNcclInvalidArgument;
  begin_group();
  t_group.windows.push_back({comm, memory, window});
  return end_group();
}

ncclResult_t add_operation(ncclComm_t comm, CUstream stream, const Operation& operation) {
  if (comm == nullptr || comm->suspended || !fits(*comm, operation)) return kNcclInvalidArgument;
  begin_group();
  auto& put = t_group.put;
  if (put.empty() || put.back().comm != comm || put.back().stream != stream) {
    put.push_back({comm, stream, {}});
  }
  put.back().operations.push_back(operation);
  return end_group();
}

}  // namespace fakenccl
