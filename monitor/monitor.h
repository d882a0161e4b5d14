// The monitor without its sockets: who joins, what they get, what people ask. Everything happens in
// answer to a call, and every call is told the time, so the whole of it runs in a unit test.
//
// Concept. The loop (server.h) turns sockets, timers and dead processes into these calls. A folder
// each has the jobs (core), accounts, scheduling, residency, statistics and adaptation; this class
// composes them, and commands.h answers tools out of them.
//
// Threading: one thread.
#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/accounting/nvml_sampler.h"
#include "monitor/accounting/unmanaged.h"
#include "monitor/adaptation/gang_pace.h"
#include "monitor/adaptation/guards.h"
#include "monitor/adaptation/weights.h"
#include "monitor/config/rules.h"
#include "monitor/core/refused_processes.h"
#include "monitor/core/registry.h"
#include "monitor/core/shared_memory.h"
#include "monitor/history/journal.h"
#include "monitor/history/ledger.h"
#include "monitor/history/store.h"
#include "monitor/platform/closer.h"
#include "monitor/platform/gpus.h"
#include "monitor/platform/line_bound.h"
#include "monitor/platform/users.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/residency/migrations.h"
#include "monitor/residency/pausing.h"
#include "monitor/residency/residency.h"
#include "monitor/scheduling/scheduler.h"
#include "monitor/scheduling/slice_controller.h"
#include "monitor/statistics/statistics.h"
#include "monitor/status/snapshot.h"
#include "monitor/timeline/samples.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

struct Settings {
  std::string socket;
  bool socket_passed = false;  // systemd listens on it, and starts the next monitor
  bool persist = false;
  bool observes = false;  // it governs nothing: no process joins it, and it takes no commands
  std::optional<std::uint64_t> capacity;  // at most so much of each GPU is given out
  std::uint64_t host_pool_bytes = 0;      // pinned memory of the host for what is swapped out
  Caps caps;                              // for all users but root,
  config::Rules user_rules;               // and what the file says of some
  std::vector<config::Shown> shown;       // what was said, and where, for people
  std::string log_level = "info";
  bool bills_of_all = true;   // users see what others used
  uid_t owner = ::geteuid();  // besides root, who is not bounded as other users are (users.h)
  Users::Most users;
  Means means = Means::kAuto;
  policy::Rules rules;
  TurnSettings turns;
  Time idle_exit = std::chrono::seconds(5);   // after the last job
  Time first_job = std::chrono::seconds(60);  // to wait for the first one
};

class Monitor {
 public:
  Monitor(Gpus& gpus, Settings settings, Time now, std::function<std::uint64_t()> random);

  // A Hello that was read and found well-formed. Nullptr when refused, with a text for the person.
  Client* join(const Peer& peer, const wire::Hello& hello, Time now, std::string& refused);
  wire::Charged charge(ClientId id, const wire::Charge& asked, Time now);
  wire::Charged refresh(ClientId id, const wire::Charge& asked, Time now);
  // Its socket closed. Its memory goes back to the account; what its process had in slices stays in
  // force until died(). `watch` is kept until then.
  void left(ClientId id, std::shared_ptr<void> watch = nullptr);
  // Its process is dead.
  void died(ClientId id);

  // Makes a job for processes to come. `creator` keeps it alive until creator_died().
  Job* create(const JobCard& card, const Owner& owner, pid_t creator,
              const std::vector<std::size_t>& gpus, Time now, std::string& why);
  // `wait_status`: how it ended (process_end.h), where that is known.
  void creator_died(JobKey key, std::optional<int> wait_status = {});
  // New knobs for a job, in force at once. REQUIRES: the caller checked permission and room.
  void change(Job& job, const JobCard& card, const Knobs& knobs, Time now);

  // What root allows that owner, and what its jobs have by the file when they ask for nothing.
  Caps caps_of(const Owner& owner) const;
  JobCard default_card(const Owner& owner) const;
  // Puts into force what counts at once of settings that were read anew (reconfigure.cpp). Jobs
  // keep what they were given. Answers what changed, as text: at once, and with the next start.
  struct Changes {
    std::vector<std::string> now, later;
  };
  Changes reconfigure(Settings fresh, Time now);

  // Holds a job back, from now on and in one look. REQUIRES: the job is swappable, where its memory
  // is to leave, and for swap_out() and swap_in(). `by`: the person who asks.
  void pause(Job& job, const PauseWish& wish, Time now);
  void resume(Job& job, Time now, const std::optional<Peer>& by = {});
  void swap_out(Job& job, Time now, const std::optional<Peer>& by = {});
  void swap_in(Job& job, Time now, const std::optional<Peer>& by = {});
  // It goes to another GPU. REQUIRES: Migrations::why_not() has nothing against it.
  void migrate(Job& job, std::size_t to, Time now, const std::optional<Peer>& by = {});
  // Brings what is known of unmanaged processes up to NVML's last answers.
  void look_at_unmanaged(Time now);
  // Computes each job's status as of now.
  void look_at_status(Time now);
  // The same, and adds to the sums what each job had and waited for since the last time.
  void count_usage(Time now);
  // For who waits for memory to leave or to come back.
  void follow_residency(Time now);
  // Units of work so far (core/work.h).
  std::uint64_t work() const;

