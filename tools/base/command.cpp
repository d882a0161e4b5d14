#include "tools/base/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "switchyard/paths.h"
#include "switchyard/status.h"
#include "switchyard/suggest.h"
#include "switchyard/wrapped.h"
#include "tools/base/knobs.h"

namespace switchyard::tools {
namespace {

std::string see_help(const std::string& subcommand) {
  return "; see `switchyard " + subcommand + (subcommand.empty() ? "" : " ") + "--help`";
}

// Help in the columns of a terminal. `tail`: what a usage line ends with.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string tail = "") : tail_(std::move(tail)) {}
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    const std::size_t end = usage.find_last_not_of(" \n");
    if (!tail_.empty() && end != std::string::npos) usage.insert(end + 1, " " + tail_);
    return usage;
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return wrapped(CLI::Formatter::make_help(app, std::move(name), mode));
  }

 private:
  std::string tail_;
};

// The option of `app` that is spelled so, with its dashes; null: there is none.
const CLI::Option* option_of(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->check_name(word)) return option;
  }
  return nullptr;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// An option whose value is missing takes the next word, be it an option. Then `--socket --help`
// would name a socket. Empty: there is none.
std::string swallowed(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CLI::Option* option = option_of(app, arguments[i]);
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    const bool has_value = i + 1 < arguments.size();
    const std::string value = has_value ? arguments[++i] : "";
    const bool is_option = value == "--" || value.rfind("--", 0) == 0 || option_of(app, value);
    if (!has_value || !is_option) continue;
    return fmt::format(
        "{0} needs a value, and '{1}' looks like an option: write {0}={1} if that is the value",
        arguments[i - 1], value);
  }
  return "";
}

// What stands where nothing may stand, in the order in which it was written. `app`: whose options
// may be meant.
std::string unexpected(const CLI::App& app, const std::string& subcommand,
                       const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    const std::string option = extra.substr(0, extra.find('='));
    for (const Knob& knob : knobs()) {
      if (subcommand == "set" && knob.option != nullptr && option == knob.option) {
        return option + " is fixed when the job starts: see `switchyard run --help`";
      }
    }
  }
  const std::string first =
      extras.empty() ? "" : extras.front().substr(0, extras.front().find('='));
  if (first.rfind("--", 0) == 0) {
    const std::string meant = nearest(first, options_of(app));
    return "unknown option '" + first + "'" +
           (meant.empty() ? "" : "; did you mean '" + meant + "'?") + see_help(subcommand);
  }
  std::string text = extras.size() == 1 ? "unexpected argument" : "unexpected arguments";
  for (const std::string& extra : extras) text += " '" + extra + "'";
  return text + see_help(subcommand);
}

}  // namespace

std::string Subcommand::name() const { return app_.get_name(); }

Subcommand& Subcommand::word(const char* name, std::string& out, const std::string& meaning) {
  app_.add_option(name, out, meaning);
  return *this;
}

Subcommand& Subcommand::required_word(const char* name, std::string& out,
                                      const std::string& meaning) {
  app_.add_option(name, out, meaning)->required();
  return *this;
}

Subcommand& Subcommand::words(const char* name, std::vector<std::string>& out,
                              const std::string& meaning) {
  app_.add_option(name, out, meaning);
  return *this;
}

Subcommand& Subcommand::option(const char* name, const char* type, const Take& take,
                               const std::string& meaning) {
  app_.add_option_function<std::string>(name, take, meaning)->type_name(type);
  return *this;
}

Subcommand& Subcommand::option(const char* name, const char* type, std::string& out,
                               const std::string& meaning) {
  // CLI11 makes none of an empty value: a script's variable that is not set would select all jobs.
  const auto refuse_empty = [](const std::string& text) -> std::string {
    return text.empty() ? "the value is empty: give one, or leave the option out" : "";
  };
  app_.add_option(name, out, meaning)->type_name(type)->check(refuse_empty);
  return *this;
}

