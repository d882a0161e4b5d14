// What /proc says of processes, also of those that make it long.
#include "monitor/platform/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "switchyard/fd.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

TEST(Processes, OfOneWithEndlessMappingsOnlyTheBeginningIsRead) {
  EXPECT_FALSE(may_be_managed(::getpid()));
  const fs::path path =
      fs::temp_directory_path() / (std::string(200, 'm') + std::to_string(::getpid()));
  std::ofstream(path) << std::string(4096, 'x');
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(path);
  // Some 2 MB of lines. Two of the same page never become one mapping.
  for (int i = 0; i < 8000; ++i) {
    ASSERT_NE(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
  }
  EXPECT_TRUE(may_be_managed(::getpid())) << "it can't be told";
}

}  // namespace
}  // namespace switchyard::monitor
