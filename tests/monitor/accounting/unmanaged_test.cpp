// Processes on the GPUs that are no clients: listed, told, and added up by user.
#include "monitor/accounting/unmanaged.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "monitor/control/unmanaged_listing.h"
#include "monitor/export/collector.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

constexpr pid_t kStranger = 3'500'000;  // beyond what /proc has
constexpr uid_t kNobody = HistoryEvent::kNobody;

class UnmanagedProcesses : public ::testing::Test {
 protected:
  void SetUp() override { rig.pass(Unmanaged::kQuiet); }
  void uses(pid_t pid, std::uint64_t bytes, std::size_t gpu = 0) {
    rig.gpus.uses[gpu][pid] = bytes;
  }
  void works(std::vector<ProcessLoad> loads) { rig.gpus.load = std::move(loads); }
  void pass(int count = 1) {
    for (int i = 0; i < count; ++i) rig.pass(seconds(1));
  }
  json listed(uid_t asks = 0) { return rig.ask({{"op", "ps"}}, asks)["outside"]; }
  Unmanaged::Sums sums(uid_t uid = kNobody, std::size_t gpu = 0) {
    const auto& users = rig.monitor.unmanaged().users();
    const auto user = users.find(uid);
    if (user == users.end() || !user->second.contains(gpu)) return {};
    return user->second.at(gpu);
  }
  // Of one kind.
  std::vector<HistoryEvent> events(EventKind kind) {
    std::vector<HistoryEvent> all, out;
    rig.monitor.journal().read(0, all, 10'000);
    for (const HistoryEvent& each : all) {
      if (each.kind == kind) out.push_back(each);
    }
    return out;
  }

  Rig rig{2};
};

TEST_F(UnmanagedProcesses, AreListedAtOnceWithWhatTheyHave) {
  uses(kStranger, 3 * kMiB, 1);
  uses(::getpid(), kGiB);
  works({{::getpid(), 0.25}});
  pass();
  const json all = listed();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["pid"], ::getpid());
  EXPECT_EQ(all[0]["uid"], ::geteuid());
  EXPECT_EQ(all[0]["memory_used_bytes"], kGiB);
  EXPECT_EQ(all[0]["share_got_ratio"], 0.25);
  EXPECT_EQ(all[0]["gpu_index"], 0);
  EXPECT_EQ(all[1]["pid"], kStranger);
  EXPECT_EQ(all[1]["gpu_index"], 1);
  EXPECT_TRUE(all[1]["uid"].is_null());
}

