#include "monitor/config/document.h"

#define TOML_EXCEPTIONS 0
// Its assertions fail on some malformed files, of which its parser then says what is wrong.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "switchyard/printable.h"

namespace switchyard::monitor::config {
namespace {

// No key has more parts, so below that a table is unknown already.
constexpr std::size_t kDeepest = 8;

// What an option takes; false: nothing takes such a value.
bool text_of(const toml::node& node, std::string& out) {
  if (const auto text = node.value_exact<std::string>()) {
    out = *text;
  } else if (const auto number = node.value_exact<std::int64_t>()) {
    out = fmt::format("{}", *number);
  } else if (const auto real = node.value_exact<double>()) {
    out = fmt::format("{}", *real);
  } else if (const auto answer = node.value_exact<bool>()) {
    out = *answer ? "yes" : "no";
  } else {
    return false;
  }
  return true;
}

void walk(const toml::table& table, std::vector<std::string>& path, Document& out) {
  for (auto&& [key, node] : table) {
    path.emplace_back(std::string_view(key));
    Entry entry{path, {}, static_cast<unsigned>(node.source().begin.line), node.is_table()};
    if (const toml::table* inner = node.as_table()) {
      out.entries.push_back(std::move(entry));
      if (path.size() < kDeepest) walk(*inner, path, out);
    } else if (!text_of(node, entry.text)) {
      out.complain(entry.line, fmt::format("{} cannot be a list or a date: expected a text in "
                                           "quotes, a number, true or false",
                                           path_text(path)));
    } else if (entry.text.empty() || entry.text.find('\0') != std::string::npos) {
      out.complain(entry.line,
                   fmt::format("the value of {} is empty: leave it away", path_text(path)));
    } else {
      out.entries.push_back(std::move(entry));
    }
    path.pop_back();
  }
}

}  // namespace

std::string path_text(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& part : path) {
    const bool bare = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_';
    });
    out += out.empty() ? "" : ".";
    out += bare ? part : '"' + printable(part) + '"';
  }
  return out;
}

Document parse_document(std::string_view text, std::string file) {
  Document out;
  out.file = std::move(file);
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    out.complain(static_cast<unsigned>(error.source().begin.line),
                 "not valid TOML: " + printable(error.description()));
    return out;
  }
  std::vector<std::string> path;
  walk(parsed.table(), path, out);
  // The parser sorts by name; of two rules the first in the file counts.
  std::stable_sort(out.entries.begin(), out.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.line < b.line; });
  return out;
}

}  // namespace switchyard::monitor::config
