#include "report.h"

#include "shared_state.h"

using namespace fakecuda;

extern "C" __attribute__((visibility("default"))) int fakecuda_groups(FakecudaGroup* out,
                                                                      int most) {
  State* state = State::get(true);
  if (!state) return -1;
  Locked locked(*state);
  state->reap_locked();
  int count = 0;
  for (unsigned gpu = 0; gpu < static_cast<unsigned>(state->file().gpu_count); ++gpu) {
    for (unsigned e = 0; e < kEngines; ++e) {
      const EngineEntry& engine = state->file().gpus[gpu].engines[e];
      for (int g = 0; g < engine.high_water; ++g) {
        const GroupEntry& group = engine.groups[g];
        if (!group.in_use) continue;
        if (count < most) {
          out[count] = {state->pid_of(group.process),
                        gpu,
                        e,
                        group.slice_us,
                        group.busy_ns,
                        group.operations};
        }
        ++count;
      }
    }
  }
  return count;
}

extern "C" __attribute__((visibility("default"))) int fakecuda_engine(unsigned gpu, unsigned engine,
                                                                      FakecudaEngine* out) {
  State* state = State::get(true);
  if (!state || gpu >= static_cast<unsigned>(state->file().gpu_count) || engine >= kEngines) {
    return -1;
  }
  const EngineEntry& entry = state->file().gpus[gpu].engines[engine];
  *out = {entry.clock_ns, entry.switch_ns, entry.switches};
  return 0;
}
