#include "monitor/config/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "switchyard/fd.h"
#include "switchyard/printable.h"

namespace switchyard::monitor::config {
namespace {

std::optional<id_t> number_of(const std::string& text) {
  id_t out = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end ? std::optional(out) : std::nullopt;
}

// `get`: getpwnam_r or getgrnam_r.
template <typename Entry, typename Get, typename Id>
NameAnswer named(const std::string& name, Get get, Id id) {
  constexpr std::size_t kMostOfEntry = 1 << 20;  // a group may have thousands of members
  std::vector<char> room(4096);
  Entry entry{};
  Entry* found = nullptr;
  int error = ERANGE;
  while (error == ERANGE && room.size() <= kMostOfEntry) {
    error = get(name.c_str(), &entry, room.data(), room.size(), &found);
    if (error == ERANGE) room.resize(room.size() * 4);
  }
  if (found != nullptr) return {id(*found), 0};
  // getpwnam(3): these, too, say that there is no such name.
  for (const int none : {ENOENT, ESRCH, EBADF, EPERM}) {
    if (error == none) return {};
  }
  return {std::nullopt, error};
}

}  // namespace

NameAnswer ask_system(const Rule& rule) {
  if (rule.scope == Scope::kUser) {
    return named<passwd>(rule.name, ::getpwnam_r, [](const passwd& each) { return each.pw_uid; });
  }
  return named<group>(rule.name, ::getgrnam_r, [](const group& each) { return each.gr_gid; });
}

std::optional<std::string> read_file(const std::string& path, std::string& why) {
  // A pipe must not keep us waiting.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    if (errno != ENOENT) why = fmt::format("opening {}: {}", path, std::strerror(errno));
    return std::nullopt;
  }
  if (!S_ISREG(info.st_mode)) {
    why = fmt::format("{} is no regular file", path);
    return std::nullopt;
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    why = fmt::format("{} belongs to uid {}: it must be root's; chown root {}", path, info.st_uid,
                      path);
    return std::nullopt;
  }
  if ((info.st_mode & 022) != 0) {
    why = fmt::format("{} can be written by others than its owner: chmod go-w {}", path, path);
    return std::nullopt;
  }
  std::string text(kMostBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      why = fmt::format("reading {}: {}", path, std::strerror(errno));
      return std::nullopt;
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMostBytes) {
    why = fmt::format("{} is larger than {} bytes", path, kMostBytes);
    return std::nullopt;
  }
  text.resize(size);
  return text;
}

Remarks resolve(Rules& rules, NameAnswer (*ask)(const Rule&)) {
  Remarks out;
  for (Rule& rule : rules.rules) {
    if (rule.scope != Scope::kUser && rule.scope != Scope::kGroup) continue;
    const char* const what = rule.scope == Scope::kUser ? "user" : "group";
    rule.id = number_of(rule.name);
    if (rule.id) continue;
    const NameAnswer answer = ask(rule);
    rule.id = answer.id;
    if (answer.error != 0) {
      out.unanswered.push_back(fmt::format(
          "{}:{}: asking the system for {} '{}': {}; once it answers, let the file be read anew",
          rules.file, rule.line, what, printable(rule.name), std::strerror(answer.error)));
    } else if (!rule.id) {
      out.nobody.push_back(fmt::format("{}:{}: there is no {} '{}': its rule holds for nobody",
                                       rules.file, rule.line, what, printable(rule.name)));
    }
  }
  return out;
}

}  // namespace switchyard::monitor::config
