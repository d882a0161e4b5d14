// The parts of switchyard-entrypoint that read an image's files, given broken ones. The program is
// run by tests/system/entrypoint_test.cpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "tests/support/seeds.h"

extern "C" {
#include "tools/entrypoint/image.h"
#include "tools/entrypoint/monitor.h"
#include "tools/entrypoint/preload.h"
}

namespace switchyard::tools {
namespace {

std::string image(const std::string& name) { return std::string(SWITCHYARD_IMAGES) + "/" + name; }

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file of these bytes, as long as it lives.
class File {
 public:
  explicit File(const std::string& bytes) : fd_(::memfd_create("image", MFD_CLOEXEC)) {
    EXPECT_EQ(::write(fd_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  Fd fd_;
};

TEST(EntrypointImage, TheVersionsOfALibcAreRead) {
  EXPECT_EQ(glibc_minor(image("2.27/libc.so.6").c_str()), 27);
  EXPECT_EQ(glibc_minor(image("2.28/libc.so.6").c_str()), 28);
  EXPECT_EQ(glibc_minor(image("2.27/program").c_str()), -1);
  EXPECT_EQ(glibc_minor("/proc/self/no"), -1);
  EXPECT_EQ(glibc_minor("/dev/null"), -1);
  EXPECT_EQ(glibc_minor("/"), -1);
}

TEST(EntrypointImage, OfALibcThatIsCutShortNothingIsMadeUp) {
  const std::string whole = content(image("2.28/libc.so.6"));
  ASSERT_GT(whole.size(), 64U);
  for (std::size_t size = 0; size < whole.size(); size += 61) {
    const int minor = glibc_minor(File(whole.substr(0, size)).path().c_str());
    EXPECT_LE(minor, 28) << size;
  }
}

// With the sanitizers, this finds a read beyond what is there; here, that it ends.
TEST(EntrypointImage, BrokenFilesAreReadToAnEnd) {
  const std::string libc = content(image("2.28/libc.so.6"));
  const std::string program = content(image("2.28/program"));
  std::mt19937 random(1);
  for (unsigned i = 0; i < test_support::seeds(600); ++i) {
    std::string broken = i % 2 == 0 ? libc : program;
    for (int changes = 0; changes < 8; ++changes) {
      // Headers and tables stand at the front.
      broken[random() % std::min<std::size_t>(broken.size(), 0x400)] = static_cast<char>(random());
    }
    const File file(broken);
    char why[256] = "";
    EXPECT_LE(glibc_minor(file.path().c_str()), 999);
    library_fits(file.path().c_str(), file.path().c_str(), why, sizeof(why));
  }
}

TEST(EntrypointImage, AListOfVersionsWithoutEndEnds) {
  // Each version says that the next one stands where it does itself: an offset that wraps around.
  std::string libc = content(image("2.28/libc.so.6"));
  const std::size_t at = libc.find(std::string("\x01\x00\x01\x00", 4), 64);
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = at; i + 20 < libc.size(); ++i) {
    const std::string head("\x01\x00", 2);
    if (libc.compare(i, 2, head) == 0) std::memcpy(&libc[i + 16], "\xff\xff\xff\xff", 4);
  }
  EXPECT_LE(glibc_minor(File(libc).path().c_str()), 28);
}

TEST(EntrypointPreload, TheLibraryComesFirstAndOthersStay) {
  const auto with = [](const char* value, const char* library) {
    char* text = preload_with(value, library);
    const std::string out = text != nullptr ? text : "none";
    ::free(text);
    return out;
  };
  EXPECT_EQ(with(nullptr, "/l/libswitchyard.so"), "/l/libswitchyard.so");
  EXPECT_EQ(with("a.so b.so::c.so", "/l/libswitchyard.so"), "/l/libswitchyard.so:a.so:b.so:c.so");
  EXPECT_EQ(with("a.so:/other/libswitchyard.so", "/l/libswitchyard.so"),
            "/l/libswitchyard.so:a.so");
  EXPECT_EQ(with("notlibswitchyard.so", nullptr), "notlibswitchyard.so");
  EXPECT_EQ(with("libswitchyard.so:/x/libswitchyard.so", nullptr), "none");
}

// It is C, and has the names of paths.h once more.
TEST(EntrypointMonitor, TheSocketIsWhereTheLibraryLooks) {
  EXPECT_STREQ(SWITCHYARD_SYSTEM_FOLDER, kSystemFolder);
  EXPECT_STREQ(SWITCHYARD_SYSTEM_SOCKET, kSystemSocket);
}

}  // namespace
}  // namespace switchyard::tools
