#include "switchyard/uuid.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Uuids, AreReadAsTheDriverWritesThem) {
  std::uint8_t uuid[16] = {};
  ASSERT_TRUE(parse_uuid("GPU-5f1c0da0-514d-4a70-8a11-737769746300", uuid));
  EXPECT_EQ(uuid[0], 0x5f);
  EXPECT_EQ(uuid[14], 0x63);
  EXPECT_EQ(uuid[15], 0);
  EXPECT_TRUE(parse_uuid("MIG-5F1C0DA0-514d-4a70-8a11-737769746300", uuid));
}

TEST(Uuids, OfAnotherFormAreNone) {
  std::uint8_t uuid[16] = {};
  for (const char* text :
       {"", "G", "GPU-", "GPU-5f", "CPU-5f1c0da0-514d-4a70-8a11-737769746300",
        "GPU-5f1c0da0-514d-4a70-8a11-73776974630x", "GPU-5f1c0da0-514d-4a70-8a11-7377697463000"}) {
    EXPECT_FALSE(parse_uuid(text, uuid)) << text;
  }
}

}  // namespace
}  // namespace switchyard
