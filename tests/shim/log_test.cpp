#include "shim/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

namespace switchyard::shim {
namespace {

// The log is opened once in a process, so each test has a child that has not opened it.
class Log : public ::testing::Test {
 protected:
  Log() {
    char pattern[] = "/tmp/switchyard-log-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~Log() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/log"; }
  // What `act` answers in a process with a log at `path()`.
  int in_child(const std::function<int()>& act) const { return in_child("info:" + path(), act); }
  static int in_child(const std::string& log, const std::function<int()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SWITCHYARD_LOG", log.c_str(), 1);
      ::_exit(act());
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string written() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

// The number of the log's descriptor; -1: it isn't open.
int find_log(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == path) {
      return std::stoi(entry.path().filename());
    }
  }
  return -1;
}

bool is_empty(int file) { return ::lseek(file, 0, SEEK_END) == 0; }

// Makes a new file stderr.
int replace_stderr() {
  const int file = ::memfd_create("stderr", 0);
  return ::dup2(file, STDERR_FILENO) == STDERR_FILENO ? file : -1;
}

TEST_F(Log, HasTheLinesOfItsLevel) {
  EXPECT_EQ(in_child([] {
              log_line(Level::kInfo, "one %d", 1);
              log_line(Level::kDebug, "two");
              return 0;
            }),
            0);
  EXPECT_NE(written().find("info: one 1\n"), std::string::npos) << written();
  EXPECT_EQ(written().find("two"), std::string::npos) << written();
}

TEST_F(Log, ALevelThatIsNoneSilencesNothing) {
  for (const char* log : {"warning", "loud:/tmp/never", "/tmp/never"}) {
    EXPECT_EQ(in_child(log,
                       [&] {
                         const int file = replace_stderr();
                         log_line(Level::kWarn, "what must be known");
                         if (file < 0 || is_empty(file)) return 1;
                         return mistyped_level() == std::string(log) ? 0 : 2;
                       }),
              0)
        << log;
  }
  EXPECT_EQ(in_child([] { return mistyped_level() == nullptr ? 0 : 1; }), 0);
}

TEST_F(Log, IsNotWrittenIntoAFileThatTheProgramHasOpenedUnderItsNumber) {
  EXPECT_EQ(in_child([this] {
              log_line(Level::kInfo, "before");
              const int number = find_log(path());
              const int own = ::memfd_create("own", 0);
              if (number < 0 || own < 0 || ::dup2(own, number) != number) return 1;
              log_line(Level::kInfo, "after");
              return is_empty(own) ? 0 : 2;
            }),
            0);
  EXPECT_NE(written().find("before"), std::string::npos) << written();
}

// Two warnings, each into a file that has just become stderr. Whether they stand in the files.
std::pair<bool, bool> warn_twice() {
  const int first = replace_stderr();
  log_line(Level::kWarn, "one");
  const int next = replace_stderr();
  log_line(Level::kWarn, "two");
  return {!is_empty(first), !is_empty(next)};
}

// A program that closes stderr gets its number for its next file.
TEST_F(Log, WhatNobodyAskedForIsNotWrittenIntoAFileThatIsStderrOnlyByItsNumber) {
  EXPECT_EQ(in_child("", [] { return warn_twice() == std::pair{true, false} ? 0 : 1; }), 0);
}

TEST_F(Log, WhatWasAskedForFollowsStderr) {
  EXPECT_EQ(in_child("warn", [] { return warn_twice() == std::pair{true, true} ? 0 : 1; }), 0);
}

TEST_F(Log, TakesNoNumberThatProgramsUse) {
  EXPECT_EQ(in_child([this] {
              const int next = ::dup(0);
              ::close(next);
              log_line(Level::kInfo, "one");
              return find_log(path()) > next ? 0 : 1;
            }),
            0);
}

TEST_F(Log, AFileThatCannotBeOpenedSilencesNothingButWhatIsOff) {
  const std::string nowhere = folder_ + "/no/log";
  const auto says = [&](const std::string& level) {
    return in_child(level + ":" + nowhere, [&] {
      const int file = replace_stderr();
      log_line(Level::kWarn, "what must be known");
      const bool warned = !is_empty(file);
      log_line(Level::kInfo, "what need not");
      const auto size = ::lseek(file, 0, SEEK_END);
      for (int i = 0; i < 2; ++i) log_line(Level::kError, "what must be known, once");
      const bool failed = ::lseek(file, 0, SEEK_END) > size;
      if (unopened_log().path != nowhere || unopened_log().error != ENOENT) return 8;
      return (warned ? 1 : 0) + (failed ? 2 : 0);
    });
  };
  EXPECT_EQ(says("debug"), 3);
  EXPECT_EQ(says("warn"), 3);
  EXPECT_EQ(says("error"), 2);
  EXPECT_EQ(says("off"), 0);
}

TEST_F(Log, ChangesNoErrnoWhenItCannotBeOpened) {
  std::filesystem::create_directory(path());
  EXPECT_EQ(in_child([] {
              errno = 0;
              log_line(Level::kError, "one");
              return errno;
            }),
            0);
}

}  // namespace
}  // namespace switchyard::shim
