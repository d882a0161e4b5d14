// Quotas as programs meet them: by every door, by every kind of allocation, over all processes.
#include <unistd.h>

#include <sstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

class Quota : public Scene {
 protected:
  // Lines of `job_alloc STEPS` under a quota of 1 GiB.
  std::string alloc(Words steps, const std::string& program = "job_alloc",
                    const Changes& changes = {}) {
    steps.insert(steps.begin(), built("tests/jobs/" + program));
    const auto end = job({"--require", "--memory", "1GiB"}, steps, changes).finish(kLimit);
    EXPECT_EQ(end.status, 0) << end.err;
    return end.out;
  }

  void expect_no_memory_held() {
    EXPECT_TRUE(
        eventually([this] { return listing("status")["gpus"][0]["memory_used_bytes"] == 0; }));
  }
};

constexpr char kRefusedPastOneGiB[] = "alloc 0\nalloc 2\n";

TEST_F(Quota, HoldsByEveryDoor) {
  ::symlink(built("fakecuda/libcuda.so.1").c_str(), in_folder("libcuda.so").c_str());
  const Words steps{"alloc:512", "alloc:600"};
  const Changes also_here{{"LD_LIBRARY_PATH", built("fakecuda") + ":" + in_folder("")}};
  EXPECT_EQ(alloc(steps, "job_alloc_linked"), kRefusedPastOneGiB);
  for (const std::string& door : {std::string("soname"), std::string("so"), std::string("proc"),
                                  std::string("proc2"), built("fakecuda/libcuda.so.1")}) {
    Words all{"--door", door};
    all.insert(all.end(), steps.begin(), steps.end());
    EXPECT_EQ(alloc(all, "job_alloc", also_here), kRefusedPastOneGiB) << "door " << door;
  }
}

TEST_F(Quota, HoldsForEveryKindAndIsWholeAgainAfterTheFree) {
  for (const std::string kind : {"alloc", "async", "pitch", "managed", "vmm", "array"}) {
    const std::string out = alloc({kind + ":768", kind + ":512", "freeall", kind + ":768"});
    EXPECT_EQ(out, kind + " 0\n" + kind + " 2\nfreeall 0\n" + kind + " 0\n");
  }
}

TEST_F(Quota, IsNotOverdrawnByPiecesThatTakeMoreThanWasAsked) {
  // One piece in a page of 2 MiB, and three.
  for (const auto& [size, most] : {std::pair{"alloc:1025k", 60}, {"alloc:513k", 180}}) {
    Words steps{built("tests/jobs/job_alloc")};
    steps.insert(steps.end(), 300, size);
    const auto end = job({"--require", "--memory", "128MiB"}, steps).finish(kLimit);
    std::istringstream lines(end.out);
    int made = 0;
    for (std::string line; std::getline(lines, line);) made += line == "alloc 0" ? 1 : 0;
    EXPECT_LE(made, most) << size << ": the context takes 8 MiB of the quota";
    EXPECT_GE(made, most - 4) << size;
  }
}

TEST_F(Quota, WhatIsRefusedIsSaidWithItsRemedy) {
  const Words past_one{built("tests/jobs/job_alloc"), "alloc:600", "alloc:600"};
  const Changes log{{"SWITCHYARD_LOG", "warn"}};
  const std::string held = job({"--memory", "1GiB"}, past_one, log).finish(kLimit).err;
  EXPECT_NE(held.find("quota 1 GiB"), std::string::npos) << held;
  const Words past_all{built("tests/jobs/job_alloc"), "alloc:3000", "alloc:3000"};
  const std::string full = job({}, past_all, log).finish(kLimit).err;
  EXPECT_NE(full.find("no more is free"), std::string::npos) << full;
  EXPECT_EQ(full.find("quota"), std::string::npos) << full;
}

TEST_F(Quota, OfHostMemoryNothingIsCharged) {
  EXPECT_EQ(alloc({"host:2048", "alloc:900"}), "host 0\nalloc 0\n");
}

