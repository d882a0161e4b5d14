// What the command line says of words that it does not know.
#include "tools/base/command.h"

#include <gtest/gtest.h>

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
