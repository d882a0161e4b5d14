// A play: a whole monitor, made-up processes that come, work and go, and commands at any time. All
// that the monitor does is noted.
//
// Concept. Most states are only reached by jobs of one kind. So each play has a theme: jobs that do
// not fit together, that move, gangs, guarded jobs, islands, caps that change, or all at once. The
// clock goes as in the monitor's loop: jobs are looked at when they are due, and all of them five
// times a second. Now and then another monitor takes over.
//
// Threading: one thread, the test's.
#pragma once

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "monitor/control/commands.h"
#include "tests/monitor/plays/watcher.h"

namespace switchyard::monitor::test {

class Play {
 public:
  enum Theme : unsigned { kCrowd, kMoves, kGangs, kGuards, kAll, kIslands, kCaps, kThemes };

  explicit Play(unsigned number)
      : theme_(static_cast<Theme>(number % kThemes)),
        number_(number),
        gpus_(theme_ == kGangs ? 3 : 2),
        dice_(number) {
    begin_monitor();
  }
  ~Play() { watcher_.let_go(); }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  void step() {
    unsigned weights = 0;
    for (const Player& each : players_) weights += each.weight();
    for (Player& each : players_) each.act(*rig_, dice_, weights - each.weight());
    if (dice_.once_in(theme_ == kGuards ? 40 : 8)) somebody_asks();
    if (dice_.once_in(theme_ == kGuards ? 50 : 25)) something_happens();
    if (dice_.once_in(200)) begin_monitor();
    const bool rests = dice_.once_in(15);
    pass(milliseconds((rests ? 100 : 1) + dice_.of(rests ? 900 : 20)));
    watcher_.orders(players_);
    if (++steps_ % 20 == 0) watcher_.listings();
    note_answer();
    watcher_.events();
  }
  const test_support::Columns& columns() const { return watcher_.columns(); }

 private:
  // An empty one: nothing is said.
  template <std::size_t N>
  std::string one_of(const char* const (&words)[N]) {
    return words[dice_.of(N)];
  }
  // Always where the theme is about it, else now and then.
  bool some(bool often) { return dice_.once_in(often ? 1 : 4); }

  Settings settings() {
    Settings out;
    const std::uint64_t pools[] = {64 * kGiB, 2 * kGiB, 512 * kMiB, 0};
    out.host_pool_bytes = theme_ == kMoves ? 64 * kGiB : pools[number_ % 4];
    if (number_ % 3 == 2) out.rules.kind = policy::Kind::kExclusive;
    if (theme_ != kCaps) return out;
    out.caps.memory_bytes = (1 + dice_.of(4)) * kGiB;
    out.caps.from.memory = "caps.memory, f.toml:1";
    if (dice_.once_in(2)) out.caps.priority = Priority::kNormal;
    if (dice_.once_in(2)) out.caps.share = 1;
    return out;
  }

  // The first one, or the next: it knows nothing but what the processes say.
  void begin_monitor() {
    const std::uint64_t room = theme_ == kMoves ? 12 * kGiB : 4 * kGiB;
    std::optional<FakeGpus> before;
    const Time now = rig_ ? rig_->now : seconds(1000);
    const pid_t next_pid = rig_ ? rig_->next_pid : 3'000'000;
    if (rig_) before.emplace(std::move(rig_->gpus));
    if (rig_) watcher_.note("orders", "another monitor");
    watcher_.let_go();
    rig_.emplace(gpus_, room + room / (kKeptForOverhead - 1), settings(), now);
    rig_->next_pid = next_pid;
    for (GpuMemory& each : rig_->gpus.memories) {
      each.total_bytes += 256 * kMiB;
      each.reserved_bytes = 256 * kMiB;
    }
    rig_->gpus.infos[1].mig = theme_ == kGuards;
    if (before) {
      rig_->gpus.uses = before->uses;
      rig_->gpus.load = before->load;
      rig_->gpus.unlisted = before->unlisted;
    }
    due_ = looked_at_ = Time{0};
    awaited_ = 0;
    created_.clear();
    watcher_.watch(*rig_);
    for (Player& each : players_) {
      each.rejoin(rig_->join_as(each.peer(), each.says_again()));
    }
  }

  // As the loop does it (server.h).
  void pass(Time span) {
    constexpr Time kTick = milliseconds(200), kLooks = milliseconds(5);
    for (const Time end = rig_->now + span; rig_->now < end;) {
      rig_->now += std::min(kLooks, end - rig_->now);
      const Time now = rig_->now;
      if (now - looked_at_ >= kTick) {
        looked_at_ = now;
        rig_->monitor.tick(now);
        due_ = rig_->monitor.look(now);
      } else if (due_ != Time{0} && now >= due_) {
        due_ = rig_->monitor.look_at_due(now);
      }
    }
  }

