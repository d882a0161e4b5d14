// Every way to ask for something impossible, and the exit code that says so.
#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

using BadInput = Scene;

// One line, and nothing on stdout.
void expect_one_line(const Child::End& end) {
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  EXPECT_EQ(end.out, "");
}

TEST_F(BadInput, RunRefusesAValueThatMakesNoSenseWith2TheValueAndTheForms) {
  const struct {
    Words options;
    std::string value, form;
  } cases[] = {
      {{"--memory", "20 bananas"}, "20 bananas", "20GiB"},
      {{"--memory", "0"}, "'0'", "20GiB"},
      {{"--memory", "-4GiB"}, "-4GiB", "20GiB"},
      {{"--share", "0"}, "'0'", "0.01 to 1000"},
      {{"--share", "much"}, "much", "0.01 to 1000"},
      {{"--limit", "0%"}, "'0%'", "1% to 100%"},
      {{"--limit", "30"}, "'30'", "30% or 0.3"},
      {{"--deadline", "tomorrow"}, "tomorrow", "10m"},
      {{"--priority", "urgent"}, "urgent", "high, normal or low"},
      {{"--on-oom", "swap"}, "swap", "fail or wait"},
      {{"--oom-timeout", "a while"}, "a while", "300s"},
      {{"--name", "two words"}, "two words", "letters"},
      {{"--swappable=maybe"}, "--swappable cannot be 'maybe'", "yes or no"},
      {{"--oversubscribe=1"}, "--oversubscribe cannot be '1'", "yes or no"},
  };
  for (const auto& bad : cases) {
    Words words{"run"};
    words.insert(words.end(), bad.options.begin(), bad.options.end());
    words.insert(words.end(), {"--", "touch", in_folder("started")});
    const auto end = cli(words);
    EXPECT_EQ(end.status, 2) << bad.value;
    EXPECT_TRUE(says(end, bad.value) && says(end, bad.form)) << end.err;
    expect_one_line(end);
  }
  EXPECT_NE(::access(in_folder("started").c_str(), F_OK), 0) << "a refused job was started";
  EXPECT_NE(::access(socket().c_str(), F_OK), 0) << "a monitor was started for nothing";
}

TEST_F(BadInput, ABadVariableIsRefusedLikeABadOption) {
  const auto end = cli({"run", "--", "true"}, {{"SWITCHYARD_MEMORY", "lots"}});
  EXPECT_EQ(end.status, 2);
  EXPECT_TRUE(says(end, "SWITCHYARD_MEMORY") && says(end, "lots")) << end.err;
}

TEST_F(BadInput, RunWithoutACommandEnds2) {
  EXPECT_EQ(cli({"run"}).status, 2);
  EXPECT_EQ(cli({"run", "--priority", "low", "--"}).status, 2);
}

TEST_F(BadInput, RunOfAMissingCommandEnds127AndOfANonExecutableOne126) {
  EXPECT_EQ(cli({"run", "--", "no-such-program-here"}).status, 127);
  EXPECT_EQ(cli({"run", "--", "/no/such/program"}).status, 127);
  EXPECT_EQ(cli({"run", "--", "/etc/passwd"}).status, 126);
  EXPECT_EQ(cli({"run", "--", "/tmp"}).status, 126);
  std::ofstream(in_folder("script")) << "#!/no/such/interpreter\n";
  ::chmod(in_folder("script").c_str(), 0755);
  EXPECT_EQ(cli({"run", "--", in_folder("script")}).status, 126);
}

TEST_F(BadInput, AnUnknownOptionOrSubcommandEnds2) {
  EXPECT_EQ(cli({"run", "--colour", "red", "--", "true"}).status, 2);
  EXPECT_EQ(cli({"ps", "--yaml"}).status, 2);
  EXPECT_EQ(cli({"juggle"}).status, 2);
}

TEST_F(BadInput, AnUnknownCommandIsNamedWithWhatWasMeant) {
  const auto near = cli({"statuss"});
  EXPECT_EQ(near.status, 2);
  EXPECT_TRUE(says(near, "unknown command 'statuss'; did you mean 'status'?")) << near.err;
  const auto far = cli({"juggle", "--name", "x"});
  EXPECT_TRUE(says(far, "unknown command 'juggle'; see `switchyard --help`")) << far.err;
  expect_one_line(far);
}

