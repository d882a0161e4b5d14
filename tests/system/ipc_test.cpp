// Swappable memory that processes give each other by legacy IPC: the library, the monitor and a
// GPU.
#include <signal.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

// Results of the driver's.
constexpr const char* kInvalidValue = " 1";
constexpr const char* kInvalidContext = " 201";
constexpr const char* kNotSupported = " 801";

// A job_ipc.
class Peer {
 public:
  explicit Peer(Child child) : child_(std::move(child)) { EXPECT_EQ(line(), "ready"); }

  std::string line() {
    std::string text;
    return child_.read_line(text, kLimit) ? text : std::string("nothing");
  }
  bool tell(const std::string& command) { return child_.write_line(command); }
  std::string ask(const std::string& command) { return tell(command) ? line() : "gone"; }
  // Its memory number `index`, at byte `at`.
  std::string handle(int index, std::uint64_t at = 0) {
    const std::string said = ask("export " + std::to_string(index) + " " + std::to_string(at));
    return said.rfind("handle ", 0) == 0 ? said.substr(7) : said;
  }
  // Whether it opens the handle as its memory number `index`.
  bool opens(const std::string& handle, int index) {
    return ask("open " + handle).rfind("opened " + std::to_string(index) + " ", 0) == 0;
  }
  void kill() { ::kill(child_.pid(), SIGKILL); }

 private:
  Child child_;
};

class Ipc : public Scene {
 protected:
  void SetUp() override {
    Scene::SetUp();
    monitor_.emplace(monitor());
  }
  Peer peer(const std::string& name, bool swappable = true) {
    Words options{"--name", name};
    if (swappable) options.emplace_back("--swappable");
    return Peer(job(options, {built("tests/jobs/job_ipc")}, {{"FAKECUDA_PATTERN", "1"}}));
  }
  // One with 70 MiB, three chunks, all words of it 1.
  Peer maker() {
    Peer made = peer("maker");
    EXPECT_EQ(made.ask("alloc " + std::to_string(70 * kMiB)), "did alloc 0");
    EXPECT_EQ(made.ask("fill 0 1"), "did fill");
    return made;
  }
  std::size_t descriptors_of_monitor() {
    const std::string folder = "/proc/" + std::to_string(monitor_->pid()) + "/fd";
    std::error_code error;
    std::size_t count = 0;
    for (std::filesystem::directory_iterator at(folder, error), end; at != end;
         at.increment(error)) {
      ++count;
    }
    return count;
  }
  // MiB of a job that stay on the device for that reason.
  std::uint64_t stays(const std::string& job, const std::string& why) {
    return gpu_of(job).value("memory_stays_bytes", json::object()).value(why, 0ull) / kMiB;
  }
  // MiB of a job.
  std::uint64_t used(const std::string& job) {
    return gpu_of(job).value("memory_used_bytes", 0ull) / kMiB;
  }
  void expect_shared(Peer& maker, Peer& opener, const std::string& handle) {
    ASSERT_TRUE(opener.opens(handle, 0));
    EXPECT_EQ(opener.ask("check 0 1"), "right");
    EXPECT_EQ(opener.ask("fill 0 2"), "did fill");
    EXPECT_EQ(maker.ask("check 0 2"), "right");
    EXPECT_EQ(maker.ask("fill 0 3"), "did fill");
    EXPECT_EQ(opener.ask("check 0 3"), "right");
  }

  std::optional<Child> monitor_;
};

TEST_F(Ipc, TwoSwappableJobsSeeEachOthersWrites) {
  Peer a = maker(), b = peer("opener");
  EXPECT_EQ(a.ask("capable 0"), "capable 1");
  expect_shared(a, b, a.handle(0));
}

TEST_F(Ipc, OnlyItsMakerIsCharged) {
  Peer a = maker(), b = peer("opener");
  expect_shared(a, b, a.handle(0));
  EXPECT_EQ(used("maker"), 78u) << "with its context";
  EXPECT_EQ(used("opener"), 8u);
}

TEST_F(Ipc, BothAreToldWhyItStays) {
  Peer a = maker(), b = peer("opener");
  expect_shared(a, b, a.handle(0));
  EXPECT_TRUE(eventually([&] { return stays("maker", "ipc_exported") == 70; }));
  EXPECT_TRUE(eventually([&] { return stays("opener", "ipc_imported") == 70; }));
  EXPECT_EQ(b.ask("close 0"), "did close");
  EXPECT_TRUE(eventually([&] { return stays("opener", "ipc_imported") == 0; }));
}

