// `run` prepares and execs: status, signals, streams and environment are the job's own.
#include <signal.h>

#include "harness.h"
#include "switchyard/status.h"

namespace switchyard::system_tests {
namespace {

using RunJob = Scene;

TEST_F(RunJob, TheStatusIsTheJobsOwn) {
  for (const int status : {0, 1, 3, 125, 255}) {
    EXPECT_EQ(cli({"run", "--", "sh", "-c", "exit " + std::to_string(status)}).status, status);
  }
}

TEST_F(RunJob, ASignalIs128PlusItsNumber) {
  // finish() itself tells a signal as 128+N, so a shell in between shows what a person sees.
  for (const int number : {SIGTERM, SIGKILL, SIGSEGV}) {
    const auto end = run(
        {"sh", "-c",
         built("switchyard") + " run -- sh -c 'kill -" + std::to_string(number) + " $$'; exit $?"});
    EXPECT_EQ(end.status, 128 + number);
  }
}

TEST_F(RunJob, ASignalToRunReachesTheJobForTheyAreOneProcess) {
  auto child =
      job({}, {"sh", "-c", "trap 'exit 42' TERM; echo trapped; while :; do sleep 0.01; done"});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  ::kill(child.pid(), SIGTERM);
  EXPECT_EQ(child.finish(kLimit).status, 42);
}

TEST_F(RunJob, InputAndOutputAreTheJobsOwnAndNothingIsAdded) {
  auto child = job({}, {"sh", "-c", "read word; echo $word; echo oops >&2"});
  child.write_line("hello");
  const auto end = child.finish(kLimit);
  EXPECT_EQ(end.out, "hello\n");
  EXPECT_EQ(end.err, "oops\n");
}

TEST_F(RunJob, TheMarkerMayBeLeftOut) {
  EXPECT_EQ(cli({"run", "--share", "2", "sh", "-c", "exit 4"}).status, 4);
}

TEST_F(RunJob, AKernelLoopCountsInPs) {
  auto child = loop({"--name", "count"});
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("count");
    return gpu.is_object() && gpu["launches"].get<long>() >= 5;
  }));
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(RunJob, OtherPreloadsStayAndANestedRunKeepsOneShim) {
  const std::string self = built("switchyard");
  const auto end = cli({"run", "--", self, "run", "--", "sh", "-c", "echo $LD_PRELOAD"},
                       {{"LD_PRELOAD", "libm.so.6"}});
  EXPECT_EQ(end.out, "libm.so.6:" + built("libswitchyard.so") + "\n") << end.err;
}

TEST_F(RunJob, BehindAnotherPreloadTheJobIsManagedAllTheSame) {
  for (const char* program : {"tests/jobs/job_loop", "tests/jobs/job_loop_linked"}) {
    auto child = job({"--name", "second"}, {built(program)}, {{"LD_PRELOAD", "libm.so.6"}});
    ASSERT_EQ(line_of(child), "ready");
    EXPECT_TRUE(eventually([&] {
      const json gpu = gpu_of("second");
      return gpu.is_object() && gpu["launches"].get<long>() >= 5;
    })) << program;
    EXPECT_EQ(child.finish(kLimit).status, 0);
    ASSERT_TRUE(eventually([&] { return job_named("second").is_null(); }));
  }
}

TEST_F(RunJob, AQuotaMayBeAPartOfTheGpu) {
  auto daemon = monitor();
  auto child = job({"--name", "part", "--memory", "25%"}, {loop_program()});
  ASSERT_EQ(line_of(child), "ready");
  EXPECT_TRUE(job_named("part")["memory_quota_bytes"].is_null());
  EXPECT_EQ(job_named("part")["memory_quota_ratio"], 0.25);
  EXPECT_EQ(gpu_of("part")["memory_quota_bytes"], 1 << 30);
  EXPECT_EQ(cli({"set", "part", "--memory", "80%"}).status, 0);
  EXPECT_GT(gpu_of("part")["memory_quota_bytes"].get<std::uint64_t>(), 3ull << 30);
  EXPECT_EQ(cli({"set", "part", "--memory", "0.5%"}).status, 2);
}

TEST_F(RunJob, ANestedRunBelongsToTheOuterJob) {
  auto daemon = monitor();
  auto child = job({"--name", "outer", "--memory", "1GiB"},
                   {"sh", "-c", built("switchyard") + " run --memory 1GiB -- " + loop_program()});
  ASSERT_EQ(line_of(child), "ready");
  const json jobs = listing("ps")["jobs"];
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0]["name"], "outer");
  EXPECT_EQ(jobs[0]["memory_quota_bytes"], 1 << 30);
  EXPECT_EQ(jobs[0]["processes"].size(), 1U);
}