TEST_F(BadInput, AnErrorOfASubcommandPointsToItsHelpAndKeepsTheOrderOfTheWords) {
  const auto extras = cli({"ps", "--name", "t"});
  EXPECT_TRUE(says(extras, "unknown option '--name'; see `switchyard ps --help`")) << extras.err;
  const auto missing = cli({"set"});
  EXPECT_TRUE(says(missing, "see `switchyard set --help`")) << missing.err;
  const auto fixed = cli({"set", "train", "--swappable"});
  EXPECT_EQ(fixed.status, 2);
  EXPECT_TRUE(says(fixed, "--swappable is fixed when the job starts: see `switchyard run --help`"))
      << fixed.err;
}

TEST_F(BadInput, AControlCharacterInAnArgumentIsNotEchoed) {
  const auto end = cli({"run", "--name", "a\x1b[31m\nb", "--", "true"});
  EXPECT_EQ(end.status, 2);
  EXPECT_TRUE(says(end, "a?[31m?b")) << end.err;
  expect_one_line(end);
}

TEST_F(BadInput, OutputThatCannotBeWrittenEnds1AndAWatchEndsWithIt) {
  const Child owner = monitor();
  for (const char* words :
       {"version", "--help", "ps --json", "stats --watch", "stats --watch --json"}) {
    const auto end = run({"sh", "-c", "exec " + built("switchyard") + " " + words + " >/dev/full"});
    EXPECT_EQ(end.status, 1) << words;
    EXPECT_TRUE(says(end, "cannot write to stdout (No space left on device)")) << end.err;
  }
}

TEST_F(BadInput, WhatNeedsAMonitorEnds3WithoutOne) {
  for (const char* what : {"backend", "policy"}) {
    const auto end = cli({what});
    EXPECT_EQ(end.status, 3) << what;
    EXPECT_TRUE(says(end, socket())) << end.err;
    expect_one_line(end);
  }
  EXPECT_EQ(cli({"set", "train", "--share", "2"}).status, 3);
  EXPECT_EQ(cli({"version"}).status, 0);
}

TEST_F(BadInput, SetOfAnUnknownJobEnds4OfABadValue2AndOfNothing2) {
  auto daemon = monitor();
  const auto unknown = cli({"set", "nobody", "--share", "2"});
  EXPECT_EQ(unknown.status, 4);
  EXPECT_TRUE(says(unknown, "nobody")) << unknown.err;
  EXPECT_EQ(cli({"set", "nobody", "--share", "zero"}).status, 2);
  EXPECT_EQ(cli({"set", "nobody"}).status, 2);
  EXPECT_EQ(cli({"set"}).status, 2);
  EXPECT_EQ(cli({"backend", "magic"}).status, 2);
  EXPECT_EQ(cli({"policy", "chance"}).status, 2);
  EXPECT_EQ(cli({"policy", "--minimum", "60%"}).status, 2);
  EXPECT_EQ(run({built("switchyardd"), "--policy", "chance"}).status, 2);
  for (const char* variable : {"SWITCHYARD_BACKEND", "SWITCHYARD_MEANS"}) {
    const auto end = run({built("switchyardd")}, {{variable, "magic"}});
    EXPECT_EQ(end.status, 2);
    EXPECT_TRUE(says(end, variable) && says(end, "auto, slice, gate or none")) << end.err;
  }
}