  Ask wanted() {
    const bool moves = theme_ == kMoves, crowd = theme_ == kCrowd, guards = theme_ == kGuards;
    Ask ask;
    ask.name = "p" + std::to_string(++names_);
    ask.priority = one_of({"", "low", "high", "normal"});
    ask.share = guards ? one_of({"", "2", "auto", "auto"}) : one_of({"", "", "2", "0.5"});
    ask.memory = moves ? one_of({"", "", "2GiB"}) : one_of({"", "", "1GiB", "40%"});
    ask.on_oom = one_of({"", "wait"});
    ask.oom_timeout = ask.on_oom.empty() ? "" : one_of({"", "2s"});
    ask.limit = guards ? one_of({"", "30%", "60%"}) : one_of({"", "", "", "30%"});
    if (some(moves || crowd)) ask.swappable = "yes";
    if (!ask.swappable.empty()) {
      if (some(crowd || theme_ == kGangs)) ask.oversubscribe = "yes";
      ask.idle_release = one_of({"", "", "", "2s"});
      ask.park = one_of({"", "peer", "auto"});
    }
    ask.guard = guards ? one_of({"", "10%", "2%"}) : one_of({"", "", "", "", "10%"});
    ask.deadline = one_of({"", "", "", "20s"});
    if (theme_ == kGangs && dice_.once_in(2)) ask.gradient_noise = "yes";
    return ask;
  }
  // Its job stands in an island before its process comes. False: it was refused.
  bool enters_island(Ask& ask, uid_t uid) {
    const bool serves = dice_.once_in(6);
    json card = {{"name", ask.name}, {"co_run", one_of({"x", "y"})}, {"priority", "low"}};
    if (serves) card["island_gpu"] = one_of({"GPU-0", "GPU-1"});
    if (!ask.memory.empty()) card["memory"] = ask.memory;
    const Answer made =
        answer_command(rig_->monitor, {1, uid},
                       json{{"op", "create"}, {"pid", 0}, {"card", card}}.dump(), rig_->now);
    const json said = json::parse(made.json);
    watcher_.note("listing", plain(said).dump());
    if (!said["ok"]) return false;
    created_.push_back(made.created);
    ask = {.job = said["job"], .name = ask.name};
    return true;
  }
  void comes() {
    Ask ask = wanted();
    const bool gang = dice_.once_in(theme_ == kGangs ? 1 : theme_ == kMoves ? 12 : 4);
    const unsigned ranks = !gang ? 1 : theme_ == kGangs ? 2 + dice_.of(2) : 2;
    const unsigned lanes = gang || (theme_ == kMoves && dice_.once_in(2)) ? 1 : 1 + dice_.of(2);
    const bool second = dice_.once_in(3);
    const uid_t uid = 2'000'000'000 + dice_.of(2);  // they have no name anywhere
    Traits traits(dice_);
    traits.steady = !ask.guard.empty();
    if (gang) ask.job = ask.name;
    if (theme_ == kIslands && !gang && !dice_.once_in(4) && !enters_island(ask, uid)) return;
    for (unsigned rank = 0; rank < ranks; ++rank) {
      wire::Hello hello = hello_of(ask, lanes);
      const unsigned gpu = lanes == 2 ? 0 : gang ? rank : second ? 1 : 0;
      const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
      std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
      std::string why;
      const Peer peer{traits.nameless ? 0 : rig_->next_pid++, uid};
      hello.pid = static_cast<std::uint32_t>(peer.pid);
      Client* client = rig_->monitor.join(peer, hello, rig_->now, why);
      watcher_.note("orders", ask.name + " joins: " + (client != nullptr ? "yes" : why));
      if (client == nullptr) continue;
      players_.emplace_back(ask, Joined{client, FakeShim(client->page->memfd()), client->id}, lanes,
                            rank, ranks, traits);
      players_.back().shim().be_on(gpu);
      if (lanes == 2) players_.back().shim().be_on(1, 1);
    }
  }
  void goes(std::list<Player>::iterator who) {
    for (auto& gpu : rig_->gpus.uses) gpu.erase(who->listed_pid());
    rig_->monitor.died(who->id());
    players_.erase(who);
  }

  std::vector<ProcessLoad> loads() {
    std::vector<ProcessLoad> out;
    for (const auto& [pid, bytes] : rig_->gpus.uses[0]) out.push_back({pid, dice_.of(10) / 10.0});
    return out;
  }
  void something_happens() {
    const unsigned what = dice_.of(13);
    const unsigned gpu = dice_.of(gpus_);
    const pid_t stranger = 2'000'000 + static_cast<pid_t>(dice_.of(3));
    const std::uint64_t bytes = dice_.of(8) * 128 * kMiB;
    FakeGpus& gpus = rig_->gpus;
    if (what < 3 && players_.size() < (theme_ == kMoves ? 4 : 6)) comes();
    if (what == 3 && players_.size() > 2) {
      goes(std::next(players_.begin(), dice_.of(static_cast<unsigned>(players_.size()))));
    }
    if (what == 4) gpus.uses[gpu][stranger] = bytes;
    if (what == 5) gpus.uses[gpu].erase(stranger);
    if (what == 6) gpus.unlisted = bytes / 8;
    if (what == 7) gpus.fails = dice_.once_in(4);
    if (what == 8) gpus.load = loads();
    if (what == 9) {
      for (const JobKey each : created_) rig_->monitor.creator_died(each);
      created_.clear();
    }
    if (what == 10 && !gpus.draws.erase(stranger)) gpus.draws.insert(stranger);
    if (what == 11) gpus.lists_processes = !dice_.once_in(4);
    if (what == 12 && theme_ == kCaps) {
      const Monitor::Changes said = rig_->monitor.reconfigure(settings(), rig_->now);
      for (const std::string& each : said.now) watcher_.note("listing", "now " + each);
      for (const std::string& each : said.later) watcher_.note("listing", "later " + each);
    }
  }

