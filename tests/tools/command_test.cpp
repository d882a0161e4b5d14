// What the command line says of words that it does not know.
#include "tools/base/command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace switchyard::tools {
namespace {

// `switchyard try WORDS...`, whose options are --share and --json: its exit code and stderr.
struct Said {
  int code;
  std::string err, share;
};
Said tried(std::vector<std::string> words) {
  std::string share, name;
  bool json = false;
  CommandLine line("", "");
  line.add("try", "", "")
      .word("NAME", name, "")
      .option("--share", "WEIGHT", share, "")
      .flag("--json", json, "")
      .acts([] { return int{kOk}; });
  words.insert(words.begin(), "try");
  ::testing::internal::CaptureStderr();
  const int code = line.run(std::move(words));
  return {code, ::testing::internal::GetCapturedStderr(), share};
}

TEST(CommandWords, AnUnknownOptionIsComparedWithThoseThereAre) {
  const Said said = tried({"--shrae", "4"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_EQ(said.err,
            "switchyard: unknown option '--shrae'; did you mean '--share'?; see `switchyard try "
            "--help`\n");
  EXPECT_EQ(tried({"--shrae=4"}).err, said.err);
  EXPECT_EQ(tried({"--elsewhere"}).err,
            "switchyard: unknown option '--elsewhere'; see `switchyard try --help`\n");
}

TEST(CommandWords, AnOptionIsNoValueOfTheOneBeforeIt) {
  for (const char* value : {"--help", "--json", "--", "-h", "--anything"}) {
    const Said said = tried({"--share", value});
    EXPECT_EQ(said.code, kUsage) << value;
    EXPECT_NE(said.err.find(std::string("--share needs a value, and '") + value + "' looks like"),
              std::string::npos)
        << said.err;
  }
  EXPECT_EQ(tried({"--share=--help"}).share, "--help");
  EXPECT_EQ(tried({"--share", "-1"}).share, "-1") << "a bad number is for the option to refuse";
}

TEST(CommandWords, ASocketWhosePathIsTooLongIsABadValue) {
  const auto tried_at = [](const std::string& socket) {
    CommandLine line("", "");
    line.add("try", "", "").socket_option().acts([] { return int{kOk}; });
    ::testing::internal::CaptureStderr();
    const int code = line.run({"try", "--socket", socket});
    ::unsetenv("SWITCHYARD_SOCKET");
    return std::pair(code, ::testing::internal::GetCapturedStderr());
  };
  const auto [code, text] = tried_at("/" + std::string(149, 'x'));
  EXPECT_EQ(code, kUsage);
  EXPECT_NE(text.find("--socket: the path has 150 characters, and that of a socket has at most "
                      "107: choose a shorter one"),
            std::string::npos)
      << text;
  EXPECT_EQ(tried_at("/" + std::string(106, 'x')).first, kOk);
}

TEST(CommandWords, AnEmptyValueIsNotTheSameAsNone) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--share", ""}, {"--share", "", "name"}}) {
    const Said said = tried(words);
    EXPECT_EQ(said.code, kUsage);
    EXPECT_EQ(said.err,
              "switchyard: --share: the value is empty: give one, or leave the option out; see "
              "`switchyard try --help`\n");
  }
  EXPECT_EQ(tried({"name"}).code, kOk);
}

}  // namespace
}  // namespace switchyard::tools