TEST_F(BadInput, TheMonitorNamesItselfAndWhatIsWrongInOneLine) {
  const struct {
    Words words;
    const char* said;
  } cases[] = {
      {{"--bogus"}, "unexpected argument '--bogus'; see `switchyardd --help`"},
      {{"--policy"}, "; see `switchyardd --help`"},
      {{"--allow-high", "abc"}, "invalid value 'abc' for --allow-high: expected user ids"},
      {{"--allow-high", "1000,10x"}, "invalid value '10x' for --allow-high: expected user ids"},
      {{"--allow-high", "-1"}, "--allow-high"},
  };
  for (const auto& bad : cases) {
    Words words{built("switchyardd")};
    words.insert(words.end(), bad.words.begin(), bad.words.end());
    const auto end = run(words);
    EXPECT_EQ(end.status, 2) << bad.said;
    EXPECT_EQ(end.err.rfind("switchyardd: ", 0), 0u) << end.err;
    EXPECT_TRUE(says(end, bad.said)) << end.err;
    expect_one_line(end);
  }
}

TEST_F(BadInput, AnOptionWithAnEmptyValueEnds2AndIsNotThatWithoutTheOption) {
  auto daemon = monitor();
  auto child = loop({"--name", "train"});
  for (const Words& words :
       {Words{"pause", "train", "--timeout", ""}, Words{"stats", "--interval", ""},
        Words{"policy", "--minimum", ""}, Words{"policy", "--slice", "1ms"},
        Words{"policy", "--waits", ""}, Words{"migrate", "train", "--to", ""},
        Words{"set", "train", "--memory", ""}}) {
    const auto end = cli(words);
    EXPECT_EQ(end.status, 2) << words[0];
    expect_one_line(end);
  }
  EXPECT_NE(job_named("train")["state"], "paused");
}

TEST_F(BadInput, AQuotaOverWhatIsLeftEnds125AndNamesTheHolder) {
  auto holder = loop({"--name", "holder", "--memory", "3GiB"});
  const auto refused = cli({"run", "--memory", "2GiB", "--", "touch", in_folder("started")});
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says(refused, "holder") && says(refused, "3")) << refused.err;
  expect_one_line(refused);
  EXPECT_NE(::access(in_folder("started").c_str(), F_OK), 0);
  EXPECT_EQ(cli({"run", "--memory", "512MiB", "--", "true"}).status, 0);
}

