// What a released version said (tests/compat).
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace switchyard {

inline std::string recorded(const std::string& version, const std::string& file) {
  std::ifstream in(std::string(SWITCHYARD_COMPAT) + "/" + version + "/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Puts the lines of a sparse image into a page of `size` bytes. False: one is not within it.
inline bool put_image(const std::string& image, char* page, std::size_t size) {
  std::size_t at = 0;
  while (at + 8 <= image.size()) {
    std::uint32_t head[2];
    std::memcpy(head, image.data() + at, sizeof(head));
    if (at + 8 + head[1] > image.size() || std::size_t{head[0]} + head[1] > size) return false;
    std::memcpy(page + head[0], image.data() + at + 8, head[1]);
    at += 8 + head[1];
  }
  return at == image.size();
}

}  // namespace switchyard
