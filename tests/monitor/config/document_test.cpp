// The file of settings: its keys, its values, and what is said of others.
#include "monitor/config/document.h"

#include <gtest/gtest.h>

#include <random>

#include "monitor/config/rules.h"

namespace switchyard::monitor::config {
namespace {

using Lines = std::vector<std::string>;

struct Understood {
  Texts texts;
  Rules rules;
  Lines problems;
};

Understood understood(std::string_view text) {
  Understood out;
  Document document = parse_document(text, "f.toml");
  read_document(document, out.texts, out.rules);
  out.problems = document.problems;
  return out;
}

Lines problems(std::string_view text) { return understood(text).problems; }

TEST(ConfigDocument, AValueHasItsTextAndItsLine) {
  const Understood out = understood(
      "[monitor]\npolicy = \"fair\"\npersist = true\n\n[caps]\nshare = 4\n[history]\ndays = 30\n"
      "[defaults]\nshare = 0.5\n");
  EXPECT_EQ(out.problems, Lines{});
  EXPECT_EQ(out.texts[Setting::kPolicy].text, "fair");
  EXPECT_EQ(out.texts[Setting::kPolicy].origin, "f.toml:2");
  EXPECT_TRUE(out.texts[Setting::kPolicy].by_file);
  EXPECT_EQ(out.texts[Setting::kPersist].text, "yes");
  EXPECT_EQ(out.texts[Setting::kCapShare].text, "4");
  EXPECT_EQ(out.texts[Setting::kHistoryDays].origin, "f.toml:8");
  EXPECT_EQ(out.texts[Setting::kMetrics].origin, "") << "nobody said it";
  ASSERT_EQ(out.rules.rules.size(), 1u) << "[caps] are settings, too";
  EXPECT_EQ(out.rules.rules[0].defaults, (std::vector<Item>{{"share", "0.5", 10}}));
}

TEST(ConfigDocument, AnOptionWinsOverTheFile) {
  Texts texts;
  Rules rules;
  texts[Setting::kPolicy] = {"exclusive", "--policy"};
  Document document = parse_document("[monitor]\npolicy = \"fair\"\n", "f.toml");
  read_document(document, texts, rules);
  EXPECT_EQ(texts[Setting::kPolicy].text, "exclusive");
  EXPECT_EQ(texts[Setting::kPolicy].origin, "--policy");
}

TEST(ConfigDocument, AnUnknownKeyNamesTheNearestOne) {
  EXPECT_EQ(problems("[monitor]\npolici = \"fair\"\n"),
            Lines{"f.toml:2: unknown key 'polici' in [monitor]; did you mean 'policy'?"});
  EXPECT_EQ(problems("[histroy]\ndays = 3\nsize = 3\n"),
            Lines{"f.toml:1: unknown key 'histroy'; did you mean 'history'?"})
      << "once, not for each key below it";
  EXPECT_EQ(problems("[user.alice.cap]\nmemory = \"1GiB\"\n"),
            Lines{"f.toml:1: unknown key 'cap' in [user.alice]; did you mean 'caps'?"});
  EXPECT_EQ(problems("[group.students.caps]\n\nmemorry = \"1GiB\"\n"),
            Lines{"f.toml:3: unknown key 'memorry' in [group.students.caps]; did you mean "
                  "'memory'?"});
  EXPECT_EQ(problems("[caps]\nlimit = \"3%\"\n"),
            Lines{"f.toml:2: unknown key 'limit' in [caps]; there are priority, share and memory"})
      << "where none is near, all are named";
  EXPECT_EQ(problems("[defaults]\nname = \"x\"\n").size(), 1u) << "a name is one job's";
}

TEST(ConfigDocument, ABadValueNamesTheForms) {
  EXPECT_EQ(problems("[caps]\npriority = \"urgent\"\n"),
            Lines{"f.toml:2: invalid value 'urgent' for caps.priority: expected high, normal or "
                  "low"});
  const Lines memory = problems("[user.\"a b\".defaults]\nmemory = 10\n");
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].rfind("f.toml:2: invalid value '10' for user.\"a b\".defaults.memory: "
                            "expected a size such as",
                            0),
            0u)
      << memory[0];
  EXPECT_EQ(problems("[caps]\nmemory = [\"1GiB\"]\n"),
            Lines{"f.toml:2: caps.memory cannot be a list or a date: expected a text in quotes, a "
                  "number, true or false"});
  EXPECT_EQ(problems("[caps]\nmemory = \"\"\n"),
            Lines{"f.toml:2: the value of caps.memory is empty: leave it away"});
  EXPECT_EQ(problems("[container.deadbeef.caps]\nmemory = \"1GiB\"\n").size(), 1u);
  EXPECT_EQ(problems("[caps]\nshare = \"none\"\nmemory = \"none\"\n"), Lines{});
}

