// Which communicators get twins, and what goes to them. Ranks are threads of this process.
#include "shim/nccl/twins.h"

#include <string.h>

#include <barrier>
#include <cstdlib>

#include "shim/reset.h"
#include "tests/shim/ipc/ipc_world.h"
#include "tests/shim/nccl/nccl_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr std::uintptr_t kTwinIsAt = 0x100;  // behind its original

// The requests to NCCL that concern twins, and its answers.
struct Made {
  std::atomic<int> splits{0}, aborts{0}, groups{0};
  std::atomic<ncclResult_t> answer{kNcclSuccess};
  std::atomic<ncclResult_t> group_answer{kNcclSuccess};
  std::atomic<int> ranks{0};  // of a child
};
Made* g_made = nullptr;

ncclComm_t twin_at(ncclComm_t comm) {
  return comm_at(reinterpret_cast<std::uintptr_t>(comm) + kTwinIsAt);
}

nccl::Calls twin_calls() {
  nccl::Calls calls;
  calls.split = [](ncclComm_t comm, int, int, ncclComm_t* child, ncclConfig_t*) {
    ++g_made->splits;
    *child = g_made->answer == kNcclSuccess ? twin_at(comm) : nullptr;
    return g_made->answer.load();
  };
  calls.abort = [](ncclComm_t) { return ++g_made->aborts, kNcclSuccess; };
  calls.rank = [](ncclComm_t, int* rank) { return *rank = 0, kNcclSuccess; };
  calls.ranks = [](ncclComm_t, int* ranks) { return *ranks = g_made->ranks, kNcclSuccess; };
  calls.group_start = [] { return ++g_made->groups, kNcclSuccess; };
  calls.group_end = [] { return g_made->group_answer.load(); };
  return calls;
}

// A call that says which communicators it was made with.
struct Seen {
  std::vector<ncclComm_t>* comms;
  std::function<ncclResult_t(ncclComm_t)> answer = [](ncclComm_t) { return kNcclSuccess; };

  ncclResult_t operator()(ncclComm_t comm) const { return see(comm); }
  ncclResult_t operator()(ncclComm_t comm, ncclResult_t* error) const {
    return *error = see(comm), kNcclSuccess;
  }
  ncclResult_t operator()(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                          ncclComm_t comm, CUstream) const {
    return see(comm);
  }
  ncclResult_t see(ncclComm_t comm) const {
    static std::mutex lock;
    const std::lock_guard hold(lock);
    comms->push_back(comm);
    return answer(comm);
  }
  bool ask(ncclComm_t, int&, int&) const { return false; }
};

class Twins : public NcclTest {
 protected:
  Twins() {
    g_ipc = &ipc_;
    g_made = &made_;
    write_card(page(), &JobCard::urgent_collectives, "yes");
  }
  ~Twins() override {
    std::size_t kept = 0;
    for (const auto& [key, fds] : ipc_.shares) kept += fds.size();
    EXPECT_EQ(kept, 0u) << "a board is shared still";
    run_resets();
    g_ipc = nullptr;
    g_made = nullptr;
  }

  static NcclCall maker(ncclResult_t result = kNcclSuccess) {
    NcclCall call = answering(result);
    call.made_by = twin_calls();
    return call;
  }
  static ncclUniqueId id_of(char id) {
    ncclUniqueId unique{};
    unique.internal[7] = id;
    return unique;
  }
  // So many ranks, each on a thread of its own. The call returns when all have made it, as NCCL's.
  template <typename... Config>
  void make_all(int ranks, ncclResult_t result = kNcclSuccess, Config... config) {
    std::barrier all(ranks);
    in_threads(ranks, [&](int rank) {
      NcclCall call = maker();
      call.call = [&] {
        all.arrive_and_wait();
        return result;
      };
      ncclComm_t out = at(rank);
      EXPECT_EQ(nccl::rules::init_rank(call, &out, ranks, id_of('t'), rank, config...),
                result != kNcclSuccess ? result : made_.answer.load());
    });
  }
  static ncclComm_t at(int rank) { return comm_at(0x1000u * static_cast<unsigned>(rank + 1)); }

  std::vector<ncclComm_t> scatter(ncclComm_t comm, ncclRedOp_t op = kNcclSum) {
    std::vector<ncclComm_t> comms;
    nccl::rules::reduce_scatter(Seen{&comms}, nullptr, nullptr, 8, kNcclFloat32, op, comm,
                                CUstream{});
    return comms;
  }
  using Comms = std::vector<ncclComm_t>;

  IpcWorld ipc_;
  Made made_;
};

TEST_F(Twins, AllRanksThatAttendGetOne) {
  make_all(3);
  EXPECT_EQ(made_.splits, 3);
  EXPECT_EQ(made_.groups, 0) << "one rank a thread needs no group";
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(scatter(at(rank)), Comms{twin_at(at(rank))});
  EXPECT_EQ(launched(at(0)), 0u);
  EXPECT_EQ(launched(twin_at(at(0))), 1u);
  EXPECT_EQ(shown(twin_at(at(1))).id.load(), twin_id(shown(at(1)).id.load()));
  EXPECT_EQ(shown(twin_at(at(1))).rank.load(), 1u);
  EXPECT_EQ(shown(twin_at(at(1))).ranks.load(), 3u);
}

