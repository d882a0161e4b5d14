#include "monitor/core/written_by.h"

#include <gtest/gtest.h>

#include <utility>

namespace switchyard::monitor::test {
namespace {

struct Stranger {
  template <typename Value>
  static constexpr bool kWrites = requires(Value value) {
    value.write();
  };
  template <typename Value>
  static constexpr bool kAssigns = requires(Value to, Value from) {
    to = std::move(from);
  };
};
struct Owner {
  template <typename Value>
  static constexpr bool kWrites = requires(Value value) {
    value.write();
  };
  static int& of(WrittenBy<int, Owner>& value) { return value.write(); }
};

TEST(WrittenBy, OnlyTheOwnerWrites) {
  using Value = WrittenBy<int, Owner>;
  EXPECT_TRUE(Owner::kWrites<Value>);
  EXPECT_FALSE(Stranger::kWrites<Value>);
  EXPECT_FALSE(Stranger::kAssigns<Value>);
  Value value;
  EXPECT_EQ(*value, 0);
  Owner::of(value) = 7;
  EXPECT_EQ(*value, 7);
}

}  // namespace
}  // namespace switchyard::monitor::test
