// The digest's arithmetic: a polynomial over what memory holds, at two secret points.
//
// Concept. Memory is a row of words of 32 bits, w0 ... w(n-1). Its digest at a point r is
//
//     w0 r^(n-1) + w1 r^(n-2) + ... + w(n-1)      mod p = 2^61 - 1
//
// Two different rows of n words have the same digest at less than n of the p points. Their
// difference, a polynomial of a degree below n, has no more roots. At two points, drawn
// independently of the words, both are the same with a chance below (n / p)^2: 2^-76 for 32 MiB.
// That the words are smaller than p is why no two rows are the same polynomial.
//
// A row in two parts has the digest of the first, times r to the length of the second, plus that of
// the second. So the GPU computes pieces, and they are joined here.
//
// The kernel (digest.cu), the simulated GPU and the library compute with what is here.
//
// Threading: pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/host_device.h"

namespace switchyard::shim::swap::digest {

__extension__ using Wide = unsigned __int128;

inline constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
inline constexpr std::uint64_t kPieceBytes = 2u << 20;  // what one block of the kernel computes
inline constexpr unsigned kPieceWords = kPieceBytes / 4;
inline constexpr unsigned kBatch = 256;  // pieces of one launch: its parameters are 4 KiB at most

struct Digest {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  bool operator==(const Digest&) const = default;
};

// The kernel's argument, given by value: where its pieces are.
struct Batch {
  std::uint64_t address[kBatch];
};

// Something below 2^62 that is `x` mod p. pre: x below 2^124.
SWITCHYARD_BOTH constexpr std::uint64_t fold(Wide x) {
  const std::uint64_t once =
      (static_cast<std::uint64_t>(x) & kPrime) + static_cast<std::uint64_t>(x >> 61);
  return (once & kPrime) + (once >> 61);
}

// pre: both below 2^62.
SWITCHYARD_BOTH constexpr std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  return fold(static_cast<Wide>(a) * b);
}

// The one number below p. pre: x below 2 p, as fold() makes it.
SWITCHYARD_BOTH constexpr std::uint64_t canonical(std::uint64_t x) {
  return x >= kPrime ? x - kPrime : x;
}

SWITCHYARD_BOTH constexpr std::uint64_t power(std::uint64_t r, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, r = times(r, r)) {
    if ((exponent & 1) != 0) result = times(result, r);
  }
  return result;
}

// A point's powers, for four words at a time.
struct Powers {
  std::uint64_t one, two, three;
  SWITCHYARD_BOTH explicit constexpr Powers(std::uint64_t r)
      : one(r), two(times(r, r)), three(times(two, r)) {}
};

// sum * step + the digest of four words: folded once.
SWITCHYARD_BOTH constexpr std::uint64_t add_four(std::uint64_t sum, std::uint64_t step,
                                                 const Powers& r, std::uint32_t w0,
                                                 std::uint32_t w1, std::uint32_t w2,
                                                 std::uint32_t w3) {
  return fold(static_cast<Wide>(sum) * step + static_cast<Wide>(r.three) * w0 +
              static_cast<Wide>(r.two) * w1 + static_cast<Wide>(r.one) * w2 + w3);
}

// The digest of a row at one point. pre: `count` is a multiple of four.
inline std::uint64_t of_words(const std::uint32_t* words, std::size_t count, std::uint64_t r) {
  const Powers powers(r);
  const std::uint64_t step = times(powers.two, powers.two);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; i += 4) {
    sum = add_four(sum, step, powers, words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
  return canonical(sum);
}

// Of a row whose last piece has the digest `piece`. `shift`: the point, to the words of a piece.
constexpr std::uint64_t join(std::uint64_t before, std::uint64_t shift, std::uint64_t piece) {
  return canonical(fold(static_cast<Wide>(before) * shift + piece));
}

}  // namespace switchyard::shim::swap::digest