// `ps -a` and `top` draw the listing, `report` reads the ledger's rows, a scrape the collector's.
// The clock is played: ten ticks of the loop are two seconds.
TEST(UnmanagedInTime, TwoSecondsOfTicksBringThemIntoEachListingWithUserAndMemory) {
  constexpr int kTicks = 10;
  constexpr Time kTick = milliseconds(200);
  const std::string user = user_name(::geteuid());
  // NVML was asked last so many ticks before the process came.
  for (int before = 0; before < 5; ++before) {
    Rig rig;
    history::Rows rows;
    rig.monitor.ledger().records_to([&rows](history::Rows more) { rows.add(std::move(more), 100); },
                                    [] { return 490'000 * history::kHourSeconds; });
    metrics::Collector collector(rig.monitor);
    rig.pass(Unmanaged::kQuiet);
    for (int i = 0; i < before; ++i) rig.pass(kTick);
    rig.gpus.uses[0][::getpid()] = kGiB;
    for (int i = 0; i < kTicks; ++i) rig.pass(kTick);
    const auto& known = rig.monitor.unmanaged().processes();
    ASSERT_EQ(known.size(), 1u) << "the listing has it without a look of its own";
    const json listed = rig.ask({{"op", "ps"}})["outside"];
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_EQ(listed[0]["user"], user);
    EXPECT_EQ(listed[0]["memory_used_bytes"], kGiB);
    ASSERT_EQ(rows.unmanaged.size(), 1u) << before;
    const history::UnmanagedBill& bill = rows.unmanaged.begin()->second;
    EXPECT_EQ(bill.user, user);
    EXPECT_EQ(bill.peak_bytes, 1.0 * kGiB);
    EXPECT_GT(bill.memory_byte_seconds, 0);
    const auto scraped = collector.look(rig.now).unmanaged;
    ASSERT_EQ(scraped.size(), 1u);
    EXPECT_EQ(scraped[0].name, user);
    EXPECT_EQ(scraped[0].bytes, kGiB);
  }
}

TEST_F(UnmanagedProcesses, AreListedAlsoWithoutATickBetween) {
  uses(kStranger, kMiB);
  rig.now += milliseconds(60);
  EXPECT_EQ(listed().size(), 1u);
  rig.gpus.uses[0].clear();
  rig.now += milliseconds(60);
  EXPECT_TRUE(listed().empty());
}

TEST_F(UnmanagedProcesses, AreSeenWhileThereIsNoClient) {
  uses(kStranger, kMiB);
  pass(2);
  EXPECT_EQ(rig.monitor.unmanaged().processes().size(), 1u);
}

TEST_F(UnmanagedProcesses, AClientIsNone) {
  const Joined a = rig.join({});
  rig.listed(a) = kMiB;
  pass(2);
  EXPECT_TRUE(listed().empty());
  EXPECT_TRUE(rig.monitor.unmanaged().users().empty());
}

TEST_F(UnmanagedProcesses, AProcessOnTwoGpusHasARowForEach) {
  uses(kStranger, kMiB, 0);
  uses(kStranger, 2 * kMiB, 1);
  pass();
  ASSERT_EQ(listed().size(), 2u);
  rig.gpus.uses[0].clear();
  pass();
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_EQ(listed()[0]["gpu_index"], 1);
}

TEST_F(UnmanagedProcesses, WithoutSamplesTheShareIsNull) {
  uses(kStranger, kMiB);
  pass(3);
  EXPECT_TRUE(listed()[0]["share_got_ratio"].is_null());
  EXPECT_EQ(sums().gpu_seconds, 0);
  EXPECT_EQ(sums().idle_byte_seconds, 0) << "nobody knows whether it is idle";
}

TEST_F(UnmanagedProcesses, MemoryAndEstimatedTimeAreAddedUpByUser) {
  uses(kStranger, kMiB);
  uses(kStranger + 1, kMiB);
  uses(::getpid(), kGiB);
  works({{kStranger, 0.5}, {::getpid(), 0.125}});
  pass(11);
  EXPECT_NEAR(sums().byte_seconds, 20.0 * kMiB, 1);
  EXPECT_NEAR(sums().gpu_seconds, 5, 1e-9);
  EXPECT_NEAR(sums().idle_byte_seconds, 10.0 * kMiB, 1);
  EXPECT_NEAR(sums(::geteuid()).byte_seconds, 10.0 * kGiB, 1);
  EXPECT_NEAR(sums(::geteuid()).gpu_seconds, 1.25, 1e-9);
  EXPECT_EQ(sums(::geteuid()).bytes, kGiB);
}

TEST_F(UnmanagedProcesses, SamplesThatAddUpToMoreThanTheGpuAreDivided) {
  EXPECT_EQ(estimated_share({{1, 0.5}, {2, 0.25}}, 1), 0.5);
  EXPECT_EQ(estimated_share({{1, 1.0}, {2, 1.0}}, 1), 0.5);
  EXPECT_EQ(estimated_share({{1, 0.75}, {2, 0.75}, {3, 0.5}}, 3), 0.25);
  EXPECT_EQ(estimated_share({{1, 1.0}}, 2), 0);
  EXPECT_EQ(estimated_share({}, 2), 0);
}

TEST_F(UnmanagedProcesses, AMonitorThatStoodStillBillsTwoSecondsAtMost) {
  uses(kStranger, kMiB);
  pass();
  rig.pass(seconds(1000));
  EXPECT_NEAR(sums().byte_seconds, 2.0 * kMiB, 1);
}

TEST_F(UnmanagedProcesses, ComeAndGoInTheJournal) {
  uses(kStranger, kMiB, 1);
  pass(2);
  uses(kStranger, 5 * kMiB, 1);
  pass();
  uses(kStranger, kMiB, 1);
  pass();
  ASSERT_EQ(events(EventKind::kUnmanagedBegins).size(), 1u);
  EXPECT_TRUE(events(EventKind::kUnmanagedEnds).empty());
  const HistoryEvent begins = events(EventKind::kUnmanagedBegins)[0];
  EXPECT_EQ(begins.pid, kStranger);
  EXPECT_EQ(begins.uid, kNobody);
  EXPECT_EQ(begins.gpu, 2);
  EXPECT_EQ(begins.value, kMiB);
  rig.gpus.uses[1].clear();
  pass();
  ASSERT_EQ(events(EventKind::kUnmanagedEnds).size(), 1u);
  EXPECT_EQ(events(EventKind::kUnmanagedEnds)[0].value, 5 * kMiB) << "its most";
  EXPECT_EQ(events(EventKind::kUnmanagedEnds)[0].gpu, 2);
}

TEST_F(UnmanagedProcesses, AreToldInWords) {
  uses(kStranger, kMiB, 1);
  pass();
  rig.gpus.uses[1].clear();
  pass();
  const json all = rig.ask({{"op", "events"}})["events"];
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1]["kind"], "unmanaged begins");
  EXPECT_EQ(all[1]["text"], "unmanaged pid 3500000 is on GPU 1 with 1.0 MiB");
  EXPECT_EQ(all[2]["text"], "unmanaged pid 3500000 has left GPU 1; it had 1.0 MiB at most");
}

