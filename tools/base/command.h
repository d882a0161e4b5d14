// A subcommand's two ends: how it enters the command line, and what it leaves behind.
//
// Concept. Each room has one function `add_NAME(app, outcome)` that declares the subcommand, its
// options and its examples; when it was chosen its callback does the work and sets the exit code.
//
// Threading: everything on the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/base/output.h"
#include "tools/base/result.h"

namespace switchyard::tools {

struct Outcome {
  int code = kOk;
  std::vector<std::string> command;  // what follows `--`, for `run`
};

// --socket, on every subcommand that talks to the monitor. It wins over SWITCHYARD_SOCKET.
inline void add_socket_option(CLI::App& sub) {
  sub.add_option_function<std::string>(
         "--socket",
         [](const std::string& path) { ::setenv("SWITCHYARD_SOCKET", path.c_str(), 1); },
         "the monitor's socket (also SWITCHYARD_SOCKET)")
      ->type_name("PATH")
      ->trigger_on_parse();
}

// What a subcommand ends with whose own last option is --json: `act(json)` does its work.
template <typename Act>
void finish_with_json(CLI::App& sub, Outcome& outcome, Act act) {
  const auto json = std::make_shared<bool>(false);
  sub.add_flag("--json", *json, "print JSON");
  add_socket_option(sub);
  sub.callback([json, act, &outcome] { outcome.code = act(*json); });
}

// Says why on stderr and returns the exit code.
inline int fail(const Error& error) {
  complain(error.text);
  return error.code;
}

}  // namespace switchyard::tools
