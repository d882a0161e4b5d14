// Digests: what the GPU says of chunks before they leave, so that what the host has already, and
// what is all zero, is not copied.
//
// Concept. A move asks for its chunks in the order in which it will deal with them. The kernels of
// all run on a stream of their own, many times faster than copies, and write into pinned memory.
//
//     ask ask ask ... launch │ answer → copy ▓▓▓▓ answer → nothing to copy, answer → copy ▓▓▓▓
//
// The arithmetic, and how sure an answer is, stands in digest_math.h. The points are drawn once per
// process and GPU and told nobody.
//
// Nothing is left uncopied before that GPU has been seen to compute right in this process. The
// first piece that is copied is computed here, too.
//
// An answer may be "not known", from which a move learns nothing and copies: so no failure here is
// one of the move. Stream, events and pinned memory live for one move, because the context may end
// before the next. The kernel is loaded by the first move, after the drain (own_kernel.h).
//
// Threading: the mover's thread of that GPU alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/no_copy.h"
#include "shim/own_kernel.h"
#include "shim/swap/memory/digest_math.h"

namespace switchyard::shim::swap {

using digest::Digest;

class Digests : NoCopy {
 public:
  // For chunks of `lane`, of `bytes` in all. pre: a context of their GPU is current, and idle.
  Digests(unsigned lane, std::uint64_t bytes);
  // None of the kernels runs any more.
  ~Digests();

  // Of `bytes` at `address`, which stay mapped and unchanged until it is answered.
  void ask(CUdeviceptr address, std::uint64_t bytes);
  // All is asked.
  void launch();
  // Of the next chunk, in the order of asking: waits until its kernel has ended. False: not known.
  bool answer(std::uint64_t bytes, Digest& digest);
  // Of the first piece of that chunk; zeros: not known.
  const Digest& first() const { return first_; }

  // Whether what it answers may be relied on: once a check found it right.
  bool trusted() const;
  // Compares what was said of a piece with what it holds; says nothing of zeros. Found wrong, all
  // is copied from here on.
  void check(const Digest& said, const void* piece) const;

 private:
  // More than any GPU has.
  static constexpr std::size_t kMostBatches = 1024;

  bool open(std::uint64_t bytes);
  bool map_results(std::uint64_t bytes);
  bool launch_batch();
  bool wait_for(std::size_t pieces);
  void give_up();
  const Digest& result(std::size_t piece) const {
    return static_cast<const Digest*>(results_.host())[piece];
  }

  unsigned lane_;
  bool known_ = false;  // false from the first failure on
  CUstream stream_ = nullptr;
  digest::Batch batch_;
  std::size_t asked_ = 0;  // pieces
  std::size_t launched_ = 0;
  std::size_t done_ = 0;
  std::size_t answered_ = 0;
  Digest first_;
  CUevent marks_[kMostBatches] = {};  // behind each batch
  PinnedResults results_;             // of the pieces
};

// In a forked child: the parent's kernel is not there.
void clear_digests();

}  // namespace switchyard::shim::swap
