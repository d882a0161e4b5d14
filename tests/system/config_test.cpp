// The file of settings with a real monitor: checked, shown, read anew, and what it refuses.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "switchyard/paths.h"
#include "switchyard/status.h"
#include "tests/system/schema.h"
#include "users_scene.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

// Appears as a whole, since a monitor may read it at any moment.
void write_settings(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  ASSERT_EQ(::chmod((path + ".new").c_str(), 0644), 0);
  fs::rename(path + ".new", path);
}

class Config : public Scene {
 protected:
  std::string file() const { return in_folder("switchyard.toml"); }
  void write(const std::string& text) const { write_settings(file(), text); }
  // The line of `config show` with that key.
  json setting(const std::string& key) {
    const auto end = cli({"config", "show", "--json"});
    const json all = json::parse(end.out, nullptr, false);
    if (!all.is_object()) return nullptr;
    for (const json& each : all["settings"]) {
      if (each["key"] == key) return each;
    }
    return nullptr;
  }
  std::string events() { return cli({"events"}).out; }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(in_folder("m.log")).rdbuf();
    return text.str();
  }
  // Reads the file anew, and waits until the events say `what` once more.
  bool reload(const Child& daemon, const std::string& what) {
    const auto count = [&] {
      std::size_t found = 0;
      const std::string text = events();
      for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
      return found;
    };
    const std::size_t before = count();
    ::kill(daemon.pid(), SIGHUP);
    return eventually([&] { return count() > before; });
  }
};

TEST_F(Config, CheckNamesEachErrorWithItsLine) {
  write("[monitor]\npolcy = \"fair\"\n\n[caps]\nmemory = \"much\"\n");
  const auto bad = cli({"config", "check", file()});
  EXPECT_EQ(bad.status, kUsage);
  EXPECT_EQ(bad.out, "");
  EXPECT_EQ(
      bad.err.rfind(file() + ":2: unknown key 'polcy' in [monitor]; did you mean 'policy'?\n" +
                        file() + ":5: invalid value 'much' for caps.memory: expected ",
                    0),
      0u)
      << bad.err;
  write("[monitor]\npolicy = \"fairly\"\n[history]\ndays = 0\n");
  const auto values = cli({"config", "check", file()});
  EXPECT_EQ(values.status, kUsage);
  EXPECT_TRUE(says(values, file() + ":2: invalid value 'fairly' for monitor.policy: expected"))
      << values.err;
  EXPECT_TRUE(says(values, file() + ":4: invalid value '0' for history.days: expected"))
      << "all are named at once: " << values.err;
  write("[monitor]\npolicy = \"fair\"\n");
  const auto good = cli({"config", "check", file()}, {{"SWITCHYARD_BACKEND", "nonsense"}});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(good.out, file() + " has no errors\n");
  EXPECT_EQ(cli({"config", "check", in_folder("none")}).status, kUsage);
  EXPECT_EQ(cli({"config", "look"}).status, kUsage);
  EXPECT_EQ(cli({"config", "show", file()}).status, kUsage);
}

TEST_F(Config, AMonitorWithABadFileDoesNotStart) {
  write("[monitor]\npolicy = \"fair\"\nminimum = \"60%\"\n");
  const auto end = run({built("switchyardd"), "--config", file()});
  EXPECT_EQ(end.status, kUsage);
  EXPECT_TRUE(says(end, "switchyardd: " + file() + ":3: invalid value '60%' for monitor.minimum"))
      << end.err;
}

