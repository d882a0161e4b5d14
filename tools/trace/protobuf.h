// Messages of Protocol Buffers, written field by field. A field is a number and a value; what
// numbers mean stands with whoever writes them.
//
// Concept. libprotobuf would be linked into each program of ours for these few lines: the wheel's
// programs are linked with the libraries that they use.
//
// Threading: a plain value.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard::tools::trace {

class Message {
 public:
  void number(unsigned field, std::uint64_t value) {
    tag(field, kVarint);
    varint(value);
  }
  void fixed64(unsigned field, std::uint64_t value) {
    tag(field, kFixed64);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift);
  }
  void real(unsigned field, double value) { fixed64(field, std::bit_cast<std::uint64_t>(value)); }
  void text(unsigned field, std::string_view value) {
    tag(field, kBytes);
    varint(value.size());
    bytes_ += value;
  }
  void message(unsigned field, const Message& value) { text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2 };

  void tag(unsigned field, Wire wire) { varint(field << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace switchyard::tools::trace