  // `then` is called with each job that ends, before it is forgotten.
  void when_a_job_ends(std::function<void(const Job&, Time)> then) { job_ends_ = std::move(then); }

  // Several times a second: heartbeat, accounts; NVML once a second.
  void tick(Time now);
  // Decides and applies, for every GPU. Answers when to look at those that are due; 0: when
  // something happens.
  Time look(Time now);
  Time look_at_due(Time now);
  // A client rang: the same for its GPUs.
  Time look_at_those_of(ClientId id, Time now);
  // A person wants it to end, whatever jobs there are.
  void end() { ending_ = true; }
  // Nobody needs this monitor any more.
  bool done(Time now) const;

  Gpus& door() { return door_; }
  Registry& registry() { return registry_; }
  RefusedProcesses& refused_processes() { return refused_processes_; }
  Journal& journal() { return journal_; }
  GpuAccounts& gpus() { return gpus_; }
  NvmlSampler& sampler() { return sampler_; }
  const Unmanaged& unmanaged() const { return unmanaged_; }
  MemoryBroker& memory() { return memory_; }
  Migrations& migrations() { return migrations_; }
  SliceController& slice_controller() { return slice_controller_; }
  Scheduler& scheduler() { return scheduler_; }
  SharedMemory& shared_memory() { return shared_memory_; }
  Closer& closer() { return closer_; }
  Users& users() { return users_; }
  LineBound& command_lines() { return command_lines_; }
  // From now on the history is kept there; it must live as long.
  void records_to(history::Store& store);
  history::Store* history() { return store_; }  // null: none is kept
  history::Ledger& ledger() { return ledger_; }
  const timeline::Samples& samples() const { return samples_; }
  Statistics& statistics() { return statistics_; }
  const status::Statuses& statuses() const { return statuses_; }
  const Guards& guards() const { return guards_; }
  const Settings& settings() const { return settings_; }
  Time started() const { return started_; }

 private:
  void bound(Job& job);  // by the caps of its owner
  void name_users_rules();
  void give_island_its_class(const Job& job, Time now);
  void take_over(Job& job, const Peer& peer, JobCard card);
  // `said`: the card of the Hello.
  Job* find_said(const std::string& id, const Peer& peer);
  Job* job_of(const Peer& peer, const wire::Hello& hello, const JobCard& said, Time now,
              std::string& refused);
  // Makes its lanes. True: the job sees more GPUs now.
  bool see_gpus(Client& client, const wire::Hello& hello, Job& job) const;
  // Promises the job's quota on what it sees. False: nowhere, and `why` says who holds what.
  bool promise(const Job& job, const Client& client, bool rejoins, Time now, std::string& why);
  void fill_page(Client& client, const wire::Hello& hello, Job& job, Time now);
  void log_refused_memory(const Client& client, const wire::Charge& asked,
                          const wire::Charged& charged, Time now);
  static void note_other_settings(Client& client, const wire::Hello& hello, const JobCard& said,
                                  Job& job);
  void forget_departed(pid_t pid);
  void drop_if_done(JobKey key);
  void note_begin(const Job& job, pid_t pid, Time now);
  // Whether note_begin() told of it.
  bool has_begun(const Job& job) const { return journal_.name_of(job.key) != nullptr; }
  void note_refused_memory(const Client& client, const wire::Charge& asked, std::size_t gpu,
                           std::uint32_t verdict, Time now);
  bool follow_jobs(Time now);
  void follow_soon(Time now);
  bool adapt_if_due(Time now);
  Time next_due() const;

  Gpus& door_;
  Settings settings_;
  Time started_;
  Users users_;
  LineBound command_lines_{60};  // of each user
  LineBound memory_lines_{1};    // of each job
  Journal journal_;
  Registry registry_;
  RefusedProcesses refused_processes_;
  GpuAccounts gpus_;
  NvmlSampler sampler_;
  Unmanaged unmanaged_;
  MemoryBroker memory_;
  Residency residency_;
  SliceController slice_controller_;
  Migrations migrations_;
  Scheduler scheduler_;
  status::Statuses statuses_;
  Statistics statistics_;
  history::Ledger ledger_{registry_, gpus_, unmanaged_, statuses_, statistics_.usage};
  history::Store* store_ = nullptr;
  timeline::Samples samples_;
  Guards guards_;
  Weights weights_;
  GangPace gang_pace_;
  Closer closer_;
  SharedMemory shared_memory_;
  // Clients whose socket closed and whose process may live.
  struct Departed {
    pid_t pid = 0;
    bool watched = true;
    Time until{0};  // when a process that nobody watches counts as dead
    std::shared_ptr<void> watch = nullptr;
  };
  std::map<ClientId, Departed> departed_;
  std::uint64_t beat_ = 1;
  Time now_{0};
  Time loads_at_{0};
  Time followed_at_{0};      // when all jobs were followed last,
  Time follow_again_at_{0};  // and shall be again; 0: when something happens
  Time last_job_at_;
  std::function<void(const Job&, Time)> job_ends_;
  bool had_a_job_ = false;
  bool ending_ = false;
};

}  // namespace switchyard::monitor