TEST(ConfigDocument, ATableIsNoValueAndAValueIsNoTable) {
  EXPECT_EQ(problems("[caps.memory]\nx = 1\n"),
            Lines{"f.toml:1: caps.memory is a table: expected a value, memory = ..."});
  EXPECT_EQ(problems("caps = 3\n"), Lines{"f.toml:1: caps is a value: expected a table, [caps]"});
  EXPECT_EQ(problems("[user]\nalice = 3\n"),
            Lines{"f.toml:2: user.alice is a value: expected a table, [user.alice]"});
}

TEST(ConfigDocument, EveryErrorIsListedInTheOrderOfTheFile) {
  const Lines all = problems("[monitor]\nwait = 1\n[caps]\nshare = 0\n[nothing]\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].rfind("f.toml:2:", 0), 0u);
  EXPECT_EQ(all[1].rfind("f.toml:4:", 0), 0u);
  EXPECT_EQ(all[2].rfind("f.toml:5:", 0), 0u);
}

TEST(ConfigDocument, WhatIsNoTomlIsAnErrorWithItsLine) {
  for (const char* text : {"[monitor\n", "[monitor]\npolicy =\n", "\npolicy = 'x' 'y'\n",
                           "a = 1\na = 2\n", "[a]\n[a]\n", "\xff\xfe = 1\n", "a = \"\x01\"\n"}) {
    const Lines all = problems(text);
    ASSERT_EQ(all.size(), 1u) << text;
    EXPECT_NE(all[0].find(": not valid TOML: "), std::string::npos) << all[0];
    EXPECT_EQ(all[0].find('\n'), std::string::npos) << "a message is one line";
  }
}

// Bytes at random, and a good file with bytes changed at random. There is always an answer, and
// each problem has the file and a line.
TEST(ConfigDocument, AnyBytesHaveAnAnswer) {
  const std::string good =
      "[monitor]\npolicy = \"fair\"\n[caps]\nmemory = \"40GiB\"\n[group.students.caps]\n"
      "share = 0.5\n[user.\"alice\".defaults]\npriority = \"low\"\n[container.\"*\".caps]\n"
      "memory = \"1GiB\"\n";
  std::mt19937 random(7);
  const auto below = [&random](std::size_t most) { return random() % most; };
  for (int round = 0; round < 2000; ++round) {
    std::string text = round % 2 == 0 ? good : std::string(below(200), '\0');
    for (std::size_t i = 0; i < (round % 2 == 0 ? 3 : text.size()); ++i) {
      const std::size_t at = round % 2 == 0 ? below(text.size()) : i;
      text[at] = static_cast<char>(below(256));
    }
    for (const std::string& each : problems(text)) {
      EXPECT_EQ(each.rfind("f.toml:", 0), 0u) << each;
      EXPECT_EQ(each.find('\n'), std::string::npos) << each;
    }
  }
}

TEST(ConfigDocument, DeepAndLongTextsHaveAnAnswer) {
  std::string deep = "a = ";
  for (int i = 0; i < 5000; ++i) deep += "[";
  EXPECT_FALSE(problems(deep).empty());
  std::string dotted = "a";
  for (int i = 0; i < 5000; ++i) dotted += ".a";
  EXPECT_FALSE(problems(dotted + " = 1").empty());
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  const Lines all = problems(many);
  EXPECT_FALSE(all.empty());
  EXPECT_LE(all.size(), 100u) << "nobody reads more";
}

}  // namespace
}  // namespace switchyard::monitor::config