Subcommand& Subcommand::option(const char* name, const char* type, std::optional<std::string>& out,
                               const std::string& meaning) {
  // CLI11 makes none of an empty value.
  return option(
      name, type, [&out](const std::string& text) { out = text; }, meaning);
}

Subcommand& Subcommand::flag(const char* name, bool& out, const std::string& meaning) {
  app_.add_flag(name, out, meaning);
  return *this;
}

Subcommand& Subcommand::flag_or_option(const char* name, const char* type, const Take& take,
                                       const std::string& meaning) {
  const auto text = std::make_shared<std::string>();
  app_.add_flag(name, *text, meaning)
      ->each([text, take](const std::string& given) { take(given == "true" ? "yes" : given); })
      ->type_name(type);
  return *this;
}

Subcommand& Subcommand::hidden_option(const char* name, std::string& out) {
  app_.add_option(name, out)->group("");
  return *this;
}

Subcommand& Subcommand::socket_option() {
  app_.add_option_function<std::string>(
          "--socket",
          [](const std::string& path) { ::setenv("SWITCHYARD_SOCKET", path.c_str(), 1); },
          "the monitor's socket (also SWITCHYARD_SOCKET)")
      ->type_name("PATH")
      ->check([](const std::string& path) -> std::string {
        if (path.size() < kSocketPathBytes) return "";
        return "the path has " + std::to_string(path.size()) +
               " characters, and that of a socket has at most " +
               std::to_string(kSocketPathBytes - 1) + ": choose a shorter one";
      })
      ->trigger_on_parse();
  return *this;
}

Subcommand& Subcommand::monitor_options(bool& json, const char* json_meaning) {
  return flag("--json", json, json_meaning).socket_option();
}

Subcommand& Subcommand::hide() {
  app_.group("");
  return *this;
}

Subcommand& Subcommand::heading(const char* text) {
  CLI::Option* help = app_.get_help_ptr();
  if (help->get_group() == "Options") help->group(text);  // or it would stand alone, and first
  app_.option_defaults()->group(text);
  return *this;
}

Subcommand& Subcommand::takes_command() {
  app_.formatter(std::make_shared<Help>("-- COMMAND [ARGUMENTS]"));
  return *this;
}

void Subcommand::acts(std::function<int()> act) {
  app_.callback([act = std::move(act), &code = code_] { code = act(); });
}

void Subcommand::acts_with_json(std::function<int(bool json)> act) {
  const auto json = std::make_shared<bool>(false);
  monitor_options(*json);
  acts([json, act = std::move(act)] { return act(*json); });
}

CommandLine::CommandLine(const char* about, const char* examples)
    : app_(std::make_unique<CLI::App>(about, "switchyard")) {
  app_->footer(examples);
  app_->formatter(std::make_shared<Help>());
  app_->set_version_flag("-V,--version", std::string("switchyard ") + kVersion);
}

CommandLine::~CommandLine() = default;

Subcommand CommandLine::add(const char* name, const char* meaning, const char* examples) {
  CLI::App* sub = app_->add_subcommand(name, meaning);
  sub->footer(examples);
  return {*sub, code_};
}

std::vector<std::string> CommandLine::names() const {
  std::vector<std::string> names;
  for (const CLI::App* sub : app_->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

int CommandLine::run(std::vector<std::string> arguments) {
  std::string subcommand;
  for (const std::string& name : names()) {
    if (!arguments.empty() && name == arguments.front()) subcommand = name;
  }
  const auto usage = [&](const std::string& text) {
    complain(text);
    return kUsage;
  };
  const CLI::App& app = subcommand.empty() ? *app_ : *app_->get_subcommand(subcommand);
  if (const std::string text = swallowed(app, arguments); !text.empty()) {
    return usage(text + see_help(subcommand));
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app_->parse(std::move(arguments));
  } catch (const CLI::ExtrasError&) {
    return usage(unexpected(app, subcommand, app_->remaining(true)));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help and --version
    return usage(error.what() + see_help(subcommand));
  }
  return code_;
}

}  // namespace switchyard::tools
