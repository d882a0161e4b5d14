#include "shim/contexts.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>

#include "shim/lock.h"
#include "shim/reset.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap {
namespace {

struct Note {
  CUcontext context = nullptr;
  Made made;
};

struct State {
  // In no order: a program makes few, for each takes memory of the GPU.
  Note* notes = nullptr;
  std::size_t count = 0;
  std::size_t places = 0;
  std::uint64_t last_id = 0;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  } primaries[abi::kMaxGpus];

  Note* end() { return notes + count; }
  // The place behind the last note: not found.
  Note* find(CUcontext context) {
    return std::find_if(notes, end(),
                        [context](const Note& note) { return note.context == context; });
  }
  bool grow() {
    const std::size_t more = std::max<std::size_t>(2 * places, 16);
    auto* grown = static_cast<Note*>(::realloc(notes, more * sizeof(Note)));
    if (grown == nullptr) return false;
    notes = grown;
    places = more;
    return true;
  }
};
constinit State g_state;

// Null, without an error: it isn't active. Else a reference is the caller's.
CUresult retain_active_primary(CUdevice device, CUcontext& context) {
  context = nullptr;
  unsigned flags = 0;
  int active = 0;
  const Driver& calls = driver();
  if (calls.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return CUDA_SUCCESS;
  }
  return calls.cuDevicePrimaryCtxRetain(&context, device);
}

bool use(CUcontext context, unsigned lane) {
  CUdevice device = -1;
  // The driver may take the handle of one that has ended, and refuse what is done in it.
  return context != nullptr && driver().cuCtxSetCurrent(context) == CUDA_SUCCESS &&
         driver().cuCtxGetDevice(&device) == CUDA_SUCCESS && device == static_cast<int>(lane);
}

}  // namespace

PrimaryContext::PrimaryContext(CUdevice device)
    : device_(device), result_(retain_active_primary(device, context_)) {}

PrimaryContext::~PrimaryContext() {
  if (get() != nullptr) driver().cuDevicePrimaryCtxRelease_v2(device_);
}

PrimaryHeld::PrimaryHeld(CUdevice device)
    : device_(device >= 0 && device < static_cast<CUdevice>(abi::kMaxGpus) ? device : -1) {
  if (device_ >= 0) ::pthread_mutex_lock(&g_state.primaries[device_].lock);
}

PrimaryHeld::~PrimaryHeld() {
  if (device_ >= 0) ::pthread_mutex_unlock(&g_state.primaries[device_].lock);
}

void note_context(CUcontext context, int lane) {
  const Locked locked(g_state.lock);
  Note* place = g_state.find(context);
  if (place == g_state.end()) {
    if (g_state.count == g_state.places && !g_state.grow()) return;
    place = g_state.notes + g_state.count++;
  }
  *place = {context, {++g_state.last_id, lane}};
}

Made made_context(CUcontext context) {
  const Locked locked(g_state.lock);
  const Note* place = g_state.find(context);
  return place != g_state.end() ? place->made : Made{};
}

void forget_context(CUcontext context, const Made& made) {
  const Locked locked(g_state.lock);
  Note* place = g_state.find(context);
  if (place == g_state.end() || place->made.id != made.id) return;
  *place = g_state.notes[--g_state.count];
  if (g_state.count != 0) return;
  ::free(g_state.notes);
  g_state.notes = nullptr;
  g_state.places = 0;
}

MadeContexts::MadeContexts(unsigned lane) {
  const Locked locked(g_state.lock);
  for (const Note* note = g_state.notes; note != g_state.end(); ++note) {
    if (note->made.lane != static_cast<int>(lane)) continue;
    all = count < kMost;
    if (!all) return;
    context[count++] = note->context;
  }
}

bool MoverContext::enter(unsigned lane) {
  CUcontext primary = nullptr;
  device_ = static_cast<CUdevice>(lane);
  const CUresult result = retain_active_primary(device_, primary);
  if (result == CUDA_SUCCESS && primary != nullptr) {
    // One reference at most, however often this is called before leave(): each more would keep the
    // context alive after the application's last release. Retained first, so that it never ends.
    if (retained_) driver().cuDevicePrimaryCtxRelease_v2(device_);
    retained_ = true;
    if (use(primary, lane)) return true;
  } else if (result == CUDA_SUCCESS) {
    retained_ = false;  // it was reset, and our reference with it
  }
  const MadeContexts made(lane);
  return std::any_of(made.begin(), made.end(), [lane](CUcontext one) { return use(one, lane); });
}

void MoverContext::leave() {
  driver().cuCtxSetCurrent(nullptr);
  if (retained_) driver().cuDevicePrimaryCtxRelease_v2(device_);
  retained_ = false;
}

// Another thread of the parent may have held the lock at the fork. The parent's notes are left
// where they are.
SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::swap
