// Where the sections of one client's page stand (abi.h: "Sections"): checked once, when the client
// joins, and kept on the monitor's side.
//
// Concept. The client's library names the places, and may be of any version. Each place is checked
// against the page and against what the monitor understands. A section that the monitor doesn't
// know is skipped. One that the client doesn't have is absent: a feature that is off.
//
// Sections may overlap: whoever names such places spoils its own page alone.
//
// Threading: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "switchyard/wire.h"

namespace switchyard::monitor {

class PageDirectory {
 public:
  // That of this version's own library.
  PageDirectory();
  // What a Hello names; nullopt, with the reason, when the monitor can't work with it.
  static std::optional<PageDirectory> read(const wire::Hello& hello, std::string& why);

  std::uint32_t page_bytes() const { return page_bytes_; }
  // All zero: it is absent.
  const abi::Section& at(abi::SectionId id) const { return known_[static_cast<std::size_t>(id)]; }
  std::uint32_t count(abi::SectionId id) const { return at(id).count; }
  // Whether the client's elements are so long: it knows of the words before that.
  bool reaches(abi::SectionId id, std::uint32_t bytes) const { return at(id).stride >= bytes; }
  // Those that are served, for the page.
  std::vector<abi::Section> served() const;

 private:
  std::string take(std::span<const abi::Section> sections);

  std::uint32_t page_bytes_ = 0;
  std::array<abi::Section, abi::kMostSections> known_{};  // by id
};

}  // namespace switchyard::monitor
