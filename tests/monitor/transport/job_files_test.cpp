// The files of Slurm's jobs for dcgm-exporter.
#include "monitor/transport/job_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

class SlurmFiles : public ::testing::Test {
 protected:
  SlurmFiles() {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    above = ::mkdtemp(name);
    folder = above + "/jobs";
  }
  ~SlurmFiles() override { std::filesystem::remove_all(above); }

  std::string text_of(unsigned gpu) const {
    std::ifstream file(folder + "/" + std::to_string(gpu));
    std::string out, line;
    while (std::getline(file, line)) out += line + ";";
    return file.is_open() ? out : "none";
  }
  bool becomes(unsigned gpu, const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    while (text_of(gpu) != text && std::chrono::steady_clock::now() < end) {
      io.run_for(milliseconds(20));
    }
    return text_of(gpu) == text;
  }

  std::string above, folder;
  asio::io_context io;
  Rig rig{2};
};

TEST_F(SlurmFiles, HaveTheNumbersOfTheJobsOnEachGpu) {
  std::filesystem::create_directory(folder);
  const Joined a = rig.runs({.job = "slurm-42"}), b = rig.runs({.job = "slurm-7"});
  const Joined other = rig.runs({.job = "other"});
  const JobFiles files(io, rig.monitor, folder);
  EXPECT_TRUE(becomes(0, "42;7;")) << text_of(0);
  EXPECT_TRUE(becomes(1, "")) << text_of(1);
  rig.dies(a);
  EXPECT_TRUE(becomes(0, "7;")) << text_of(0);
}

TEST_F(SlurmFiles, HaveNoNumbersOnceTheMonitorHasEnded) {
  std::filesystem::create_directory(folder);
  const Joined a = rig.runs({.job = "slurm-42"});
  {
    const JobFiles files(io, rig.monitor, folder);
    ASSERT_TRUE(becomes(0, "42;")) << text_of(0);
  }
  EXPECT_EQ(text_of(0), "");
}

TEST_F(SlurmFiles, HaveNoNumbersAtTheEndAlsoWhereOneOfThemCannotBeWritten) {
  std::filesystem::create_directories(folder + "/1");
  const Joined a = rig.runs({.job = "slurm-42"});
  {
    const JobFiles files(io, rig.monitor, folder);
    ASSERT_TRUE(becomes(0, "42;")) << text_of(0);
  }
  EXPECT_EQ(text_of(0), "");
}

// Two instances of one GPU have its index, and dcgm-exporter reads each number once.
TEST_F(SlurmFiles, OfInstancesOfOneGpuAreOneFile) {
  rig.monitor.gpus()[1].info.index = 0;
  const Joined both = rig.join({.job = "slurm-42"}, 1000, 2), one = rig.runs({.job = "slurm-7"});
  both.shim.open_context(0);
  both.shim.open_context(1);
  rig.pass(seconds(1));
  EXPECT_EQ(job_files_of(rig.monitor), (std::map<unsigned, std::string>{{0, "42\n7\n"}}));
}

TEST_F(SlurmFiles, ThatDidNotChangeAreNotWrittenAgain) {
  std::filesystem::create_directory(folder);
  const Joined a = rig.runs({.job = "slurm-42"});
  const JobFiles files(io, rig.monitor, folder);
  ASSERT_TRUE(becomes(0, "42;"));
  ASSERT_TRUE(becomes(1, ""));
  std::ofstream(folder + "/1") << "of somebody";
  rig.dies(a);
  EXPECT_TRUE(becomes(0, ""));
  EXPECT_EQ(text_of(1), "of somebody;");
}

TEST_F(SlurmFiles, ThatCannotBeWrittenAreToldOnceEachTime) {
  const LogLines log;
  const auto told = [&] { return log.count("writing the Slurm jobs"); };
  const Joined a = rig.runs({.job = "slurm-42"});
  const JobFiles files(io, rig.monitor, folder);
  io.run_for(milliseconds(1500));
  EXPECT_EQ(told(), 1u);
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(becomes(0, "42;"));
  io.run_for(milliseconds(100));
  std::filesystem::remove_all(folder);
  rig.dies(a);
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (told() < 2 && std::chrono::steady_clock::now() < end) io.run_for(milliseconds(20));
  EXPECT_EQ(told(), 2u);
}

TEST_F(SlurmFiles, ThatCouldNotBeWrittenAreWrittenLater) {
  const Joined a = rig.runs({.job = "slurm-42"});
  const JobFiles files(io, rig.monitor, folder);
  io.run_for(milliseconds(1500));
  std::filesystem::create_directory(folder);
  EXPECT_TRUE(becomes(0, "42;")) << text_of(0);
}

}  // namespace
}  // namespace switchyard::monitor::test