TEST_F(Config, ShowSaysWhereEachValueComesFrom) {
  write("[monitor]\npolicy = \"fair\"\nminimum = \"3%\"\n[user.0.caps]\nmemory = \"2GiB\"\n");
  auto daemon = monitor({"--config", file(), "--minimum", "5%"}, {{"SWITCHYARD_BACKEND", "gate"}});
  EXPECT_EQ(setting("monitor.policy")["value"], "fair");
  EXPECT_EQ(setting("monitor.policy")["from"], file() + ":2");
  EXPECT_EQ(setting("monitor.minimum")["value"], "5%") << "an option wins over the file";
  EXPECT_EQ(setting("monitor.minimum")["from"], "--minimum");
  EXPECT_EQ(setting("monitor.backend")["from"], "SWITCHYARD_BACKEND");
  EXPECT_EQ(setting("history.days")["from"], "default");
  EXPECT_EQ(setting("user.0.caps.memory")["from"], file() + ":5");
  ASSERT_EQ(cli({"policy", "exclusive"}).status, 0);
  EXPECT_EQ(setting("monitor.policy")["value"], "exclusive");
  EXPECT_EQ(setting("monitor.policy")["from"], "`switchyard policy`");
  const auto all = cli({"config", "show", "--json"});
  EXPECT_EQ(differences(json::parse(all.out, nullptr, false), read_schema("config")), Words{});
  const auto table = cli({"config", "show"});
  EXPECT_NE(table.out.find("user.0.caps.memory"), std::string::npos) << table.out;
}

TEST_F(Config, AReloadIsInForceAndAnEvent) {
  write("[monitor]\npolicy = \"fair\"\n[history]\ndays = 90\n");
  auto daemon = monitor({"--config", file()});
  write("[monitor]\npolicy = \"exclusive\"\njobs-per-user = 3\n[history]\ndays = 30\n");
  ASSERT_TRUE(reload(daemon, "is read anew")) << log();
  EXPECT_NE(cli({"policy"}).out.find("exclusive"), std::string::npos);
  EXPECT_NE(events().find(file() + " is read anew: monitor.policy fair -> exclusive; "
                                   "monitor.jobs-per-user 256 -> 3; with the next start: "
                                   "history.days 90 -> 30"),
            std::string::npos)
      << events();
  EXPECT_NE(log().find("is read anew"), std::string::npos);
  EXPECT_EQ(setting("history.days")["value"], "90");
  EXPECT_EQ(setting("history.days")["next_start"], "30");
  ASSERT_TRUE(reload(daemon, "is read anew: nothing changed"));
}

TEST_F(Config, AReloadWithAnErrorKeepsWhatThereIs) {
  write("[monitor]\npolicy = \"fair\"\n");
  auto daemon = monitor({"--config", file()});
  write("[monitor]\npolicy = \"exclusive\"\nminimun = \"3%\"\n");
  ASSERT_TRUE(reload(daemon, "is not read anew")) << log();
  EXPECT_NE(cli({"policy"}).out.find("fair"), std::string::npos);
  const std::string why =
      file() + ":3: unknown key 'minimun' in [monitor]; did you mean 'minimum'?";
  EXPECT_NE(events().find(why), std::string::npos) << events();
  EXPECT_NE(log().find(why), std::string::npos) << log();
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
  ASSERT_TRUE(reload(daemon, "can be written by others"));
  fs::remove(file());
  ASSERT_TRUE(reload(daemon, "there is no file"));
  EXPECT_NE(cli({"policy"}).out.find("fair"), std::string::npos);
  write("[monitor]\npolicy = \"exclusive\"\n");
  ASSERT_TRUE(reload(daemon, "is read anew"));
  EXPECT_NE(cli({"policy"}).out.find("exclusive"), std::string::npos);
}

TEST_F(Config, AChoiceOutlivesAChangedFileAndTheNextStart) {
  write("[monitor]\nslice = \"10ms\"\n");
  std::optional<Child> daemon(monitor({"--config", file()}));
  ASSERT_EQ(cli({"policy", "--minimum", "3%"}).status, 0);
  write("[monitor]\nslice = \"4ms\"\n");
  ASSERT_TRUE(reload(*daemon, "is read anew: monitor.slice 10ms -> 4ms"));
  ASSERT_EQ(cli({"stop"}).status, 0);
  daemon.emplace(monitor({"--config", file()}));
  EXPECT_EQ(setting("monitor.minimum")["value"], "3%");
  EXPECT_EQ(setting("monitor.slice")["value"], "4ms");
}