TEST_F(Twins, OtherOperationsStay) {
  make_all(2);
  gather(at(0));
  reduce(at(0));
  EXPECT_EQ(launched(at(0)), 2u);
  EXPECT_EQ(launched(twin_at(at(0))), 0u);
}

TEST_F(Twins, AnOperatorThatWasMadeForTheOriginalStaysThere) {
  make_all(2);
  EXPECT_EQ(scatter(at(0), kNcclOwnOps), Comms{at(0)});
  EXPECT_EQ(scatter(at(0), kNcclOwnOps - 1), Comms{twin_at(at(0))});
}

TEST_F(Twins, WithoutTheOptionNobodyAsksTheMonitor) {
  write_card(page(), &JobCard::urgent_collectives, "no");
  make_all(2);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(ipc_.frames, 0);
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
}

TEST_F(Twins, ARankThatDoesNotAttendLeavesAllWithOne) {
  ncclComm_t out = at(0);
  nccl::rules::init_rank(maker(), &out, 2, id_of('t'), 0);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
}

TEST_F(Twins, WithoutAMonitorThereIsNone) {
  ipc_.monitor = 0;
  make_all(2);
  EXPECT_EQ(made_.splits, 0);
}

TEST_F(Twins, AMonitorThatDoesNotAnswerMakesNone) {
  ipc_.answers = false;
  make_all(2);
  EXPECT_EQ(made_.splits, 0);
}

TEST_F(Twins, ACommunicatorOfOneRankNeedsNone) {
  make_all(1);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(ipc_.frames, 0);
}

TEST_F(Twins, OneThatNcclRefusesHasNone) {
  make_all(2, kNcclInternalError);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Twins, OneThatIsNotThereYetHasNone) {
  make_all(2, kNcclInProgress);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(used(), 2u);
}

TEST_F(Twins, OneThatDoesNotBlockHasNone) {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.blocking = 0;
  make_all(2, kNcclSuccess, &config);
  EXPECT_EQ(ipc_.frames, 0);
}

TEST_F(Twins, OneThatSharesWithItsChildrenHasNoneNorHaveItsHeirs) {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.blocking = 1;
  config.splitShare = 1;
  make_all(2, kNcclSuccess, &config);
  ncclComm_t child = comm_at(0x9000);
  nccl::rules::split(maker(), at(0), 0, 0, &child, nullptr);
  EXPECT_EQ(ipc_.frames, 0);
  // One with a configuration of its own is another matter.
  config.splitShare = 0;
  child = comm_at(0xA000);
  nccl::rules::split(maker(), at(0), 0, 0, &child, &config);
  EXPECT_GT(ipc_.frames, 0);
}

TEST_F(Twins, AnOlderConfigurationHasNoSharing) {
  ncclConfig_t config{};
  config.size = offsetof(ncclConfig_t, splitShare);
  config.blocking = 1;
  config.splitShare = 1;  // not a part of it
  make_all(2, kNcclSuccess, &config);
  EXPECT_EQ(made_.splits, 2);
}

TEST_F(Twins, TheEnvironmentMayForbidThem) {
  for (const auto& [name, value] :
       {std::pair("NCCL_COMM_BLOCKING", "0"), std::pair("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1")}) {
    ::setenv(name, value, 1);
    make_all(2);
    ::unsetenv(name);
  }
  EXPECT_EQ(ipc_.frames, 0);
}

TEST_F(Twins, OneThatCannotBeMadeIsAnErrorAndNotUsed) {
  made_.answer = kNcclInternalError;
  make_all(2);
  EXPECT_EQ(made_.splits, 2);
  EXPECT_EQ(made_.aborts, 0) << "there is nothing to abort";
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
  EXPECT_EQ(used(), 2u);
}

TEST_F(Twins, OneThatIsNotThereOnOneRankIsAbortedOnTheOthers) {
  for (std::uintptr_t i = 0; i < abi::kMostCommunicators - 3; ++i) {
    make(comm_at(0x100000 + i * 64), 1);
  }
  // Three slots are left for two communicators and their twins.
  make_all(2);
  EXPECT_EQ(made_.splits, 2);
  EXPECT_EQ(made_.aborts, 2);
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
  EXPECT_EQ(scatter(at(1)), Comms{at(1)});
  EXPECT_EQ(page().process.unwatched.load(), 0u);
}

TEST_F(Twins, AGroupMakesThoseOfAllItsRanksInOneGroup) {
  ncclComm_t out[2] = {nullptr, nullptr};
  start();
  for (int rank = 0; rank < 2; ++rank) {
    nccl::rules::init_rank(maker(), &out[rank], 2, id_of('t'), rank);
  }
  EXPECT_EQ(made_.splits, 0) << "none is there before the group ends";
  NcclCall end = maker();
  end.call = [&] {
    out[0] = at(0);
    out[1] = at(1);
    return kNcclSuccess;
  };
  nccl::rules::group_end(end);
  EXPECT_EQ(made_.groups, 1);
  EXPECT_EQ(scatter(at(1)), Comms{twin_at(at(1))});
}