TEST_F(Ipc, AJobThatIsNotSwappableOpensIt) {
  Peer a = maker(), b = peer("opener", false);
  expect_shared(a, b, a.handle(0));
}

TEST_F(Ipc, WithoutTheLibraryNobodyOpensIt) {
  Peer a = maker(), b(start({built("tests/jobs/job_ipc")}));
  EXPECT_EQ(b.ask("open " + a.handle(0)), std::string("failed open") + kInvalidValue);
}

TEST_F(Ipc, AnyAddressGivesTheHandleOfItsAllocation) {
  Peer a = maker(), b = peer("opener");
  const std::string handle = a.handle(0);
  EXPECT_EQ(a.handle(0, 40 * kMiB + 5), handle);
  const std::string opened = b.ask("open " + handle);
  const std::string base = opened.substr(opened.rfind(' ') + 1);
  const std::string whole = "bounds " + base + " " + std::to_string(70 * kMiB);
  EXPECT_EQ(b.ask("bounds 0 0"), whole);
  EXPECT_EQ(b.ask("bounds 0 " + std::to_string(69 * kMiB)), whole);
}

TEST_F(Ipc, WhatIsOpenIsCountedAndTheLastCloseEndsIt) {
  Peer a = maker(), b = peer("opener");
  const std::string handle = a.handle(0);
  const std::string once = b.ask("open " + handle), twice = b.ask("open " + handle);
  EXPECT_EQ(once.substr(once.rfind(' ')), twice.substr(twice.rfind(' '))) << "the same address";
  EXPECT_EQ(b.ask("close 0"), "did close");
  EXPECT_EQ(b.ask("check 1 1"), "right");
  EXPECT_EQ(b.ask("close 1"), "did close");
  EXPECT_EQ(b.ask("close 1"), std::string("failed close") + kInvalidValue);
  EXPECT_TRUE(b.opens(handle, 2));
  EXPECT_EQ(b.ask("check 2 1"), "right");
}

TEST_F(Ipc, WhatAContextOpenedEndsWithIt) {
  Peer a = maker(), b = peer("opener");
  const std::string handle = a.handle(0);
  ASSERT_TRUE(b.opens(handle, 0));
  EXPECT_EQ(b.ask("reset"), "did reset");
  EXPECT_EQ(b.ask("renew"), "did renew");
  EXPECT_EQ(b.ask("close 0"), std::string("failed close") + kInvalidValue);
  EXPECT_TRUE(b.opens(handle, 1));
  EXPECT_EQ(b.ask("check 1 1"), "right");
}

TEST_F(Ipc, NobodyOpensHisOwn) {
  Peer a = maker();
  EXPECT_EQ(a.ask("open " + a.handle(0)), std::string("failed open") + kInvalidContext);
}

TEST_F(Ipc, AHandleThatNobodyGaveIsRefused) {
  Peer a = maker(), b = peer("opener");
  std::string handle = a.handle(0);
  std::string other = handle;
  other[20] = other[20] == '0' ? '1' : '0';  // of its key
  EXPECT_EQ(b.ask("open " + other), std::string("failed open") + kInvalidValue);
  other = handle;
  other.replace(64, 16, "ffffffffffffffff");  // of its size
  EXPECT_EQ(b.ask("open " + other), std::string("failed open") + kInvalidValue);
  EXPECT_TRUE(b.opens(handle, 2));
}

TEST_F(Ipc, SmallMemoryIsTheDrivers) {
  Peer a = peer("maker"), b = peer("opener");
  EXPECT_EQ(a.ask("alloc 4096"), "did alloc 0");
  EXPECT_EQ(a.ask("fill 0 1"), "did fill");
  expect_shared(a, b, a.handle(0));
  EXPECT_EQ(b.ask("close 0"), "did close");
}