// Each key of the program has a line in the file of the package, and each line is good.
TEST_F(Config, TheFileOfThePackageHasEachKey) {
  std::ifstream packaged(SWITCHYARD_PACKAGED);
  std::string text, section;
  std::set<std::string> keys;
  for (std::string line; std::getline(packaged, line);) {
    // A '#' before a key takes it away; one before a blank is prose.
    const bool off = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    if (off) line.erase(0, 1);
    text += line + "\n";
    if (line[0] == '[') section = line.substr(1, line.find(']') - 1);
    if (off && line.find(" = ") != std::string::npos) {
      keys.insert(section + "." + line.substr(0, line.find(' ')));
    }
  }
  write(text);
  const auto good = cli({"config", "check", file()});
  EXPECT_EQ(good.status, 0) << good.err;
  auto daemon = monitor();
  const json all = json::parse(cli({"config", "show", "--json"}).out)["settings"];
  for (const json& each : all) {
    const std::string key = each["key"];
    // A system monitor persists anyway, and does not end when it idles.
    if (key == "monitor.persist" || key == "monitor.idle-exit") continue;
    EXPECT_EQ(keys.count(key), 1u) << key;
  }
  EXPECT_FALSE(keys.empty());
}

// The page of the guide: its file is a good one, and each command line of it runs. The test plays
// root and systemd.
TEST_F(Config, TheGuideRuns) {
  fs::create_directory(in_folder("bin"));
  const std::string systemctl = in_folder("bin/systemctl");
  write("[monitor]\npolicy = \"fair\"\n");
  auto daemon = monitor({"--config", file()});
  std::ofstream(systemctl) << "#!/bin/sh\nkill -HUP " << daemon.pid() << "\n";
  fs::permissions(systemctl, fs::perms::owner_all);
  std::ifstream page(SWITCHYARD_GUIDE);
  std::string fence, toml;
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) == 0) {
      if (line == "```" && fence == "toml") write(toml);
      fence = line == "```" && !fence.empty() ? "" : line == "```" ? "commands" : line.substr(3);
      continue;
    }
    if (fence == "toml") toml += line + "\n";
    if (fence != "commands") continue;
    for (const std::string word : {"sudo ", "/etc/switchyard/"}) {
      const std::string instead = word == "sudo " ? "" : in_folder("");
      for (std::size_t at; (at = line.find(word)) != std::string::npos;) {
        line.replace(at, word.size(), instead);
      }
    }
    if (line == "switchyard config check") line += " " + file();
    const auto end =
        run({"/bin/sh", "-c", "cd " + in_folder("") + " && " + line},
            {{"PATH", in_folder("bin") + ":" + fs::path(built("x")).parent_path().string() + ":" +
                          ::getenv("PATH")}});
    EXPECT_EQ(end.status, 0) << line << ": " << end.err;
    ++commands;
  }
  EXPECT_GT(commands, 5);
  EXPECT_NE(toml, "");
  EXPECT_TRUE(eventually([&] {
    return events().find("is read anew: container.\"*\".caps.memory unset -> 20GiB") !=
           std::string::npos;
  })) << events();
}

TEST_F(Config, WithoutAFileTheMonitorOutlivesTheTerminal) {
  auto daemon = monitor();
  ::kill(daemon.pid(), SIGHUP);
  EXPECT_EQ(cli({"status"}).status, 0);
  EXPECT_EQ(monitor_pid(), daemon.pid());
}

// A user's own monitor, with caps for that user.
class ConfigCaps : public UsersScene {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play another user";
    if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
    UsersScene::SetUp();
    fs::copy_file(built("tests/jobs/job_alloc"), in_folder("lib/job_alloc"));
  }
  void TearDown() override {
    if (!IsSkipped()) Scene::TearDown();
  }
  std::string file() const { return in_folder("victim/switchyard.toml"); }
  void write(const std::string& text) const { write_settings(file(), text); }
  Child::End switchyard(Words words) {
    words.insert(words.begin(), in_folder("lib/switchyard"));
    return as_user(words);
  }
  Child begin() {
    Child daemon = start_as_user({in_folder("lib/switchyardd"), "--persist", "--log",
                                  "debug:" + in_folder("victim/m.log"), "--config", file()});
    EXPECT_TRUE(eventually([&] { return switchyard({"policy"}).status == 0; }));
    return daemon;
  }
  bool reload(const Child& daemon, const std::string& text, const std::string& what) {
    write(text);
    ::kill(daemon.pid(), SIGHUP);
    return eventually([&] { return switchyard({"events"}).out.find(what) != std::string::npos; });
  }
};