TEST_F(Twins, AGroupThatCannotMakeOneAnswersTheError) {
  made_.answer = kNcclInternalError;
  ncclComm_t out[2] = {at(0), at(1)};
  start();
  for (int rank = 0; rank < 2; ++rank) {
    nccl::rules::init_rank(maker(), &out[rank], 2, id_of('t'), rank);
  }
  EXPECT_EQ(nccl::rules::group_end(maker()), kNcclInternalError);
}

TEST_F(Twins, AGroupThatFailsMakesNone) {
  ncclComm_t out[2] = {nullptr, nullptr};
  start();
  for (int rank = 0; rank < 2; ++rank) {
    nccl::rules::init_rank(maker(), &out[rank], 2, id_of('t'), rank);
  }
  finish(kNcclInternalError);
  EXPECT_EQ(made_.splits, 0);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Twins, AGroupOfTwinsThatFailsIsAnErrorAndNotUsed) {
  ncclComm_t grown = comm_at(0x9000);
  nccl::rules::grow(maker(), nullptr, 2, nullptr, 1, &grown, nullptr);
  made_.group_answer = kNcclInternalError;
  ncclComm_t comms[] = {at(0), at(1)};
  EXPECT_EQ(nccl::rules::init_all(maker(), comms, 2, nullptr), kNcclInternalError);
  EXPECT_EQ(made_.splits, 2);
  EXPECT_EQ(made_.aborts, 2);
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
  EXPECT_EQ(used(), 2u);
  EXPECT_EQ(page().process.unwatched.load(), 1u) << "the grown one lives";
}

TEST_F(Twins, AllOfOneProcessHaveThem) {
  ncclComm_t comms[] = {at(0), at(1)};
  nccl::rules::init_all(maker(), comms, 2, nullptr);
  EXPECT_EQ(scatter(at(0)), Comms{twin_at(at(0))});
  EXPECT_EQ(scatter(at(1)), Comms{twin_at(at(1))});
}

TEST_F(Twins, AChildHasOneToo) {
  make_all(2);
  made_.ranks = 2;
  std::barrier all(2);
  in_threads(2, [&](int rank) {
    NcclCall call = maker();
    call.call = [&] { return all.arrive_and_wait(), kNcclSuccess; };
    ncclComm_t child = at(rank + 4);
    nccl::rules::split(call, at(rank), 0, 0, &child, nullptr);
  });
  // Each parent has counted its own children, so ranks of one process find one id.
  EXPECT_EQ(scatter(at(4)), Comms{twin_at(at(4))});
  EXPECT_EQ(scatter(at(5)), Comms{twin_at(at(5))});
}

TEST_F(Twins, WhatEndsOneEndsBoth) {
  make_all(2);
  Comms comms;
  nccl::rules::both(Seen{&comms}, at(0));
  EXPECT_EQ(comms, (Comms{twin_at(at(0)), at(0)}));
  comms.clear();
  nccl::rules::end(Seen{&comms}, at(0));
  EXPECT_EQ(comms, (Comms{twin_at(at(0)), at(0)}));
  comms.clear();
  nccl::rules::abort(Seen{&comms}, at(1));
  std::sort(comms.begin(), comms.end());
  EXPECT_EQ(comms, (Comms{at(1), twin_at(at(1))}));
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(scatter(at(0)), Comms{at(0)}) << "the handle may be another's";
}

TEST_F(Twins, ACallForATwinThatHangsIsLeftAlone) {
  struct Hangs {
    std::atomic<bool> left{false}, over{false};
  } twin;
  const auto hangs = [&twin] {
    while (!twin.left) std::this_thread::yield();
    twin.over = true;
    return kNcclInternalError;
  };
  EXPECT_EQ(nccl::rules::at_once(
                hangs, [] { return kNcclInProgress; }, 1'000'000),
            kNcclInProgress);
  twin.left = true;
  while (!twin.over) std::this_thread::yield();
  EXPECT_EQ(nccl::rules::at_once(hangs, [] { return kNcclSuccess; }), kNcclInternalError);
}

TEST_F(Twins, TheWorseAnswerIsToldOfBoth) {
  make_all(2);
  Comms comms;
  for (const ncclComm_t bad : {at(0), twin_at(at(0))}) {
    const Seen call{
        &comms, [bad](ncclComm_t comm) { return comm == bad ? kNcclRemoteError : kNcclSuccess; }};
    EXPECT_EQ(nccl::rules::both(call, at(0)), kNcclRemoteError);
    ncclResult_t error = kNcclSuccess;
    EXPECT_EQ(nccl::rules::async_error(call, at(0), &error), kNcclSuccess);
    EXPECT_EQ(error, kNcclRemoteError);
  }
}

TEST_F(Twins, AForkedChildKnowsNone) {
  make_all(2);
  run_resets();
  make(at(0));
  EXPECT_EQ(scatter(at(0)), Comms{at(0)});
}

}  // namespace
}  // namespace switchyard::shim
