// Every --json listing against its schema in docs/reference, in as many states as have other keys.
#include "tests/system/schema.h"

#include "harness.h"
#include "switchyard/paths.h"
#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

using Schema = Release;

// What `switchyard WORDS --json` says, compared with its schema.
std::vector<std::string> faults(const Child::End& end, const std::string& schema) {
  const json listing = json::parse(end.out, nullptr, false);
  if (listing.is_discarded()) return {"no JSON: " + end.out + end.err};
  return differences(listing, read_schema(schema));
}

TEST(SchemaCheck, ADifferenceOfEachKindIsFound) {
  const json schema = {
      {"type", "object"},
      {"properties",
       {{"count", {{"type", {"integer", "null"}}, {"minimum", 0}}},
        {"word", {{"enum", {"a", "b"}}}},
        {"version", {{"const", 1}}},
        {"list", {{"type", "array"}, {"items", {{"type", "string"}}}}},
        {"map", {{"type", "object"}, {"additionalProperties", {{"type", "integer"}}}}}}},
      {"required", {"count"}},
      {"additionalProperties", false}};
  const json good = {
      {"count", nullptr}, {"word", "a"}, {"version", 1}, {"list", {"x"}}, {"map", {{"any", 1}}}};
  EXPECT_EQ(differences(good, schema), Words{});
  const auto with = [&](const char* key, const json& value) {
    json changed = good;
    changed[key] = value;
    return differences(changed, schema);
  };
  EXPECT_EQ(with("extra", 1), Words{".extra: the schema does not have this key"});
  EXPECT_EQ(with("count", "x"), Words{".count: \"x\" is not of type [\"integer\",\"null\"]"});
  EXPECT_EQ(with("count", -1), Words{".count: -1 is too small"});
  EXPECT_EQ(with("word", "c"), Words{".word: \"c\" is none of [\"a\",\"b\"]"});
  EXPECT_EQ(with("version", 2), Words{".version: 2 is not 1"});
  EXPECT_EQ(with("list", json::array({1})), Words{".list[0]: 1 is not of type \"string\""});
  EXPECT_EQ(with("map", json{{"any", "x"}}), Words{".map.any: \"x\" is not of type \"integer\""});
  EXPECT_EQ(differences(json::object(), schema), Words{"the listing: lacks \"count\""});
  EXPECT_EQ(differences(1, {{"maximum", 3}}),
            Words{"the listing: the schema has the keyword maximum, which nobody checks"});
}

TEST_F(Schema, ListingsWithoutAMonitor) {
  if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
  const Changes unnamed{{"SWITCHYARD_SOCKET", ""}, {"XDG_RUNTIME_DIR", in_folder("")}};
  auto elsewhere = monitor();
  auto child = loop({});
  for (const char* what : {"ps", "status", "stats", "top", "version"}) {
    EXPECT_EQ(faults(cli({what, "--json"}, unnamed), what), Words{}) << what;
  }
}

TEST_F(Schema, ListingsWithJobsInEachState) {
  begin({"--memory", "1GiB", "--limit", "90%", "--deadline", "10m", "--idle-release", "1h"});
  auto plain = loop({"--name", "plain", "--priority", "high"});
  for (const char* what : {"ps", "status", "version", "policy", "backend"}) {
    EXPECT_EQ(faults(cli({what, "--json"}), what), Words{}) << what;
  }
  EXPECT_EQ(faults(cli({"inspect", "lender"}), "inspect"), Words{});
  EXPECT_EQ(faults(cli({"why", "lender", "plain", "--json"}), "why"), Words{});
  const auto stats = cli({"stats", "plain", "--latency", "--interval", "100ms", "--json"});
  EXPECT_EQ(faults(stats, "stats"), Words{});
  EXPECT_TRUE(json::parse(stats.out)["jobs"][0]["latency"].is_object()) << stats.out;
  EXPECT_EQ(faults(cli({"top", "--json"}), "top"), Words{});
  const Words changes[] = {{"set", "lender", "--share", "2"},
                           {"pause", "lender", "--timeout", "60s"},
                           {"resume", "lender"},
                           {"swap-out", "lender"},
                           {"swap-in", "lender"},
                           {"pause", "lender", "--release"},
                           {"resume", "lender"}};
  for (Words words : changes) {
    words.emplace_back("--json");
    const auto end = cli(words);
    EXPECT_EQ(end.status, 0) << words[0] << " " << end.err;
    EXPECT_EQ(faults(end, "job"), Words{}) << words[0];
    EXPECT_EQ(faults(cli({"ps", "--json"}), "ps"), Words{}) << "after " << words[0];
    EXPECT_EQ(faults(cli({"why", "lender", "--json"}), "why"), Words{}) << "after " << words[0];
  }
}

TEST_F(Schema, AnUnmanagedProcessIsListed) {
  auto daemon = monitor({"--persist"});
  auto foreign = start({built("tests/jobs/job_loop")});
  ASSERT_TRUE(eventually([this] { return !listing("ps")["outside"].empty(); }));
  EXPECT_EQ(faults(cli({"ps", "--json"}), "ps"), Words{});
}

TEST_F(Schema, DoctorAndStop) {
  EXPECT_EQ(faults(cli({"doctor", "--no-probe", "--json"}), "doctor"), Words{});
  EXPECT_EQ(faults(cli({"doctor", "--no-probe", "--json"}, {{"FAKECUDA_DEVICES", "0"}}), "doctor"),
            Words{});
  EXPECT_EQ(faults(cli({"stop", "--json"}), "stop"), Words{});
}

}  // namespace
}  // namespace switchyard::system_tests
