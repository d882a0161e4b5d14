#include "monitor/control/audit.h"

#include <fmt/format.h>

#include "monitor/control/reply.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

constexpr std::size_t kMostText = 200;  // of what a peer says

std::string said(const json& request, const char* key) {
  return printable(text_of(request, key).value_or("")).substr(0, kMostText);
}

// " limit none -> 30%, share 1 -> 4"
std::string changes_text(const json& request, const json& before) {
  std::string text;
  for (const auto& [field, old] : before.items()) {
    text +=
        fmt::format("{} {} {} -> {}", text.empty() ? "" : ",", field,
                    old.is_string() ? old.get<std::string>() : "?", said(request, field.c_str()));
  }
  return text;
}

std::string job_text(const json& request, const json& reply, const std::string& op) {
  std::string text = fmt::format("{} '{}'", op, said(request, "target"));
  if (op == "pause") {
    if (request.contains("timeout_seconds"))
      text += " for " + said(request, "timeout_seconds") + " s";
    if (request.contains("release")) text += ", release " + said(request, "release");
  }
  if (op == "migrate") text += " to " + said(request, "to");
  if (const auto before = reply.find("before"); op == "set" && before != reply.end()) {
    text += ":" + changes_text(request, *before);
  }
  return text;
}

}  // namespace

std::optional<std::string> command_text(const json& request, const json& reply,
                                        const std::string& before, const std::string& after) {
  const std::string op = text_of(request, "op").value_or("");
  const bool refused = !reply.value("ok", false);
  std::string text;
  if (op == "policy" || op == "means") {
    if (!refused && before == after) return std::nullopt;
    text = refused ? op : fmt::format("{} -> {}", before, after);
  } else if (op == "create") {
    if (!refused) return std::nullopt;  // the new job has a line of its own
    text = "run";
  } else if (op == "stop") {
    text = "stop";
  } else if (op == "set" || op == "pause" || op == "resume" || op == "swap-out" ||
             op == "swap-in" || op == "migrate") {
    text = job_text(request, reply, op);
  } else {
    return std::nullopt;
  }
  if (refused) text += ": refused: " + said(reply, "error");
  return text;
}

std::string actor(const Peer& peer) {
  return fmt::format("{} (pid {})", user_name(peer.uid), peer.pid);
}

}  // namespace switchyard::monitor
