// Which cap and which default holds for whom.
#include "monitor/config/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace switchyard::monitor::config {
namespace {

constexpr std::uint64_t kGiB = 1u << 30;
constexpr uid_t kAlice = 1000;
constexpr gid_t kStudents = 70, kStaff = 71;
const std::string kBox = "pid:[1]user:[2]/system.slice/docker-" + std::string(64, 'a') + ".scope";

Owner owner(uid_t uid, std::vector<gid_t> groups = {}, const std::string& container = "") {
  Owner out{uid, container};
  out.groups = std::move(groups);
  return out;
}

struct File {
  Rules rules;
  Caps base;
  Caps caps_of(const Owner& whose) const { return rules.caps_of(whose, base); }
};

// `text` without its names looked up: alice is 1000, students are 70, staff is 71.
File file(std::string_view text) {
  File out;
  Document document = parse_document(text, "f.toml");
  Texts texts;
  read_document(document, texts, out.rules);
  EXPECT_EQ(document.problems, std::vector<std::string>{});
  for (Rule& rule : out.rules.rules) {
    if (rule.name == "alice") rule.id = kAlice;
    if (rule.name == "students") rule.id = kStudents;
    if (rule.name == "staff") rule.id = kStaff;
  }
  if (const auto bytes = parse_bytes(texts[Setting::kCapMemory].text)) {
    out.base.memory_bytes = bytes;
    out.base.from.memory = "caps.memory, " + texts[Setting::kCapMemory].origin;
  }
  return out;
}

std::string memory_rule(const File& file, const Owner& whose) {
  return file.caps_of(whose).from.memory;
}

// The table in rules.h.
TEST(ConfigRules, TheMoreSpecificRuleCounts) {
  const File all = file(
      "[caps]\nmemory = \"8GiB\"\n"
      "[group.students.caps]\nmemory = \"4GiB\"\n"
      "[user.alice.caps]\nmemory = \"16GiB\"\n"
      "[container.\"*\".caps]\nmemory = \"2GiB\"\n"
      "[defaults]\npriority = \"normal\"\n[group.students.defaults]\npriority = \"low\"\n"
      "[user.alice.defaults]\npriority = \"high\"\n[container.\"*\".defaults]\npriority = "
      "\"low\"\n");
  struct Case {
    Owner whose;
    std::uint64_t memory;
    std::string rule, priority;
  };
  const Case cases[] = {
      {owner(7), 8 * kGiB, "caps.memory, f.toml:2", "normal"},
      {owner(7, {1, kStudents}), 4 * kGiB, "caps.memory of group 'students', f.toml:4", "low"},
      {owner(kAlice, {kStudents}), 16 * kGiB, "caps.memory of user 'alice', f.toml:6", "high"},
      {owner(kAlice, {kStudents}, kBox), 2 * kGiB, "caps.memory of container '*', f.toml:8", "low"},
      {owner(0, {}, kBox), 2 * kGiB, "caps.memory of container '*', f.toml:8", "low"},
  };
  for (const Case& each : cases) {
    const Caps caps = all.caps_of(each.whose);
    EXPECT_EQ(caps.memory_bytes, each.memory) << each.rule;
    EXPECT_EQ(caps.from.memory, each.rule);
    EXPECT_EQ(all.rules.defaults_of(each.whose).priority, each.priority) << each.rule;
  }
}

TEST(ConfigRules, EachKeyIsLookedUpByItself) {
  const File all = file(
      "[caps]\nmemory = \"8GiB\"\n[group.students.caps]\npriority = \"low\"\n"
      "[user.alice.caps]\nshare = 2\n");
  const Caps caps = all.caps_of(owner(kAlice, {kStudents}));
  EXPECT_EQ(caps.memory_bytes, 8 * kGiB);
  EXPECT_EQ(caps.priority, Priority::kLow);
  EXPECT_EQ(caps.share, 2);
}

TEST(ConfigRules, NoneLiftsACapOfALessSpecificRule) {
  const File all = file("[caps]\nmemory = \"8GiB\"\n[user.alice.caps]\nmemory = \"none\"\n");
  EXPECT_EQ(all.caps_of(owner(kAlice)).memory_bytes, std::nullopt);
  EXPECT_EQ(all.caps_of(owner(7)).memory_bytes, 8 * kGiB);
}

TEST(ConfigRules, OfTwoGroupsTheFirstInTheFileCounts) {
  // By name, staff would come first.
  const File all =
      file("[group.students.caps]\nmemory = \"4GiB\"\n[group.staff.caps]\nmemory = \"8GiB\"\n");
  const Owner both = owner(7, {kStaff, kStudents});
  EXPECT_EQ(all.caps_of(both).memory_bytes, 4 * kGiB);
  EXPECT_EQ(memory_rule(all, both), "caps.memory of group 'students', f.toml:2");
}

TEST(ConfigRules, TheCapOfAContainerNeverRaises) {
  const File all = file(
      "[caps]\nmemory = \"1GiB\"\n[user.alice.caps]\npriority = \"normal\"\nshare = 2\n"
      "[container.\"*\".caps]\nmemory = \"8GiB\"\npriority = \"high\"\nshare = \"none\"\n");
  const Caps caps = all.caps_of(owner(kAlice, {}, kBox));
  EXPECT_EQ(caps.memory_bytes, kGiB);
  EXPECT_EQ(caps.priority, Priority::kNormal);
  EXPECT_EQ(caps.share, 2);
}

TEST(ConfigRules, TheCapOfAContainerLowersAlsoWhoMayBeHigh) {
  File all = file("[container.\"*\".caps]\npriority = \"low\"\n");
  all.base.priority = Priority::kNormal;
  all.base.may_be_high = {kAlice};
  EXPECT_EQ(all.caps_of(owner(kAlice)).priority_of(kAlice), Priority::kHigh);
  EXPECT_EQ(all.caps_of(owner(kAlice, {}, kBox)).priority_of(kAlice), Priority::kLow);
}

TEST(ConfigRules, AContainerIsNamedByTheBeginningOfItsId) {
  EXPECT_TRUE(is_container("*", kBox));
  EXPECT_TRUE(is_container("*", "pid:[1]user:[2]")) << "namespaces alone are one, too";
  EXPECT_TRUE(is_container(std::string(12, 'a'), kBox));
  EXPECT_TRUE(is_container(std::string(64, 'a'), kBox));
  EXPECT_FALSE(is_container(std::string(11, 'a'), kBox));
  EXPECT_FALSE(is_container(std::string(11, 'a') + "b", kBox));
  EXPECT_FALSE(is_container("*", ""));
}

TEST(ConfigRules, AnUnknownNameConcernsNobody) {
  const File all = file("[user.nobodyhere.caps]\nmemory = \"1GiB\"\n");
  EXPECT_FALSE(all.caps_of(owner(kAlice)).memory_bytes);
  EXPECT_FALSE(all.caps_of(owner(0)).memory_bytes);
}

TEST(ConfigRules, ARefusalNamesTheRuleAndItsLine) {
  const File all =
      file("[group.students.caps]\npriority = \"normal\"\nshare = 2\nmemory = \"1GiB\"\n");
  const Owner student = owner(7, {kStudents});
  const Caps caps = all.caps_of(student);
  Knobs knobs;
  knobs.memory = MemoryQuota{2 * kGiB};
  EXPECT_EQ(caps.exceeded(student, knobs, 8 * kGiB),
            "memory of 2.00 GiB is more than root allows here (1.00 GiB): caps.memory of group "
            "'students', f.toml:4");
  knobs.share.weight = 3;
  EXPECT_EQ(caps.exceeded(student, knobs, 8 * kGiB),
            "share 3 is more than root allows here (2): caps.share of group 'students', f.toml:3");
  knobs.priority = Priority::kHigh;
  EXPECT_EQ(caps.exceeded(student, knobs, 8 * kGiB),
            "priority high is more than root allows here (normal): caps.priority of group "
            "'students', f.toml:2");
  EXPECT_EQ(caps.exceeded(owner(0), knobs, 8 * kGiB), "") << "the host's root";
}

TEST(ConfigRules, APartOfAGpuIsComparedByTheLargest) {
  const Owner alice = owner(7);
  const Caps caps = file("[caps]\nmemory = \"1GiB\"\n").caps_of(alice);
  JobCard card{};
  Knobs knobs;
  knobs.memory = MemoryQuota{0, 0.5};
  EXPECT_NE(caps.exceeded(alice, knobs, 8 * kGiB), "") << "4 GiB of the largest GPU";
  EXPECT_EQ(caps.exceeded(alice, knobs, kGiB), "");
  caps.lower(alice, knobs, card, 8 * kGiB);
  EXPECT_EQ(knobs.memory, MemoryQuota{*caps.memory_bytes});
}

}  // namespace
}  // namespace switchyard::monitor::config