TEST_F(UnmanagedProcesses, AUserCannotFloodTheJournal) {
  for (pid_t pid = kStranger; pid < kStranger + 200; ++pid) uses(pid, kMiB);
  pass();
  rig.gpus.uses[0].clear();
  pass();
  EXPECT_EQ(events(EventKind::kUnmanagedBegins).size(), Unmanaged::kEventsOfUser);
  EXPECT_EQ(events(EventKind::kUnmanagedEnds).size(), Unmanaged::kEventsOfUser);
}

// Processes of the last monitor's jobs are strangers until they join.
TEST(UnmanagedAtStart, AJobThatJoinsAgainIsNeitherToldNorBilled) {
  Rig rig;
  rig.gpus.uses[0][rig.next_pid] = kMiB;
  rig.gpus.uses[0][kStranger] = kMiB;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.ask({{"op", "ps"}})["outside"].size(), 2u);
  const Joined a = rig.join({}, 1000, 1, wire::kRejoin);
  for (int i = 0; i < 4; ++i) rig.pass(seconds(1));
  std::vector<HistoryEvent> events;
  rig.monitor.journal().read(0, events, 100);
  std::set<pid_t> told;
  for (const HistoryEvent& each : events) {
    if (each.kind == EventKind::kUnmanagedBegins) told.insert(each.pid);
  }
  EXPECT_EQ(told, std::set<pid_t>{kStranger});
  const auto& users = rig.monitor.unmanaged().users();
  ASSERT_EQ(users.size(), 1u);
  EXPECT_NEAR(users.at(kNobody).at(0).byte_seconds, 2.0 * kMiB, 1);
}

TEST_F(UnmanagedProcesses, OneThatWasAClientIsListedAtOnceAndToldWhenItStays) {
  const Joined a = rig.join({});
  const pid_t pid = a.client->peer.pid;
  rig.listed(a) = kMiB;
  pass();
  rig.monitor.left(a.id);
  pass();
  EXPECT_EQ(listed().size(), 1u);
  EXPECT_TRUE(events(EventKind::kUnmanagedBegins).empty());
  pass(3);
  ASSERT_EQ(events(EventKind::kUnmanagedBegins).size(), 1u);
  EXPECT_EQ(events(EventKind::kUnmanagedBegins)[0].pid, pid);
}

