// What `switchyard config` says before it asks a monitor or its program.
#include "tools/config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "fake_monitor.h"

namespace switchyard::tools {
namespace {

TEST(ConfigCheck, HasNoJsonAndSaysSo) {
  const CommandEnd end =
      run_command("/nowhere/m.sock", {&add_config}, {"config", "check", "--json", "/nowhere/f"});
  EXPECT_EQ(end.code, kUsage);
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("leave --json out"), std::string::npos) << end.err;
}

// As `switchyardd --check-config`, which a reload of the unit runs first.
TEST(ConfigCheck, TheMachinesFileMayBeMissing) {
  if (::access("/etc/switchyard/switchyard.toml", F_OK) == 0) GTEST_SKIP() << "it is there";
  const CommandEnd end = run_command("/nowhere/m.sock", {&add_config}, {"config", "check"});
  EXPECT_EQ(end.code, kOk) << end.err;
  EXPECT_EQ(end.out, "there is no file /etc/switchyard/switchyard.toml: the defaults count\n");
}

}  // namespace
}  // namespace switchyard::tools
