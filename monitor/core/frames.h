// Frames of the wire (switchyard/wire.h): taking a stream of bytes apart, and putting answers
// together. No socket in sight, so that it can be fed anything.
//
// Concept. The peer is hostile: a length is checked before anything is kept for it, a text before
// anything reads it. A reader that said "broken" once stays broken, because a stream that is out of
// step can't be trusted again.
//
// Threading: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "switchyard/wire.h"

namespace switchyard::monitor {

struct Frame {
  std::uint32_t kind = 0;
  std::uint32_t id = 0;
  std::string payload;
};

class FrameReader {
 public:
  // Takes bytes as they arrive. False: broken, close the socket; error() says why.
  bool feed(std::span<const char> bytes);
  // The next whole frame, if there is one.
  std::optional<Frame> next();
  // Some bytes of a frame have arrived, but not all.
  bool in_the_middle() const { return !buffer_.empty(); }
  const std::string& error() const { return error_; }

 private:
  bool check_head();

  std::string buffer_;
  std::string error_;
};

// The largest frame that a peer may send: a tool's JSON. A shim's frames are far smaller.
inline constexpr std::uint32_t kMostRequestBytes = 64 * 1024;

std::string make_frame(std::uint32_t kind, std::uint32_t id, std::string_view payload);

template <typename Plain>
std::string make_frame(std::uint32_t kind, std::uint32_t id, const Plain& payload) requires
    std::is_class_v<Plain> && std::is_trivially_copyable_v<Plain> &&
    (!std::is_convertible_v<Plain, std::string_view>) {
  return make_frame(kind, id,
                    std::string_view(reinterpret_cast<const char*>(&payload), sizeof(payload)));
}

// The layout of the page that a Hello speaks; 0: the monitor's, or none.
std::uint32_t other_layout(std::string_view payload);
// The payload as the struct of its kind, of whatever version; nullopt when it is too short for any.
std::optional<wire::Hello> read_hello(std::string_view payload, std::string& why);
std::optional<wire::Charge> read_charge(std::string_view payload);
std::optional<wire::Share> read_share(std::string_view payload);

// A field of fixed capacity as text; nullopt when no zero ends it.
template <std::size_t kCapacity>
std::optional<std::string> read_text(const char (&field)[kCapacity]) {
  const std::string_view whole(field, kCapacity);
  const auto end = whole.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(whole.substr(0, end));
}

}  // namespace switchyard::monitor