TEST_F(Ipc, WhatIsExportedStaysWhileTheRestMoves) {
  Peer a = maker(), b = peer("opener");
  EXPECT_EQ(a.ask("alloc " + std::to_string(40 * kMiB)), "did alloc 1");
  EXPECT_EQ(a.ask("fill 1 7"), "did fill");
  ASSERT_EQ(b.ask("open " + a.handle(0)).rfind("opened 0", 0), 0u);
  for (const char* word : {"4", "5"}) {
    const auto out = cli({"swap-out", "maker"});
    ASSERT_EQ(out.status, 0) << out.err;
    EXPECT_EQ(gpu_of("maker").value("memory_swapped_bytes", 0ull), 40 * kMiB);
    EXPECT_EQ(b.ask(std::string("fill 0 ") + word), "did fill") << "it is there for others";
    ASSERT_EQ(cli({"swap-in", "maker"}).status, 0);
    EXPECT_EQ(a.ask(std::string("check 0 ") + word), "right");
    EXPECT_EQ(a.ask("check 1 7"), "right");
  }
}

TEST_F(Ipc, AHandleOfWhatIsAwayWaitsUntilItIsBack) {
  Peer a = maker(), b = peer("opener");
  ASSERT_EQ(cli({"swap-out", "maker"}).status, 0);
  EXPECT_EQ(gpu_of("maker").value("memory_swapped_bytes", 0ull), 70 * kMiB);
  ASSERT_TRUE(a.tell("export 0 0"));
  ASSERT_EQ(cli({"swap-in", "maker"}).status, 0);
  const std::string said = a.line();
  ASSERT_EQ(said.rfind("handle ", 0), 0u);
  expect_shared(a, b, said.substr(7));
}

TEST_F(Ipc, AKilledExportersMemoryLivesUntilItsOpenersCloseIt) {
  Peer b = peer("opener");
  EXPECT_EQ(b.ask("alloc 4096"), "did alloc 0");
  const std::size_t before = descriptors_of_monitor();
  std::string handle;
  {
    Peer a = maker();
    handle = a.handle(0);
    EXPECT_GE(descriptors_of_monitor(), before + 3) << "a descriptor for each chunk";
    ASSERT_TRUE(b.opens(handle, 1));
    a.kill();
    EXPECT_TRUE(eventually([&] { return job_named("maker").is_null(); }));
  }
  EXPECT_TRUE(eventually([&] { return descriptors_of_monitor() == before; }));
  EXPECT_EQ(b.ask("check 1 1"), "right");
  EXPECT_EQ(b.ask("fill 1 2"), "did fill");
  EXPECT_EQ(b.ask("check 1 2"), "right");
  EXPECT_EQ(b.ask("close 1"), "did close");
  EXPECT_EQ(b.ask("open " + handle), std::string("failed open") + kInvalidValue);
}

TEST_F(Ipc, WhatItsMakerFreesNobodyOpensAnyMore) {
  Peer a = maker(), b = peer("opener"), c = peer("late");
  const std::size_t before = descriptors_of_monitor();
  const std::string handle = a.handle(0);
  ASSERT_TRUE(b.opens(handle, 0));
  const std::uint64_t held = used("maker");
  EXPECT_EQ(a.ask("free 0"), "did free");
  EXPECT_EQ(descriptors_of_monitor(), before) << "at once: they would keep the memory";
  EXPECT_TRUE(eventually([&] { return used("maker") == held - 70; }));
  EXPECT_EQ(b.ask("check 0 1"), "right");
  EXPECT_EQ(c.ask("open " + handle), std::string("failed open") + kInvalidValue);
}

TEST_F(Ipc, AnotherMonitorIsToldWithTheNextHandle) {
  Peer a = maker(), b = peer("opener");
  const std::string handle = a.handle(0);
  ::kill(monitor_->pid(), SIGKILL);
  monitor_->finish(kLimit);
  EXPECT_TRUE(eventually(
      [&] { return a.ask("export 0 0") == std::string("failed export") + kNotSupported; }));
  EXPECT_EQ(a.ask("capable 0"), "capable 0");
  EXPECT_EQ(b.ask("open " + handle), std::string("failed open") + kNotSupported);
  monitor_.emplace(monitor());
  EXPECT_TRUE(eventually([&] { return a.handle(0) == handle; }));
  std::string opened;
  EXPECT_TRUE(eventually([&] {
    opened = b.ask("open " + handle);
    return opened.rfind("opened", 0) == 0;
  }));
  EXPECT_EQ(b.ask("check " + opened.substr(7, opened.rfind(' ') - 7) + " 1"), "right");
}

}  // namespace
}  // namespace switchyard::system_tests