TEST_F(Quota, IsWhatTheProgramSees) {
  const std::string out = alloc({"total", "info", "alloc:512", "info"});
  EXPECT_EQ(value_of(out, "total"), 1L << 30);
  EXPECT_NE(out.find(" 1073741824\n"), std::string::npos) << out;
  const long at_first = value_of(out, "info");
  EXPECT_LT(at_first, 1L << 30) << "the context itself is charged";
  EXPECT_GT(at_first, 900L << 20);
  const long later = value_of(out.substr(out.find("alloc")), "info");
  EXPECT_EQ(at_first - later, 512L << 20);
}

TEST_F(Quota, IsOneAccountForAllProcessesOfAJob) {
  // The first process holds 600 MiB while the second asks for as much.
  const std::string program = built("tests/jobs/job_alloc");
  auto child = job({"--memory", "1GiB", "--name", "both"},
                   {"sh", "-c",
                    "mkfifo " + in_folder("go") + "; " + program + " alloc:600 wait < " +
                        in_folder("go") + " | (read a; read b; echo first $a $b; " + program +
                        " alloc:600 alloc:300; echo done) & exec 9> " + in_folder("go") +
                        "; read line; exec 9>&-; wait"});
  std::string line;
  for (const char* expected : {"first alloc 0 waiting", "alloc 2", "alloc 0", "done"}) {
    ASSERT_TRUE(child.read_line(line, kLimit));
    EXPECT_EQ(line, expected);
  }
  EXPECT_GE(job_named("both")["gpus"][0]["refusals"].get<int>() +
                static_cast<int>(job_named("both")["processes"].size()),
            1);
  EXPECT_EQ(child.finish(kLimit).status, 0);
  expect_no_memory_held();
}

TEST_F(Quota, OfAJobThatWasKilledComesBackWhole) {
  auto daemon = monitor();
  {
    auto child = job({"--memory", "3GiB"}, {built("tests/jobs/job_alloc"), "alloc:2500", "wait"});
    std::string line;
    ASSERT_TRUE(child.read_line(line, kLimit) && child.read_line(line, kLimit));
  }  // killed here
  EXPECT_TRUE(eventually([this] {
    const auto end =
        cli({"run", "--memory", "3GiB", "--", built("tests/jobs/job_alloc"), "alloc:2500"});
    return end.status == 0 && end.out == "alloc 0\n";
  }));
}

TEST_F(Quota, IsKeptFreeForTheJobThatReservedIt) {
  auto holder = loop({"--name", "holder", "--memory", "3GiB"});
  const auto other = cli({"run", "--", built("tests/jobs/job_alloc"), "alloc:2048", "alloc:512"});
  EXPECT_EQ(other.out, "alloc 2\nalloc 0\n") << other.err;
}

TEST_F(Quota, LoweredBelowUseRefusesNewAllocationsOnly) {
  auto child =
      job({"--name", "shrink", "--memory", "2GiB"},
          {built("tests/jobs/job_alloc"), "alloc:1500", "wait", "alloc:100", "free", "alloc:100"});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit) && child.read_line(line, kLimit));
  ASSERT_EQ(cli({"set", "shrink", "--memory", "1GiB"}).status, 0);
  child.write_line("go");
  EXPECT_EQ(child.finish(kLimit).out, "alloc 2\nfree 0\nalloc 0\n");
}

TEST_F(Quota, SetToNoneGivesTheReservationBack) {
  auto child = loop({"--name", "generous", "--memory", "3GiB"});
  ASSERT_EQ(cli({"set", "generous", "--memory", "none"}).status, 0);
  EXPECT_TRUE(job_named("generous")["memory_quota_bytes"].is_null());
  EXPECT_EQ(listing("status")["gpus"][0]["memory_reserved_bytes"], 0);
  EXPECT_EQ(cli({"run", "--memory", "3GiB", "--", "true"}).status, 0);
}

TEST_F(Quota, WithOnOomWaitAnAllocationWaitsForMemory) { play_allocation_that_waits(); }

}  // namespace
}  // namespace switchyard::system_tests