// A process whose number the kernel gave to another one.
TEST_F(UnmanagedProcesses, ANumberThatIsGivenAgainIsAnotherProcess) {
  const auto sleeper = [] {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
    return pid;
  };
  const pid_t pid = sleeper();
  uses(pid, kMiB);
  pass();
  ASSERT_GT(rig.monitor.unmanaged().processes().at(pid).about.started, 0u);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  pass();
  EXPECT_EQ(events(EventKind::kUnmanagedEnds).size(), 1u);
  EXPECT_EQ(events(EventKind::kUnmanagedBegins).size(), 2u);
  EXPECT_EQ(rig.monitor.unmanaged().processes().at(pid).about.started, 0u);
}

// The command line of this very test, once it was read.
json command_for(Rig& rig, const Peer& peer) {
  const json all = json::parse(answer_command(rig.monitor, peer, R"({"op":"ps"})", rig.now).json);
  return all["outside"][0]["command"];
}

TEST_F(UnmanagedProcesses, CommandLinesAreForRootAndTheirOwnerAlone) {
  uses(::getpid(), kMiB);
  const uid_t owner = ::geteuid();
  while (rig.monitor.unmanaged().processes().empty() ||
         rig.monitor.unmanaged().processes().begin()->second.command.empty()) {
    rig.pass(milliseconds(10));
    ::usleep(1000);
  }
  const Unmanaged::Process& process = rig.monitor.unmanaged().processes().at(::getpid());
  EXPECT_TRUE(command_for(rig, {1, 0, ""}).is_string());
  EXPECT_TRUE(command_for(rig, {1, owner, process.about.container}).is_string());
  EXPECT_TRUE(command_for(rig, {1, 12345, ""}).is_null());
  EXPECT_TRUE(command_for(rig, {1, 0, "another container"}).is_null());
  EXPECT_EQ(command_for(rig, {1, 0, ""}), process.command);
}

// Of users of a container only those of the same one.
TEST(UnmanagedCommands, AreForTheirOwnersContainerAndTheHostsUsers) {
  const struct {
    std::optional<uid_t> uid;
    const char* container;
    uid_t asks;
    const char* from;
    bool sees;
  } rows[] = {
      {1000, "box", 1000, "box", true},  {1000, "box", 1000, "", true},
      {1000, "box", 1000, "bag", false}, {1000, "box", 1001, "box", false},
      {1000, "", 1000, "box", false},    {1000, "box", 0, "box", false},
      {0, "box", 0, "box", true},        {0, "box", 0, "bag", false},
      {1000, "box", 0, "", true},        {{}, "", 0, "", true},
      {{}, "box", 1000, "box", false},
  };
  for (const auto& row : rows) {
    ProcessAbout about;
    about.uid = row.uid;
    about.container = row.container;
    EXPECT_EQ(sees_command(about, {1, row.asks, row.from}), row.sees) << &row - rows;
  }
}

TEST(Observing, TakesNoProcessAndNoCommandThatChangesAnything) {
  Settings settings;
  settings.observes = true;
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_NE(rig.refusal({}).find("only observes"), std::string::npos);
  for (const char* op : {"create", "pause", "resume", "swap-out", "swap-in", "migrate", "set",
                         "policy", "means", "stop", "anything"}) {
    const json reply = rig.ask({{"op", op}, {"target", "x"}});
    EXPECT_EQ(reply["code"], kRefusedByPolicy) << op;
    EXPECT_NE(reply["error"].get<std::string>().find("only observes"), std::string::npos) << op;
  }
  for (const char* op : {"version", "status", "ps", "events"}) {
    EXPECT_EQ(rig.ask({{"op", op}})["ok"], true) << op;
  }
  EXPECT_EQ(rig.ask({{"op", "ps"}})["monitor"]["observes"], true);
  EXPECT_TRUE(rig.monitor.registry().jobs().empty());
}

}  // namespace
}  // namespace switchyard::monitor::test