TEST_F(ConfigCaps, ARefusalNamesTheRuleAndItsLine) {
  write("[caps]\nshare = 4\n\n[user.47111.caps]\npriority = \"normal\"\nmemory = \"2GiB\"\n");
  auto daemon = begin();
  const auto refused = [&](const Words& options) {
    Words words{"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "true"});
    const auto end = switchyard(words);
    EXPECT_EQ(end.status, 125) << end.err;
    return end.err;
  };
  EXPECT_NE(refused({"--priority", "high"})
                .find("priority high is more than root allows here (normal): caps.priority of user "
                      "'47111', " +
                      file() + ":5"),
            std::string::npos);
  EXPECT_NE(refused({"--memory", "3GiB"}).find("caps.memory of user '47111', " + file() + ":6"),
            std::string::npos);
  EXPECT_NE(refused({"--share", "5"}).find("caps.share, " + file() + ":2"), std::string::npos);
  EXPECT_EQ(switchyard({"run", "--priority", "normal", "--", "true"}).status, 0);
}

TEST_F(ConfigCaps, AReloadRaisesAndLowersTheMemoryOfARunningJob) {
  const auto cap = [](const std::string& size) { return "[caps]\nmemory = \"" + size + "\"\n"; };
  write(cap("2GiB"));
  auto daemon = begin();
  auto job = start_as_user({in_folder("lib/switchyard"), "run", "--name", "a", "--require", "--",
                            in_folder("lib/job_alloc"), "alloc:1024", "wait", "alloc:512", "wait",
                            "alloc:512", "info"});
  EXPECT_EQ(line_of(job), "alloc 0");
  EXPECT_EQ(line_of(job), "waiting");
  ASSERT_TRUE(reload(daemon, cap("1GiB"), "caps.memory 2GiB -> 1GiB"));
  const json job_now = json::parse(switchyard({"ps", "--json"}).out)["jobs"][0];
  EXPECT_GE(job_now["gpus"][0]["memory_used_bytes"].get<std::uint64_t>(), 1024 * kMiB)
      << "it keeps what it has";
  ASSERT_TRUE(job.write_line("go"));
  EXPECT_EQ(line_of(job), "alloc 2") << "but gets no more";
  EXPECT_EQ(line_of(job), "waiting");
  const std::string events = switchyard({"events"}).out;
  EXPECT_NE(events.find("root allows 1.00 GiB here: caps.memory, " + file() + ":2"),
            std::string::npos)
      << events;
  ASSERT_TRUE(reload(daemon, cap("4GiB"), "caps.memory 1GiB -> 4GiB"));
  ASSERT_TRUE(job.write_line("go"));
  EXPECT_EQ(line_of(job), "alloc 0");
  EXPECT_EQ(job.finish(kLimit).status, 0);
}

TEST_F(ConfigCaps, DefaultsHoldForJobsThatAskForNothing) {
  write("[defaults]\npriority = \"low\"\nmemory = \"1GiB\"\n[user.47111.defaults]\nshare = 3\n");
  auto daemon = begin();
  auto job = start_as_user({in_folder("lib/switchyard"), "run", "--name", "a", "--require", "--",
                            in_folder("lib/job_alloc"), "alloc:600", "wait", "alloc:600"});
  EXPECT_EQ(line_of(job), "alloc 0");
  EXPECT_EQ(line_of(job), "waiting");
  const json listed = json::parse(switchyard({"ps", "--json"}).out)["jobs"][0];
  EXPECT_EQ(listed["priority"], "low");
  EXPECT_EQ(listed["share_weight"], 3);
  ASSERT_TRUE(job.write_line("go"));
  EXPECT_EQ(line_of(job), "alloc 2") << "a default quota is a quota";
}

}  // namespace
}  // namespace switchyard::system_tests
