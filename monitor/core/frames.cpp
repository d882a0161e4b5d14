#include "monitor/core/frames.h"

#include <algorithm>
#include <cstring>

namespace switchyard::monitor {
namespace {

// A payload grows at its end alone (wire.h). `first`: its bytes in version 0.2.0.
template <typename Plain>
std::optional<Plain> read_plain(std::string_view payload, std::size_t first) {
  Plain plain{};
  if (payload.size() < first) return std::nullopt;
  std::memcpy(&plain, payload.data(), std::min(payload.size(), sizeof(plain)));
  return plain;
}

constexpr std::size_t kFirstHello = 2024;
constexpr std::size_t kFirstCharge = 16;
constexpr std::size_t kFirstShare = 24;

}  // namespace

bool FrameReader::check_head() {
  if (buffer_.size() < sizeof(wire::FrameHeader)) return true;
  wire::FrameHeader header{};
  std::memcpy(&header, buffer_.data(), sizeof(header));
  if (header.magic != wire::kMagic) {
    error_ = "not a frame of Switchyard's";
  } else if (header.length > kMostRequestBytes) {
    error_ = "a frame of " + std::to_string(header.length) + " bytes, at most " +
             std::to_string(kMostRequestBytes) + " are taken";
  }
  return error_.empty();
}

bool FrameReader::feed(std::span<const char> bytes) {
  if (!error_.empty()) return false;
  buffer_.append(bytes.data(), bytes.size());
  return check_head();
}

std::optional<Frame> FrameReader::next() {
  if (!error_.empty() || buffer_.size() < sizeof(wire::FrameHeader)) return std::nullopt;
  wire::FrameHeader header{};
  std::memcpy(&header, buffer_.data(), sizeof(header));
  if (buffer_.size() - sizeof(header) < header.length) return std::nullopt;
  Frame frame{header.kind, header.id, buffer_.substr(sizeof(header), header.length)};
  buffer_.erase(0, sizeof(header) + header.length);
  check_head();
  return frame;
}

std::string make_frame(std::uint32_t kind, std::uint32_t id, std::string_view payload) {
  const wire::FrameHeader header{wire::kMagic, kind, static_cast<std::uint32_t>(payload.size()),
                                 id};
  std::string out(reinterpret_cast<const char*>(&header), sizeof(header));
  out += payload;
  return out;
}

namespace {

// It comes first, because another version may well have another size.
std::uint32_t layout_of(std::string_view hello) {
  std::uint32_t layout = 0;
  if (hello.size() >= sizeof(layout)) std::memcpy(&layout, hello.data(), sizeof(layout));
  return layout;
}

}  // namespace

std::uint32_t other_layout(std::string_view payload) {
  const std::uint32_t layout = layout_of(payload);
  return layout == abi::kLayoutVersion ? 0 : layout;
}

std::optional<wire::Hello> read_hello(std::string_view payload, std::string& why) {
  const std::uint32_t layout = layout_of(payload);
  if (layout != abi::kLayoutVersion) {
    why = std::string(layout < abi::kLayoutVersion ? "old" : "newer") +
          " library: it speaks layout " + std::to_string(layout) + " of the page and the monitor " +
          std::to_string(abi::kLayoutVersion) +
          ": install the same version of both, and start the job anew";
    return std::nullopt;
  }
  const auto hello = read_plain<wire::Hello>(payload, kFirstHello);
  if (!hello) {
    why = "a Hello of " + std::to_string(payload.size()) + " bytes, at least " +
          std::to_string(kFirstHello) + " are expected";
    return std::nullopt;
  }
  if (hello->lane_count > abi::kMaxGpus) {
    why = "a Hello with " + std::to_string(hello->lane_count) + " GPUs, at most " +
          std::to_string(abi::kMaxGpus) + " are taken";
    return std::nullopt;
  }
  if (JobCard card; !read_text(hello->process) || !read_card_text(hello->card, card)) {
    why = "a Hello with a text that no zero ends, or a setting that is too long";
    return std::nullopt;
  }
  return hello;
}

std::optional<wire::Charge> read_charge(std::string_view payload) {
  return read_plain<wire::Charge>(payload, kFirstCharge);
}

std::optional<wire::Share> read_share(std::string_view payload) {
  return read_plain<wire::Share>(payload, kFirstShare);
}

}  // namespace switchyard::monitor