TEST_F(BadInput, SetOverWhatIsLeftEnds6AndNamesTheHolder) {
  auto holder = loop({"--name", "holder", "--memory", "3GiB"});
  auto other = loop({"--name", "other", "--memory", "512MiB"});
  const auto refused = cli({"set", "other", "--memory", "2GiB"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_TRUE(says(refused, "holder")) << refused.err;
  EXPECT_EQ(job_named("other")["memory_quota_bytes"], 512 << 20);
}

TEST_F(BadInput, ANameInUseEnds125AndIsFreeAgainAfterTheJob) {
  {
    auto first = loop({"--name", "twin"});
    const auto refused = cli({"run", "--name", "twin", "--", "true"});
    EXPECT_EQ(refused.status, 125);
    EXPECT_TRUE(says(refused, "twin")) << refused.err;
  }
  EXPECT_TRUE(eventually([this] {
    return cli({"run", "--name", "twin", "--", "true"}).status == 0;
  }));
}

TEST_F(BadInput, NoGpuIsSaidInOneLineAndTheJobRunsUnmanaged) {
  const Changes none{{"FAKECUDA_DEVICES", "0"}};
  const auto end = cli({"run", "--", "sh", "-c", "exit 9"}, none);
  EXPECT_EQ(end.status, 9);
  EXPECT_TRUE(says(end, "no GPU") && says(end, "unmanaged")) << end.err;
  expect_one_line(end);
}

TEST_F(BadInput, WhereNothingIsManagedAPromiseEnds125UnlessBestEffortIsEnough) {
  const Changes none{{"FAKECUDA_DEVICES", "0"}};
  const Changes nowhere{{"SWITCHYARD_SOCKET", "/proc/nowhere/m.sock"}};
  for (const Words& promise :
       {Words{"--memory", "1GiB"}, Words{"--priority", "high"}, Words{"--limit", "30%"},
        Words{"--share", "2"}, Words{"--swappable"}, Words{"--idle-release", "10m"},
        Words{"--oversubscribe"}, Words{"--deadline", "10m"}, Words{"--on-oom", "wait"}}) {
    Words words{"run"};
    words.insert(words.end(), promise.begin(), promise.end());
    words.insert(words.end(), {"--", "touch", in_folder("started")});
    const auto refused = cli(words, promise[0] == "--limit" ? none : nowhere);
    EXPECT_EQ(refused.status, 125) << promise[0];
    EXPECT_TRUE(says(refused, promise[0]) && says(refused, "--best-effort")) << refused.err;
    expect_one_line(refused);
  }
  Changes by_variable = nowhere;
  by_variable.emplace_back("SWITCHYARD_MEMORY", "1GiB");
  const auto refused = cli({"run", "--", "touch", in_folder("started")}, by_variable);
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says(refused, "SWITCHYARD_MEMORY")) << refused.err;
  EXPECT_NE(::access(in_folder("started").c_str(), F_OK), 0);
  const auto anyway =
      cli({"run", "--memory", "1GiB", "--best-effort", "--", "sh", "-c", "exit 9"}, nowhere);
  EXPECT_EQ(anyway.status, 9);
  EXPECT_TRUE(says(anyway, "unmanaged")) << anyway.err;
  EXPECT_EQ(cli({"run", "--name", "a", "--", "sh", "-c", "exit 9"}, nowhere).status, 9)
      << "a name promises nothing";
  EXPECT_EQ(cli({"run", "--require", "--best-effort", "--", "true"}).status, 2);
}

TEST_F(BadInput, NoGpuUnderRequireEnds125) {
  const Changes none{{"FAKECUDA_DEVICES", "0"}};
  const auto end = cli({"run", "--require", "--", "touch", in_folder("started")}, none);
  EXPECT_EQ(end.status, 125);
  EXPECT_TRUE(says(end, "no GPU")) << end.err;
  expect_one_line(end);
  EXPECT_NE(::access(in_folder("started").c_str(), F_OK), 0);
}

TEST_F(BadInput, TheVariableThatRequiresAMonitorIsTheOption) {
  const Changes nowhere{{"SWITCHYARD_SOCKET", "/proc/nowhere/m.sock"}};
  const auto status = [&](const char* value, const Words& options, bool off = false) {
    Changes changes = nowhere;
    changes.emplace_back("SWITCHYARD_REQUIRE", value);
    if (off) changes.emplace_back("SWITCHYARD_DISABLE", "1");
    Words words{"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "sh", "-c", "exit 9"});
    const auto end = cli(words, changes);
    if (end.status == 125) {
      EXPECT_TRUE(says(end, options.empty() ? "SWITCHYARD_REQUIRE" : "--require")) << end.err;
      expect_one_line(end);
    }
    return end.status;
  };
  EXPECT_EQ(status("1", {}), 125);
  EXPECT_EQ(status("yes", {}), 125);
  EXPECT_EQ(status("0", {}), 9);
  EXPECT_EQ(status("1", {"--best-effort"}), 9) << "an option wins over its variable";
  EXPECT_EQ(status("1", {}, true), 9) << "SWITCHYARD_DISABLE wins over other variables";
  EXPECT_EQ(status("1", {"--require"}, true), 125);
}

TEST_F(BadInput, AMonitorThatCannotStartIsSaidAndTheJobRunsUnmanaged) {
  const Changes nowhere{{"SWITCHYARD_SOCKET", "/proc/nowhere/m.sock"}};
  const auto end = cli({"run", "--", "sh", "-c", "exit 9"}, nowhere);
  EXPECT_EQ(end.status, 9);
  EXPECT_TRUE(says(end, "/proc/nowhere")) << end.err;
  EXPECT_EQ(cli({"run", "--require", "--", "true"}, nowhere).status, 125);
}

TEST_F(BadInput, ASecondMonitorForTheSameGpuIsRefusedAndTheFirstNamed) {
  auto daemon = monitor();
  const auto second = run({built("switchyardd"), "--socket", in_folder("second.sock")});
  EXPECT_EQ(second.status, 6);
  EXPECT_TRUE(says(second, socket())) << second.err;
  EXPECT_NE(::access(in_folder("second.sock.lock").c_str(), F_OK), 0)
      << "one that is refused never was about to listen";
}

}  // namespace
}  // namespace switchyard::system_tests
