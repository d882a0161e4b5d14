// What /proc says of strangers, and their command lines.
#include "monitor/platform/process_about.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace switchyard::monitor {
namespace {

TEST(ProcessAbout, ACommandLineIsPrintableAndShort) {
  using namespace std::string_literals;
  EXPECT_EQ(command_text("python\0train.py\0\0"s), "python train.py");
  EXPECT_EQ(command_text("a\x1b[31m\0b\0"s), "a?[31m b");
  EXPECT_EQ(command_text(std::string(1000, 'x')).size(), 256u);
  EXPECT_EQ(command_text(""), "");
}

TEST(ProcessAbout, ThisProcessIsKnown) {
  const ProcessAbout own = about_process(::getpid());
  EXPECT_GT(own.started, 0u);
  EXPECT_EQ(own.started, process_started(::getpid()));
  EXPECT_EQ(own.uid, ::geteuid());
  EXPECT_FALSE(own.name.empty());
}

TEST(ProcessAbout, OfAProcessThatIsNotThereNothingIsKnown) {
  const ProcessAbout none = about_process(3'999'999);
  EXPECT_EQ(none.started, 0u);
  EXPECT_FALSE(none.uid);
}

CommandLines::Read read_one(CommandLines& lines) {
  for (;;) {
    if (auto read = lines.take()) return *read;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(CommandLines, AreReadOnAnotherThread) {
  CommandLines lines;
  EXPECT_FALSE(lines.take());
  lines.ask(::getpid(), process_started(::getpid()));
  const CommandLines::Read read = read_one(lines);
  EXPECT_EQ(read.pid, ::getpid());
  EXPECT_NE(read.text.find("monitor_test"), std::string::npos) << read.text;
  EXPECT_FALSE(lines.take());
}

TEST(CommandLines, OfAnotherProcessWithTheSameNumberAreNotTold) {
  CommandLines lines;
  lines.ask(::getpid(), process_started(::getpid()) + 1);
  EXPECT_EQ(read_one(lines).text, "");
}

TEST(CommandLines, OfMoreThanFitsTheRestStaysUnknown) {
  CommandLines lines;
  for (std::size_t i = 0; i < 2 * CommandLines::kMost; ++i) {
    lines.ask(::getpid(), process_started(::getpid()));
  }
  for (std::size_t i = 0; i < CommandLines::kMost; ++i) read_one(lines);
  EXPECT_FALSE(lines.take());
}

}  // namespace
}  // namespace switchyard::monitor
