// The columns of `ps`: what each says of a job, or of a job on one GPU.
//
// Concept. One table of fields. The default, `-o wide` and `--format` choose among them. A row is a
// job with the sums of its GPUs; by `--per-gpu` it is a job on one of them.
//
// Threading: pure functions, but for `command`, which the caller has read (about.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/table.h"

namespace switchyard::tools {

// Enough to tell containers apart, as `docker ps` has it.
inline constexpr std::size_t kContainerDigits = 12;

struct Row {
  const nlohmann::json* job = nullptr;
  const nlohmann::json* gpu = nullptr;  // null: all its GPUs
};

struct Field {
  const char* name;  // for --format
  const char* heading;
  Table::Align align;
  Table::Cell (*cell)(const Row& row);
  // A table that is too wide cuts it to the first; where that is not enough, to the second.
  // drawing.cpp names those that are cut.
  std::size_t soft_least = 0, hard_least = 0;
};

using Fields = std::vector<const Field*>;

// The mean part of the time of the GPUs that it is on; nullopt: not known.
struct Share {
  double ratio = 0;
  bool estimated = false;  // slices allot it, and nothing measures it
};
std::optional<Share> share_of(const Row& row);

// On its GPUs together. 0: there is no quota.
struct MemoryUse {
  std::uint64_t used = 0, quota = 0;
};
MemoryUse memory_of(const Row& row);

const Field* field_named(const std::string& name);  // null: there is none
std::vector<std::string> field_names();
const Fields& default_fields();
const Fields& wide_fields();

// "264M", "8.1G": bytes in five columns at most.
std::string compact_bytes(std::uint64_t bytes);
// "41s", "12m", "2h14", "1d03"
std::string compact_seconds(double seconds);
// "0,2-4"; "-" for none. pre: sorted.
std::string compact_numbers(const std::vector<std::uint64_t>& numbers);

}  // namespace switchyard::tools
