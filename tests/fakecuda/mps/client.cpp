#include "client.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "protocol.h"

namespace fakecuda::mps {
namespace {

struct Client {
  State* state = nullptr;
  int server = -1;
  std::uint64_t server_began = 0;  // with its place, its identity
  std::uint32_t faults = 0;        // that the server had seen before
};

// Set once, before any other thread of this process knows of the driver.
Client& client() {
  static Client* only = new Client;
  return *only;
}

ProcessEntry& entry_of(int process) { return client().state->file().processes[process]; }

}  // namespace

bool attached() { return client().server >= 0; }

CUresult attach(State& state) {
  std::string answer;
  if (attached() || !ask_daemon("attach", answer)) return CUDA_SUCCESS;
  if (answer.rfind("server ", 0) != 0) return CUDA_ERROR_MPS_CONNECTION_FAILED;
  const int server = atoi(answer.c_str() + 7);
  if (server < 0 || server >= kMaxProcesses) return CUDA_ERROR_MPS_CONNECTION_FAILED;
  Client& mine = client();
  mine.state = &state;
  Locked locked(state);
  ProcessEntry& entry = state.file().processes[server];
  if (!entry.in_use || entry.serves == 0) return CUDA_ERROR_MPS_SERVER_NOT_READY;
  mine.server_began = entry.start_time;
  mine.faults = entry.faults;
  mine.server = server;
  state.file().processes[state.self()].server = server + 1;
  return CUDA_SUCCESS;
}

void lend_groups(control::Groups& groups) {
  groups = {};
  Locked locked(*client().state);
  for (unsigned e = 0; e < kEngines; ++e) groups.entries[e] = entry_of(client().server).groups[e];
}

CUresult trouble_locked() {
  const ProcessEntry& server = entry_of(client().server);
  if (!server.in_use || server.start_time != client().server_began) {
    return CUDA_ERROR_MPS_RPC_FAILURE;
  }
  if (entry_of(client().state->self()).terminated) return CUDA_ERROR_MPS_CLIENT_TERMINATED;
  if (server.faults != client().faults) return static_cast<CUresult>(server.fault.load());
  return CUDA_SUCCESS;
}

CUresult trouble() {
  if (!attached()) return CUDA_SUCCESS;
  Locked locked(*client().state);
  return trouble_locked();
}

void tell_fault(CUresult fault) {
  if (!attached()) return;
  Locked locked(*client().state);
  if (trouble_locked() != CUDA_SUCCESS) return;
  ProcessEntry& server = entry_of(client().server);
  server.fault = fault;
  ++server.faults;
}

bool server_lives() {
  State& state = *client().state;
  if (trouble() == CUDA_ERROR_MPS_RPC_FAILURE) return false;
  if (state.alive(client().server)) return true;
  Locked locked(state);
  state.reap_locked();
  return trouble_locked() != CUDA_ERROR_MPS_RPC_FAILURE;
}

}  // namespace fakecuda::mps
