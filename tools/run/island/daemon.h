// The MPS control daemon of an island, by the program that comes with the driver.
//
// Threading: one thread; each call waits for a program, with a limit.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools::island {

inline constexpr char kControlProgram[] = "nvidia-cuda-mps-control";
inline constexpr char kPipeVariable[] = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr char kLogVariable[] = "CUDA_MPS_LOG_DIRECTORY";

// What the daemon with that pipe folder answers a command; nullopt: none runs there.
std::optional<std::string> ask(const std::string& pipe, const std::string& command);
// Whether a server of it has a client.
bool has_clients(const std::string& pipe);
// That client's work ends, and that of no other. Where it is none, nothing happens.
void terminate_client(const std::string& pipe, int pid);

// `environment`: changes to this process's, for the daemon and its servers.
std::optional<Error> start(const std::vector<std::pair<std::string, std::string>>& environment);
// Ends it with its server, and waits for that, for a while.
void quit(const std::string& pipe);

}  // namespace switchyard::tools::island
