// What the program nvidia-cuda-mps-server calls in this library. It calls nothing else of it, as
// the real one calls none of the driver's public names.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "control.h"

using namespace fakecuda;

namespace {

constexpr int kFirstGpu = 0;  // of those that the server sees

// The groups, at the first client.
bool begin_to_serve(State& state) {
  ProcessEntry& own = state.file().processes[state.self()];
  if (own.serves) return true;
  control::Groups groups;
  if (!state.charge(kFirstGpu, kContextBytes) || !control::open_groups(state, kFirstGpu, groups)) {
    return false;
  }
  Locked locked(state);
  for (unsigned e = 0; e < kEngines; ++e) own.groups[e] = groups.entries[e];
  own.gpu = state.gpu_of(kFirstGpu);
  ++own.contexts[own.gpu];
  own.serves = 1;
  return true;
}

std::string clients_of(State& state) {
  Locked locked(state);
  state.reap_locked();
  std::string list;
  for (int i = 0; i < kMaxProcesses; ++i) {
    const ProcessEntry& each = state.file().processes[i];
    if (each.in_use && each.server == state.self() + 1) {
      list += std::to_string(state.pid_of(i)) + "\n";
    }
  }
  return list;
}

// False: it has no such client.
bool terminate(State& state, int pid) {
  Locked locked(state);
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessEntry& each = state.file().processes[i];
    if (!each.in_use || each.server != state.self() + 1 || state.pid_of(i) != pid) continue;
    each.terminated = 1;
    return true;
  }
  return false;
}

std::string answer(State& state, const std::string& line) {
  if (line == "attach") {
    return begin_to_serve(state) ? "server " + std::to_string(state.self()) + "\n" : "refused\n";
  }
  if (line == "clients") return clients_of(state);
  if (line.rfind("terminate ", 0) == 0) {
    return terminate(state, atoi(line.c_str() + 10)) ? "" : "no such client\n";
  }
  return "unknown\n";
}

}  // namespace

// Each line on `in` has an answer on `out`, which ends with an empty line. It ends with `in`, once
// there is no client: without its daemon a server goes on with those that it has.
extern "C" __attribute__((visibility("default"))) int fakecuda_mps_serve(int in, int out) {
  State* state = State::get(false);
  if (!state || state->devices() == 0) return 1;
  FILE* lines = fdopen(in, "r");
  char line[128];
  while (lines && fgets(line, sizeof line, lines)) {
    line[strcspn(line, "\n")] = '\0';
    const std::string said = answer(*state, line) + "\n";
    if (write(out, said.data(), said.size()) < 0) break;
  }
  while (!clients_of(*state).empty()) usleep(50'000);
  return 0;
}