TEST_F(RunJob, ANestedRunThatAsksForAnythingElseIsRefused) {
  auto daemon = monitor();
  const auto nested = [this](const Words& options) {
    Words words{"run", "--name", "outer", "--memory", "1GiB", "--", built("switchyard"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "sh", "-c", "echo $SWITCHYARD_NAME $SWITCHYARD_MEMORY"});
    return cli(words);
  };
  for (const Words& more : {Words{"--memory", "2GiB"}, Words{"--memory", "none"},
                            Words{"--priority", "high"}, Words{"--swappable"}}) {
    const auto end = nested(more);
    EXPECT_EQ(end.status, 125) << more[0];
    EXPECT_EQ(end.out, "");
    EXPECT_NE(end.err.find("outer"), std::string::npos) << end.err;
    EXPECT_NE(end.err.find(more[0]), std::string::npos) << end.err;
  }
  const auto anyway = nested({"--memory", "2GiB", "--best-effort"});
  EXPECT_EQ(anyway.out, "outer 1GiB\n");
  EXPECT_NE(anyway.err.find("ignored"), std::string::npos) << anyway.err;
  EXPECT_EQ(nested({"--name", "inner"}).out, "outer 1GiB\n");
}

TEST_F(RunJob, ASeparateRunInsideANamedJobIsAJobWithNoneOfItsSettings) {
  auto daemon = monitor();
  const auto nested = [this](const Words& options) {
    Words words{built("switchyard"), "run", "--separate"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", loop_program()});
    return words;
  };
  const Words settings{"--name", "outer", "--memory", "1GiB", "--priority", "low", "--require"};
  {
    auto child = job(settings, nested({}));
    ASSERT_EQ(line_of(child), "ready");
    const json jobs = listing("ps")["jobs"];
    const auto own = std::find_if(jobs.begin(), jobs.end(),
                                  [](const json& each) { return each["name"] != "outer"; });
    ASSERT_NE(own, jobs.end());
    EXPECT_EQ((*own)["processes"].size(), 1U);
    EXPECT_TRUE((*own)["memory_quota_bytes"].is_null());
    EXPECT_EQ((*own)["priority"], "normal");
  }
  ASSERT_TRUE(eventually([&] { return listing("ps")["jobs"].empty(); }));
  // The outer job may go on beside it.
  Words beside{"sh", "-c", "\"$@\"; exit $?", "sh"};
  const Words inner = nested({"--name", "inner", "--memory", "2GiB"});
  beside.insert(beside.end(), inner.begin(), inner.end());
  auto child = job(settings, beside);
  ASSERT_EQ(line_of(child), "ready");
  EXPECT_EQ(job_named("inner")["memory_quota_bytes"], 2L << 30);
  EXPECT_EQ(job_named("inner")["priority"], "normal");
  EXPECT_EQ(job_named("outer")["memory_quota_bytes"], 1 << 30);
  const auto refused = cli({"run", "--name", "third", "--", built("switchyard"), "run", "--memory",
                            "2GiB", "--", "true"});
  EXPECT_TRUE(says(refused, "switchyard run --separate")) << refused.err;
  EXPECT_EQ(cli({"run", "--separate", "--", "sh", "-c", "echo $SWITCHYARD_MEMORY"},
                {{"SWITCHYARD_MEMORY", "1GiB"}})
                .out,
            "1GiB\n")
      << "outside a job the variables are the person's own";
}

TEST_F(RunJob, AProcessThatDroppedThePreloadIsListedWithItsJob) {
  auto daemon = monitor();
  auto child =
      job({"--name", "holder", "--memory", "1GiB"}, {"env", "-u", "LD_PRELOAD", loop_program()});
  ASSERT_EQ(line_of(child), "ready");
  EXPECT_TRUE(eventually([&] {
    const json outside = listing("ps")["outside"];
    return outside.size() == 1 && outside[0]["pid"] == child.pid() &&
           outside[0]["hint"].is_string() &&
           outside[0]["hint"].get<std::string>().find("'holder'") != std::string::npos;
  }));
  EXPECT_NE(cli({"ps"}).out.find("'holder'"), std::string::npos);
}

TEST_F(RunJob, TheKillSwitchStartsThePlainProgram) {
  for (const char* on : {"1", "yes"}) {
    const auto end =
        cli({"run", "--", "sh", "-c", "echo ${LD_PRELOAD:-none}"}, {{"SWITCHYARD_DISABLE", on}});
    EXPECT_EQ(end.status, 0) << on;
    EXPECT_EQ(end.out, "none\n") << on;
    EXPECT_TRUE(says(end, "SWITCHYARD_DISABLE is set")) << end.err;
    EXPECT_EQ(monitor_pid(), 0) << on;
  }
}

TEST_F(RunJob, ABarePreloadIsAJobMadeFromItsEnvironment) {
  auto daemon = monitor();
  auto child = start({loop_program()}, {{"LD_PRELOAD", built("libswitchyard.so")},
                                        {"SWITCHYARD_PRIORITY", "low"},
                                        {"SWITCHYARD_NAME", "bare"},
                                        {"SWITCHYARD_MEMORY", "1GiB"}});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  const json job = job_named("bare");
  ASSERT_TRUE(job.is_object());
  EXPECT_EQ(job["priority"], "low");
  EXPECT_EQ(job["memory_quota_bytes"], 1 << 30);
  EXPECT_EQ(job["processes"][0]["pid"], child.pid());
}

TEST_F(RunJob, ABarePreloadUnderTheKillSwitchIsNoJob) {
  auto daemon = monitor();
  auto child = start({loop_program()},
                     {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_DISABLE", "1"}});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  // The monitor sees it as anybody's process; it looks for those once a second.
  EXPECT_TRUE(eventually([&] {
    const json all = listing("ps");
    EXPECT_TRUE(all["jobs"].empty());
    return !all["outside"].empty() && all["outside"][0]["pid"] == child.pid();
  }));
}

TEST_F(RunJob, ABarePreloadWithoutAMonitorRunsUnmanagedAndSaysSoOnce) {
  const auto bare = [this](Changes changes) {
    changes.emplace_back("LD_PRELOAD", built("libswitchyard.so"));
    const auto end = run({loop_program(), "--count", "3"}, changes);
    EXPECT_EQ(end.status, 0) << end.out;
    EXPECT_EQ(end.out, "kernels 3\n");
    return end.err;
  };
  const std::string plain = bare({});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 1) << plain;
  EXPECT_NE(plain.find("unmanaged"), std::string::npos) << plain;
  EXPECT_NE(plain.find(socket()), std::string::npos) << plain;
  EXPECT_NE(bare({{"SWITCHYARD_MEMORY", "1GiB"}}).find("SWITCHYARD_MEMORY is not kept"),
            std::string::npos);
  EXPECT_EQ(bare({{"SWITCHYARD_LOG", "off"}, {"SWITCHYARD_MEMORY", "1GiB"}}), "");
}

TEST_F(RunJob, ABadOrUnknownVariableOfABarePreloadIsSaidOnce) {
  auto daemon = monitor();
  const auto bare = [this](const char* name, const char* value) {
    return run({loop_program(), "--count", "3"},
               {{"LD_PRELOAD", built("libswitchyard.so")}, {name, value}})
        .err;
  };
  const std::string bad = bare("SWITCHYARD_MEMORY", "1XB");
  EXPECT_EQ(std::count(bad.begin(), bad.end(), '\n'), 1) << bad;
  EXPECT_NE(bad.find("'1XB'"), std::string::npos) << bad;
  EXPECT_NE(bad.find("unmanaged"), std::string::npos) << bad;
  const std::string unknown = bare("SWITCHYARD_MEMROY", "1GiB");
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), '\n'), 1) << unknown;
  EXPECT_NE(unknown.find("SWITCHYARD_MEMROY"), std::string::npos) << unknown;
  const std::string log = bare("SWITCHYARD_LOG", "info:/proc/no/log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("/proc/no/log cannot be opened (No such file"), std::string::npos) << log;
  EXPECT_EQ(bare("SWITCHYARD_LOG", "off:/proc/no/log"), "");
  EXPECT_EQ(bare("SWITCHYARD_MEMORY", "1GiB"), "");
  EXPECT_NE(cli({"run", "--", "true"}, {{"SWITCHYARD_MEMROY", "1GiB"}}).err.find("MEMROY"),
            std::string::npos);
}

TEST_F(RunJob, AProcessThatAsksForOtherSettingsThanItsJobHasSaysSoOnce) {
  auto daemon = monitor();
  const auto member = [](Changes more) {
    more.emplace_back("LD_PRELOAD", built("libswitchyard.so"));
    more.emplace_back("SWITCHYARD_JOB", "served");
    return more;
  };
  auto first = start({loop_program()}, member({{"SWITCHYARD_SHARE", "2"}}));
  ASSERT_EQ(line_of(first), "ready");
  const auto said = [&](const Changes& more) {
    return run({loop_program(), "--count", "3"}, member(more)).err;
  };
  const std::string other = said({{"SWITCHYARD_SHARE", "3"}});
  EXPECT_EQ(std::count(other.begin(), other.end(), '\n'), 1) << other;
  EXPECT_NE(other.find("job 'served'"), std::string::npos) << other;
  EXPECT_NE(other.find("(SWITCHYARD_SHARE)"), std::string::npos) << other;
  EXPECT_EQ(said({{"SWITCHYARD_SHARE", "3"}, {"SWITCHYARD_LOG", "off"}}), "");
  EXPECT_EQ(said({{"SWITCHYARD_SHARE", "2"}}), "");
  EXPECT_EQ(said({}), "");
}

TEST_F(RunJob, AnAllocationThatTheQuotaRefusesIsSaidOnce) {
  auto child =
      job({"--memory", "64MiB"}, {built("tests/jobs/job_alloc"), "alloc:128", "alloc:128"});
  const auto end = child.finish(kLimit);
  // One line says what and why, another what to do.
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 2) << end.err;
  EXPECT_NE(end.err.find("quota"), std::string::npos) << end.err;
}

