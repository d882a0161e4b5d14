// A GPU's contexts, used by the library on its own account.
//
// Concept. The primary context is retained only while it is active: to retain it else would make
// one, and take memory. Each reference is given back, else the context outlives the application's
// last one. The contexts that the process made are noted while they live. An allocation's context
// may have ended unseen, as a green context does. To touch it then is undefined.
//
// Threading: any thread, except MoverContext. The notes have one lock, a leaf; PrimaryHeld has one
// for each GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::swap {

class PrimaryContext : NoCopy {
 public:
  explicit PrimaryContext(CUdevice device);
  ~PrimaryContext();

  CUresult result() const { return result_; }
  // Null: it isn't active, or could not be retained.
  CUcontext get() const { return result_ == CUDA_SUCCESS ? context_ : nullptr; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
  CUresult result_;
};

// While one lives, no rule makes or ends the GPU's primary context. Without it a thread could make
// the next primary context, and allocate in it, before our books know of the last one's end. Both
// contexts look the same to us.
class PrimaryHeld : NoCopy {
 public:
  explicit PrimaryHeld(CUdevice device);
  ~PrimaryHeld();

 private:
  CUdevice device_;
};

// A context that cuCtxCreate made. Its handle may be another one's as soon as the driver has ended
// it; its number is never given again.
struct Made {
  std::uint64_t id = 0;  // 0: not noted
  int lane = -1;
};
// One begins (memory/owner.h). Without memory for the note it is taken for the primary one.
void note_context(CUcontext context, int lane);
Made made_context(CUcontext context);
// It has ended, and its handle may be noted for another one already.
void forget_context(CUcontext context, const Made& made);

// Those that are noted of a GPU.
struct MadeContexts {
  static constexpr std::size_t kMost = 64;

  explicit MadeContexts(unsigned lane);
  const CUcontext* begin() const { return context; }
  const CUcontext* end() const { return context + count; }

  CUcontext context[kMost];
  std::size_t count = 0;
  bool all = true;  // there are no more
};

// The context that the mover copies by. To the driver, memory that moves belongs to no context, so
// any of the GPU's will do. The primary context if it is active, else one that the process made.
//
// Threading: the mover's thread alone, while no context can end (swap/mover.h: Standstill).
class MoverContext {
 public:
  // Makes one current to the calling thread, until leave(). False: there is none. May be called
  // again before leave().
  bool enter(unsigned lane);
  void leave();

 private:
  bool retained_ = false;
  CUdevice device_ = 0;
};

}  // namespace switchyard::shim::swap
