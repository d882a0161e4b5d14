// Units, tables, and readers that no answer of a monitor can upset.
#include "tools/base/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "switchyard/printable.h"
#include "switchyard/standard_streams.h"
#include "switchyard/wrapped.h"
#include "tools/base/table.h"

namespace switchyard::tools {
namespace {

TEST(Output, BytesInHandyUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(3ULL << 29), "1.5 GiB");
  EXPECT_EQ(human_bytes(20ULL << 30), "20 GiB");
  EXPECT_EQ(human_bytes(~0ULL), "16777216 TiB");
}

TEST(Output, TimesInHandyUnits) {
  EXPECT_EQ(human_seconds(-1), "0 s");
  EXPECT_EQ(human_seconds(59.9), "59 s");
  EXPECT_EQ(human_seconds(61), "1 min 01 s");
  EXPECT_EQ(human_seconds(3700), "1 h 01 min");
  EXPECT_EQ(human_seconds(90000), "1 d 01 h");
  EXPECT_EQ(human_micros(0), "default");
  EXPECT_EQ(human_micros(20), "20 us");
  EXPECT_EQ(human_micros(2048), "2048 us");
  EXPECT_EQ(human_micros(40000), "40 ms");
}

TEST(Output, ReadersTakeTheFallbackForWhatIsMissingOrOfAnotherKind) {
  const nlohmann::json object = {{"text", "a"},  {"number", 5},   {"negative", -5},
                                 {"float", 2.5}, {"huge", 1e300}, {"null", nullptr},
                                 {"truth", true}};
  EXPECT_EQ(text_of(object, "text"), "a");
  EXPECT_EQ(text_of(object, "number"), "-");
  EXPECT_EQ(text_of(object, "missing", "x"), "x");
  EXPECT_EQ(number_of(object, "number"), 5U);
  EXPECT_EQ(number_of(object, "float"), 2U);
  EXPECT_EQ(number_of(object, "negative", 7), 7U);
  EXPECT_EQ(number_of(object, "huge", 7), 7U);
  EXPECT_EQ(number_of(object, "null", 7), 7U);
  EXPECT_TRUE(truth_of(object, "truth"));
  EXPECT_FALSE(truth_of(object, "number"));
  EXPECT_TRUE(list_of(object, "text").empty());
}

TEST(Output, AClosedStdoutCannotBeWrittenAndAnExecutedProgramFindsItClosed) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    fill_closed_streams();
    const bool fails = ::write(1, "x", 1) == -1 && errno == EBADF;
    const bool others = ::write(2, "x", 1) == 1 && ::fcntl(0, F_GETFD) == FD_CLOEXEC;
    ::_exit(fails && others && ::fcntl(1, F_GETFD) == FD_CLOEXEC ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"NAME"}, {"USED", Table::Align::kRight}, {"NOTE"}});
  table.add({"a", "1 B", ""});
  table.add({"longer", "1023 B", "µ"});
  table.add({"short"});
  EXPECT_EQ(table.render(),
            "NAME      USED  NOTE\n"
            "a          1 B\n"
            "longer  1023 B  µ\n"
            "short\n");
}

TEST(Output, ControlCharactersReachNoTerminal) {
  testing::internal::CaptureStderr();
  complain("no job 'a\x1b[31m\nb\x7f-\xc2\x9b' grün");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "switchyard: no job 'a?[31m?b?-?' grün\n");
  EXPECT_EQ(text_of({{"name", "a\x1b]0;x\x07"}}, "name"), "a?]0;x?");
  EXPECT_EQ(printable("\xc2\x80 \xc2\x9f \xc2\xa0 \xc3\x80 \xc2"), "? ? \xc2\xa0 \xc3\x80 \xc2");
}

TEST(Output, ALongMessageHasLinesForWhatAndWhyAndWhatToDo) {
  EXPECT_EQ(in_lines("switchyard: what; why"), "switchyard: what; why");
  const std::string long_word(90, 'x');
  EXPECT_EQ(in_lines("switchyard: not started; because of " + long_word + "; do this"),
            "switchyard: not started;\n  because of\n  " + long_word + ";\n  do this");
  const std::string longer(200, 'y');
  EXPECT_EQ(in_lines("switchyard: " + longer + " z"), "switchyard:\n  " + longer + "\n  z");
}

TEST(Wrapped, ProseIsFilledAndTablesHang) {
  const std::string words =
      "word word word word word word word word word word word word word word\n";
  const std::string text =
      wrapped("about\nUsage: x\n\n\n" + words + words + "\n  --name NAME                 " + words +
              "  --next\n  held (limit)   " + words + "                 " + words +
              "  switchyard run\n      " + words + "      " + words);
  EXPECT_EQ(text.find("about\nUsage: x\n\nword"), 0u) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kHelpColumns) << line;
  EXPECT_NE(text.find("\n" + std::string(30, ' ') + "word"), std::string::npos) << text;
  EXPECT_NE(text.find("\n" + std::string(17, ' ') + "word"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  switchyard run\n      word"), std::string::npos) << text;
}

TEST(Wrapped, ACommandStaysWhole) {
  const std::string command = "  switchyard " + std::string(40, 'a') + " " + std::string(40, 'b');
  EXPECT_EQ(wrapped(command + "\n"), command + "\n");
  const std::string word(100, 'x');
  EXPECT_EQ(wrapped(word + "\n"), word + "\n");
}

}  // namespace
}  // namespace switchyard::tools
