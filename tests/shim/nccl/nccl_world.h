// NCCL's calls as originals for rules, and what the page says of communicators.
#pragma once

#include "shim/nccl/rules.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim::testing {

inline ncclComm_t comm_at(std::uintptr_t at) { return reinterpret_cast<ncclComm_t>(at); }

// A call of NCCL: what it answers, and what the communicator is when it is asked.
struct NcclCall {
  std::function<ncclResult_t()> call = [] { return kNcclSuccess; };
  int rank = 0, ranks = 0;   // 0: it can't be asked yet
  nccl::Calls made_by = {};  // by which it makes twins

  template <typename... Args>
  ncclResult_t operator()(Args...) const {
    return call();
  }
  bool ask(ncclComm_t, int& own, int& all) const {
    own = rank;
    all = ranks;
    return ranks != 0;
  }
  nccl::Calls calls() const { return made_by; }
};

class NcclTest : public EngineTest {
 protected:
  NcclTest() {
    nccl::end_group();
    nccl::t_nccl = {};
  }

  static NcclCall answering(ncclResult_t result) {
    NcclCall call;
    call.call = [result] { return result; };
    return call;
  }
  // A communicator of so many ranks, in which this is `rank`.
  static void make(ncclComm_t comm, int ranks = 4, int rank = 0, char id = 'a',
                   ncclResult_t result = kNcclSuccess) {
    ncclUniqueId unique{};
    unique.internal[7] = id;
    ncclComm_t out = comm;
    nccl::rules::init_rank(answering(result), &out, ranks, unique, rank);
  }
  static ncclResult_t reduce(ncclComm_t comm, const NcclCall& original = {},
                             CUstream stream = nullptr) {
    return nccl::rules::operation<Collective::kAllReduce>(
        original, static_cast<const void*>(nullptr), static_cast<void*>(nullptr), std::size_t{8},
        kNcclFloat32, kNcclSum, comm, stream);
  }
  static ncclResult_t send(ncclComm_t comm, int peer, CUstream stream = nullptr) {
    return nccl::rules::operation<Collective::kSend>(NcclCall{}, static_cast<const void*>(nullptr),
                                                     std::size_t{8}, kNcclFloat32, peer, comm,
                                                     stream);
  }
  static ncclResult_t gather(ncclComm_t comm) {
    return nccl::rules::operation<Collective::kAllGather>(
        NcclCall{}, static_cast<const void*>(nullptr), static_cast<void*>(nullptr), std::size_t{8},
        kNcclFloat32, comm, CUstream{});
  }
  static void start() { nccl::rules::group_start(NcclCall{}); }
  static ncclResult_t finish(ncclResult_t result = kNcclSuccess) {
    return nccl::rules::group_end(answering(result));
  }

  // Its slot in the page; fails when it has none.
  static abi::Communicator& shown(ncclComm_t comm) {
    const int slot = nccl::communicators::find(comm);
    EXPECT_GE(slot, 0);
    return page().communicators[slot < 0 ? 0 : slot];
  }
  static std::uint64_t launched(ncclComm_t comm) { return shown(comm).launched.load(); }
  static unsigned used() {
    unsigned count = 0;
    for (const auto& slot : page().communicators) count += slot.use.load() != 0;
    return count;
  }

  const ncclComm_t first_ = comm_at(0x1000), second_ = comm_at(0x2000);
};

}  // namespace switchyard::shim::testing
