#include "monitor/core/page_directory.h"

#include <fmt/format.h>

#include <algorithm>

namespace switchyard::monitor {
namespace {

using abi::SectionId;

// What the monitor must find in a section, and what it looks at. The stride is that of the first
// version of the section, for ever: whatever came later is asked for by reaches().
struct Known {
  SectionId id;
  std::uint32_t stride;
  std::uint32_t alignment;
  std::uint32_t most;  // elements that the monitor looks at; of a ring: that one may have
  bool ring = false;
};

template <typename Element>
constexpr Known known(SectionId id, std::uint32_t stride, std::uint32_t most, bool ring = false) {
  return {id, stride, alignof(Element), most, ring};
}

constexpr std::uint32_t kMostOfRing = 4096;
constexpr Known kServed[] = {
    known<abi::Process>(SectionId::kProcess, 256, 1),
    known<abi::Card>(SectionId::kCard, 1088, 1),
    known<abi::Lane>(SectionId::kLanes, 320, abi::kMaxGpus),
    known<abi::Memory>(SectionId::kMemories, 160, abi::kMaxGpus),
    known<abi::Residency>(SectionId::kResidencies, 128, abi::kMaxGpus),
#if !defined(SWITCHYARD_SUCCESSOR_FEWER)
    known<abi::Gate>(SectionId::kGates, 256, abi::kMaxGpus),
#endif
    known<abi::Record>(SectionId::kRecords, 16, kMostOfRing, true),
    known<abi::Record>(SectionId::kTimings, 16, kMostOfRing, true),
    known<abi::Norm>(SectionId::kNorms, 40, kMostOfRing, true),
    known<abi::NormOrder>(SectionId::kNormOrders, 16, abi::kMostCommunicators),
    known<abi::Communicator>(SectionId::kCommunicators, 64, abi::kMostCommunicators),
#if defined(SWITCHYARD_SUCCESSOR_MORE)
    known<abi::Word64>(SectionId::kMadeUp, 8, 16),
#endif
};

const Known* find_known(SectionId id) {
  const auto* found = std::find_if(std::begin(kServed), std::end(kServed),
                                   [id](const Known& each) { return each.id == id; });
  return found == std::end(kServed) ? nullptr : found;
}

}  // namespace

PageDirectory::PageDirectory() : page_bytes_(abi::kPageBytes) { take(abi::kSections); }

std::string PageDirectory::take(std::span<const abi::Section> sections) {
  for (const abi::Section& each : sections) {
    const auto id = static_cast<std::uint32_t>(each.id);
    if (!each.fits(page_bytes_)) {
      return fmt::format(
          "section {} of its page, {} elements of {} bytes at {}, is not within {} bytes", id,
          each.count, each.stride, each.offset, page_bytes_);
    }
    const Known* wanted = find_known(each.id);
    if (wanted == nullptr) continue;
    abi::Section& mine = known_[id];
    if (mine.stride != 0) return fmt::format("section {} of its page stands there twice", id);
    if (each.stride < wanted->stride || each.stride % wanted->alignment != 0) {
      return fmt::format(
          "section {} of its page has elements of {} bytes, at least {} are expected", id,
          each.stride, wanted->stride);
    }
    // The place in a ring is a matter of its whole size.
    if (each.count == 0 || (wanted->ring && each.count > wanted->most)) continue;
    mine = each;
    mine.count = std::min(each.count, wanted->most);
  }
  return {};
}

std::optional<PageDirectory> PageDirectory::read(const wire::Hello& hello, std::string& why) {
  PageDirectory out;
  out.known_ = {};
  out.page_bytes_ = hello.page_bytes;
  if (hello.page_bytes == 0 || hello.page_bytes > abi::kMostPageBytes ||
      hello.page_bytes % abi::kMemoryPageBytes != 0) {
    why = fmt::format(
        "a Hello that asks for a page of {} bytes: whole pages of {}, up to {}, are taken",
        hello.page_bytes, abi::kMemoryPageBytes, abi::kMostPageBytes);
    return std::nullopt;
  }
  if (hello.section_count > abi::kMostSections) {
    why = fmt::format("a Hello with {} sections of the page, at most {} are taken",
                      hello.section_count, abi::kMostSections);
    return std::nullopt;
  }
  why = out.take(std::span(hello.sections).first(hello.section_count));
  if (!why.empty()) return std::nullopt;
  for (const SectionId id : {SectionId::kProcess, SectionId::kCard, SectionId::kLanes}) {
    const std::uint32_t least = id == SectionId::kLanes ? hello.lane_count : 1;
    if (out.count(id) >= least) continue;
    why = fmt::format("a Hello without section {} of the page, which every version needs",
                      static_cast<std::uint32_t>(id));
    return std::nullopt;
  }
  return out;
}

std::vector<abi::Section> PageDirectory::served() const {
  std::vector<abi::Section> out;
  std::copy_if(known_.begin(), known_.end(), std::back_inserter(out),
               [](const abi::Section& each) { return each.stride != 0; });
  return out;
}

}  // namespace switchyard::monitor