TEST_F(RunJob, AJobStartedUnderTheVariableRequiresItsMonitorToo) {
  const char* said = "echo ${SWITCHYARD_REQUIRE:-no}";
  const Changes required{{"SWITCHYARD_REQUIRE", "yes"}};
  EXPECT_EQ(cli({"run", "--", "sh", "-c", said}, required).out, "1\n");
  EXPECT_EQ(cli({"run", "--best-effort", "--", "sh", "-c", said}, required).out, "no\n");
}

TEST_F(RunJob, ABarePreloadThatRequiresAMonitorFindsTheDriverNotReady) {
  const auto end = run({loop_program(), "--count", "3"},
                       {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(end.out, "error cuInit\n");
}

TEST_F(RunJob, AValueThatTheCardCannotHoldIsNamedAndUnderRequireThereIsNoCuda) {
  auto daemon = monitor();
  Changes changes{{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_LIMIT", "1.000000%"}};
  const auto end = run({loop_program(), "--count", "3"}, changes);
  EXPECT_TRUE(says(end, "SWITCHYARD_LIMIT has more than 7 characters")) << end.err;
  EXPECT_NE(end.out.find("kernels 3"), std::string::npos) << end.out;
  changes.emplace_back("SWITCHYARD_REQUIRE", "1");
  EXPECT_EQ(run({loop_program(), "--count", "3"}, changes).out, "error cuInit\n");
}

TEST_F(RunJob, AStreamThatIsClosedIsClosedInTheJob) {
  const auto end =
      run({"sh", "-c",
           "exec " + built("switchyard") + " run -- sh -c 'test -e /proc/$$/fd/1 || exit 9' >&-"});
  EXPECT_EQ(end.status, 9) << end.err;
}

TEST_F(RunJob, WhereSharesCannotBeEnforcedItSaysSoInOneLine) {
  auto daemon = monitor();
  ASSERT_EQ(cli({"backend", "none"}).status, 0);
  const auto end = cli({"run", "--", "true"});
  EXPECT_EQ(end.status, 0);
  EXPECT_NE(end.err.find("cannot be enforced"), std::string::npos) << end.err;
  ASSERT_EQ(cli({"backend", "auto"}).status, 0);
  EXPECT_EQ(cli({"run", "--", "true"}).err, "");
}

const Changes kThreeGpus = {{"FAKECUDA_DEVICES", "3"}};

TEST_F(RunJob, SeesTheGpusThatItIsGivenAlone) {
  auto daemon = monitor({}, kThreeGpus);
  auto child =
      job({"--name", "chosen", "--gpus", "2", "--memory", "1GiB"}, {loop_program()}, kThreeGpus);
  ASSERT_EQ(line_of(child), "ready");
  const json gpus = listing("status")["gpus"];
  ASSERT_EQ(gpus.size(), 3U);
  const json chosen = gpus[2]["uuid"];
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("chosen");
    return gpu.is_object() && gpu["uuid"] == chosen && gpu["launches"].get<long>() >= 5;
  }));
  EXPECT_EQ(gpus[0]["memory_reserved_bytes"], 0);
  EXPECT_EQ(gpus[2]["memory_reserved_bytes"], 1 << 30);
  const auto said =
      cli({"run", "--gpus", "2,0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}, kThreeGpus);
  EXPECT_EQ(said.out,
            gpus[2]["uuid"].get<std::string>() + "," + gpus[0]["uuid"].get<std::string>() + "\n");
}

TEST_F(RunJob, GpusThatCannotBeHadAreRefusedBeforeAJobIsMade) {
  auto daemon = monitor({}, kThreeGpus);
  const auto status = [&](const char* gpus) {
    const auto end = cli({"run", "--gpus", gpus, "--", "echo", "started"}, kThreeGpus);
    EXPECT_EQ(end.out, "");
    EXPECT_NE(end.err.find("--gpus"), std::string::npos) << end.err;
    return end.status;
  };
  EXPECT_EQ(status("0,x"), 2);
  EXPECT_EQ(status("1,1"), 2);
  EXPECT_EQ(status("3"), 125);
  const auto nested = cli({"run", "--gpus", "0", "--", built("switchyard"), "run", "--gpus", "1",
                           "--", "echo", "started"},
                          kThreeGpus);
  EXPECT_EQ(nested.status, 125);
  EXPECT_EQ(nested.out, "");
}

TEST_F(RunJob, BestEffortStartsWithTheGivenGpusWhereNvmlListsNone) {
  const Changes none{{"FAKECUDA_DEVICES", "0"}};
  const char* visible = "echo $CUDA_VISIBLE_DEVICES";
  const auto refused = cli({"run", "--gpus", "0,2", "--", "sh", "-c", visible}, none);
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says(refused, "not started")) << refused.err;
  const auto anyway =
      cli({"run", "--gpus", "0,2", "--best-effort", "--", "sh", "-c", visible}, none);
  EXPECT_EQ(anyway.out, "0,2\n");
  EXPECT_TRUE(says(anyway, "unchecked") && says(anyway, "unmanaged")) << anyway.err;
  // It is the job's, too, though the GPUs are asked without the library.
  const auto off =
      cli({"run", "--gpus", "0", "--", "sh", "-c", visible + std::string(" $SWITCHYARD_DISABLE")},
          {{"FAKECUDA_DEVICES", "0"}, {"SWITCHYARD_DISABLE", "1"}});
  EXPECT_EQ(off.out, "0 1\n");
}

// A driver of CUDA 13.5, of which the library does not know all calls.
TEST_F(RunJob, NothingIsSwappableUnderADriverWithUnknownCalls) {
  Changes newer{{"FAKECUDA_CUDA_VERSION", "13050"}};
  for (const Words& option :
       {Words{"--swappable"}, Words{"--oversubscribe"}, Words{"--idle-release", "10m"}}) {
    Words words{"run"};
    words.insert(words.end(), option.begin(), option.end());
    words.insert(words.end(), {"--", "echo", "started"});
    const auto end = cli(words, newer);
    EXPECT_EQ(end.status, 125) << option[0];
    EXPECT_EQ(end.out, "");
    EXPECT_TRUE(says(end, "the driver is of CUDA 13.5") && says(end, "with " + option[0]) &&
                says(end, "SWITCHYARD_NEWER_DRIVER=1"))
        << end.err;
  }
  EXPECT_EQ(cli({"run", "--memory", "1GiB", "--", "echo", "started"}, newer).out, "started\n");
  newer.emplace_back("SWITCHYARD_NEWER_DRIVER", "1");
  EXPECT_EQ(cli({"run", "--swappable", "--", "echo", "started"}, newer).out, "started\n");
}

// Where no `run` refuses, the library itself leaves memory in place.
TEST_F(RunJob, UnderADriverWithUnknownCallsTheLibraryMovesNoMemory) {
  auto daemon = monitor();
  const auto swaps_out = [this](const Changes& changes) {
    auto child = job({"--name", "train", "--swappable", "--best-effort"},
                     {built("tests/jobs/job_swap"), "8388608"}, changes);
    EXPECT_EQ(line_of(child), "ready");
    const auto end = cli({"swap-out", "train"});
    ::kill(child.pid(), SIGKILL);
    child.finish(kLimit);
    EXPECT_TRUE(eventually([&] { return job_named("train").is_null(); }));
    return end.status;
  };
  const Changes newer{{"FAKECUDA_CUDA_VERSION", "13050"}};
  EXPECT_EQ(swaps_out(newer), kRefusedByPolicy);
  Changes allowed = newer;
  allowed.emplace_back("SWITCHYARD_NEWER_DRIVER", "1");
  EXPECT_EQ(swaps_out(allowed), 0);
}

}  // namespace
}  // namespace switchyard::system_tests