  std::string some_job() {
    const auto& jobs = rig_->monitor.registry().jobs();
    if (jobs.empty() || dice_.once_in(20)) return "nobody";
    return std::next(jobs.begin(), dice_.of(static_cast<unsigned>(jobs.size())))->second.name;
  }
  // One whose memory may leave, mostly.
  std::string some_job(bool moves) {
    std::string out = some_job();
    for (int again = 0; moves && again < 2; ++again) {
      const Job* job = rig_->monitor.registry().find_target(out);
      if (job != nullptr && job->knobs.swappable) break;
      out = some_job();
    }
    return out;
  }
  // Mostly one where it is not.
  std::size_t another_gpu(const std::string& name) {
    const Job* job = rig_->monitor.registry().find_target(name);
    const bool same = dice_.once_in(8);
    if (job == nullptr || job->gpus.seen().empty()) return 0;
    return same ? *job->gpus.seen().begin() : (*job->gpus.seen().begin() + 1) % gpus_;
  }
  json request() {
    const std::string op =
        theme_ == kMoves
            ? one_of({"migrate", "migrate", "migrate", "migrate", "resume", "swap-in", "swap-out",
                      "release", "set"})
            : one_of({"pause", "resume", "resume", "resume", "swap-out", "swap-in", "swap-in",
                      "set", "set", "migrate", "policy", "means", "release", "create"});
    const bool moves = op == "migrate" || op == "release" || op.starts_with("swap");
    json out = {{"op", op == "release" ? "pause" : op}, {"target", some_job(moves)}};
    if (op == "release") out["release"] = "true";
    if (op == "release" && dice_.once_in(2)) out["contexts"] = "true";
    if ((op == "pause" || op == "release") && dice_.once_in(2)) out["timeout_seconds"] = "1s";
    if (op == "migrate") out["to"] = std::to_string(another_gpu(out["target"]));
    if (op == "policy") out["policy"] = one_of({"priority", "fair", "exclusive"});
    if (op == "means") out["means"] = one_of({"auto", "auto", "slice", "gate"});
    if (op == "set") set(out);
    if (op == "create") create(out);
    return out;
  }
  // A job for processes that never come; its maker soon ends.
  void create(json& out) {
    out["card"] = {{"name", "c" + std::to_string(++names_)},
                   {"memory", one_of({"none", "1GiB", "20%"})}};
    out["cuda_visible_devices"] = one_of({"0", "1", "GPU-aa", "0,1"});
  }
  void set(json& out) {
    switch (dice_.of(6)) {
      case 0:
        out["priority"] = one_of({"high", "low", "normal"});
        break;
      case 1:
        out["share"] = one_of({"1", "3"});
        break;
      case 2:
        out["limit"] = one_of({"20%", "none"});
        break;
      case 3:
        out["deadline"] = one_of({"10s", "none"});
        break;
      case 4:
        out["memory"] = one_of({"2GiB", "512MiB", "none"});
        break;
      default:
        out["guard"] = one_of({"5%", "none"});
        break;
    }
  }
  void somebody_asks() {
    const json asked = request();
    const bool by_user = dice_.once_in(3) && asked["op"] != "policy" && asked["op"] != "means";
    const bool by_owner = !dice_.once_in(6);
    const Job* job = rig_->monitor.registry().find_target(asked["target"]);
    const uid_t owner = by_owner && job != nullptr ? job->uid : 2'000'000'000 + dice_.of(2);
    const uid_t uid = by_user ? owner : 0;
    const Answer answer = answer_command(rig_->monitor, {1, uid}, asked.dump(), rig_->now);
    watcher_.note("listing", asked.dump() + " -> " + plain(json::parse(answer.json)).dump());
    if (answer.created != 0) created_.push_back(answer.created);
    if (answer.awaits == Awaits::kNothing) return;
    awaited_ = answer.job;
    awaits_ = answer.awaits;
  }

  void note_answer() {
    if (awaited_ == 0) return;
    const auto text = answer_awaited(rig_->monitor, awaits_, awaited_, rig_->now, false);
    if (!text) return;
    watcher_.note("listing", "answered " + plain(json::parse(*text)).dump());
    awaited_ = 0;
  }
  Theme theme_;
  unsigned number_;
  unsigned gpus_;
  Dice dice_;
  Watcher watcher_;
  std::optional<Rig> rig_;
  std::list<Player> players_;
  Time due_{0}, looked_at_{0};
  unsigned names_ = 0, steps_ = 0;
  JobKey awaited_ = 0;
  std::vector<JobKey> created_;
  Awaits awaits_ = Awaits::kNothing;
};

}  // namespace switchyard::monitor::test
