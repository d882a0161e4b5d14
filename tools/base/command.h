// The command line of `switchyard`: what a subcommand takes from it, and what it leaves behind.
//
// Concept. Each room has one function `add_NAME(line)` that declares its subcommand, with its
// options and examples. The subcommand that was chosen acts, and what it returns is the exit code.
// CLI11 is known to command.cpp alone, because its header takes longer to compile than a room.
//
// Threading: everything on the main thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/output.h"
#include "tools/base/result.h"

namespace CLI {
class App;
}

namespace switchyard::tools {

// The options appear in --help in the order in which they are declared. The variables that they
// write into must live until the subcommand has acted.
class Subcommand {
 public:
  using Take = std::function<void(const std::string&)>;

  // `code` receives what the subcommand returns.
  Subcommand(CLI::App& app, int& code) : app_(app), code_(code) {}

  std::string name() const;

  // A word without dashes that may be left out, and one that may not.
  Subcommand& word(const char* name, std::string& out, const std::string& meaning);
  Subcommand& required_word(const char* name, std::string& out, const std::string& meaning);
  // As many words as there are.
  Subcommand& words(const char* name, std::vector<std::string>& out, const std::string& meaning);
  // `type` names the value in --help.
  Subcommand& option(const char* name, const char* type, const Take& take,
                     const std::string& meaning);
  Subcommand& option(const char* name, const char* type, std::string& out,
                     const std::string& meaning);
  // One whose empty value is a mistake, and not the same as none.
  Subcommand& option(const char* name, const char* type, std::optional<std::string>& out,
                     const std::string& meaning);
  Subcommand& flag(const char* name, bool& out, const std::string& meaning);
  // One that may have a value, as in --name=VALUE; "yes" without.
  Subcommand& flag_or_option(const char* name, const char* type, const Take& take,
                             const std::string& meaning);
  // Not in --help: for the program's own use.
  Subcommand& hidden_option(const char* name, std::string& out);
  // --json and --socket, which every subcommand that talks to the monitor has. --socket wins over
  // SWITCHYARD_SOCKET.
  Subcommand& monitor_options(bool& json, const char* json_meaning = "print JSON");
  Subcommand& socket_option();
  // The name still works, and --help does not list it.
  Subcommand& hide();
  // Later options stand under this heading in --help.
  Subcommand& heading(const char* text);
  // Its usage ends with a command, behind `--`.
  Subcommand& takes_command();
  // `act` does the work and returns the exit code.
  void acts(std::function<int()> act);
  // As acts(), for a subcommand whose own last option is --json.
  void acts_with_json(std::function<int(bool json)> act);

 private:
  CLI::App& app_;
  int& code_;
};

class CommandLine {
 public:
  CommandLine(const char* about, const char* examples);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Subcommand add(const char* name, const char* meaning, const char* examples);
  std::vector<std::string> names() const;

  // Parses, lets the subcommand act, and returns the exit code. A mistake is one line on stderr,
  // and kUsage.
  int run(std::vector<std::string> arguments);

  std::vector<std::string> command;  // what follows `--`, for `run`

 private:
  std::unique_ptr<CLI::App> app_;
  int code_ = kOk;
};

// Says why on stderr and returns the exit code.
inline int fail(const Error& error) {
  complain(error.text);
  return error.code;
}

}  // namespace switchyard::tools
