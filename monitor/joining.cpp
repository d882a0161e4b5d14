// The part of Monitor that takes in a process: its job, its lanes, its page.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "monitor/core/ancestry.h"
#include "monitor/core/frames.h"
#include "monitor/core/lanes.h"
#include "monitor/core/observing.h"
#include "monitor/islands/failures.h"
#include "monitor/islands/members.h"
#include "monitor/monitor.h"
#include "monitor/residency/gangs.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {

// The job that the process means by an id. A process of a job that went into a container stays in
// its job, as long as the kernel shows where it comes from.
Job* Monitor::find_said(const std::string& id, const Peer& peer) {
  if (Job* job = registry_.find_id_of(id, peer.owner())) return job;
  if (peer.container.empty()) return nullptr;
  const Job* job = job_by_descent(registry_, peer.pid);
  return job != nullptr && job->id == id && job->uid == peer.uid ? registry_.find(job->key)
                                                                 : nullptr;
}

Job* Monitor::job_of(const Peer& peer, const wire::Hello& hello, const JobCard& said, Time now,
                     std::string& refused) {
  if (!parse_card(said, refused)) return nullptr;
  const bool rejoins = (hello.flags & wire::kRejoin) != 0;
  if (said.job[0] != '\0') {
    if (Job* job = find_said(said.job, peer)) {
      if (rejoins) take_over(*job, peer, said);
      return job;
    }
  }
  JobCard card = said;
  const Caps caps = caps_of(peer.owner());
  if (!rejoins) fill_empty(card, default_card(peer.owner()));
  auto knobs = parse_card(card, refused);
  if (!knobs) return nullptr;
  const std::string over = caps.exceeded(peer.owner(), *knobs, gpus_.largest());
  caps.lower(peer.owner(), *knobs, card, gpus_.largest());
  // Nobody answers a question here, so a name in use gets a number instead of a refusal.
  const bool named = card.name[0] != '\0' && card.name != std::string(card.job);
  if (named) set_text(card.name, registry_.free_name(card.name));
  if (refused = islands::refuse(registry_, peer.owner(), *knobs); !refused.empty()) return nullptr;
  Job* job = registry_.make(card, *knobs, peer.owner(), now, refused);
  if (job == nullptr) return nullptr;
  islands::enter(registry_, *job);
  if (!rejoins) job->asked = said;
  job->made_anew = !rejoins;
  bound(*job);
  if (!over.empty()) {
    spdlog::warn("pid {} of {}: {}; it gets the cap", peer.pid, user_name(peer.uid), over);
  }
  return job;
}

// After a restart, a new process of the job may come before its older ones. It knows what the job
// was started with. Theirs is what the job had: by their pages, in which `set` has its part.
void Monitor::take_over(Job& job, const Peer& peer, JobCard card) {
  const auto same = [&](pid_t pid) { return pid == peer.pid; };
  bool ours = std::any_of(departed_.begin(), departed_.end(),
                          [&](const auto& departed) { return same(departed.second.pid); });
  for_clients(registry_, job, [&](const Client& client) { ours = ours || same(client.peer.pid); });
  if (ours || peer.pid == 0 || !std::exchange(job.made_anew, false)) return;
  std::string why;
  set_text(card.job, job.id);
  set_text(card.name, job.name);
  auto knobs = parse_card(card, why);
  if (!knobs) return;
  const Owner owner = owner_of(job);
  caps_of(owner).lower(owner, *knobs, card, gpus_.largest());
  job.asked.reset();
  change(job, card, *knobs, now_);
}

bool Monitor::see_gpus(Client& client, const wire::Hello& hello, Job& job) const {
  bool more = false;
  for (unsigned lane = 0; lane < hello.lane_count; ++lane) {
    Uuid uuid{};
    std::memcpy(uuid.data(), hello.uuid[lane], uuid.size());
    const auto gpu = gpus_.find(uuid);
    if (!gpu) continue;
    // A GPU named twice is one GPU: its second lane is governed by nobody.
    const bool twice = std::any_of(client.lanes.begin(), client.lanes.end(),
                                   [&](const auto& other) { return other.second.gpu == *gpu; });
    if (twice) continue;
    client.lanes[lane].gpu = *gpu;
    // An observer sees all GPUs of the machine, whatever the job will use.
    if (!client.observer) more = job.gpus.see(*gpu) || more;
  }
  return more;
}

bool Monitor::promise(const Job& job, const Client& client, bool rejoins, Time now,
                      std::string& why) {
  if (!job.knobs.memory && !job.ceiling_bytes) return true;
  std::string lacks;
  if (memory_.reserve(job, now, lacks) != 0 || lacks.empty()) return true;
  // It is there already, or takes nothing.
  if (rejoins || client.observer) return true;
  why = lacks;
  return false;
}

void Monitor::forget_departed(pid_t pid) {
  if (pid == 0) return;
  for (auto it = departed_.begin(); it != departed_.end();) {
    if (it->second.pid == pid) {
      slice_controller_.died(it->first);
      it = departed_.erase(it);
    } else {
      ++it;
    }
  }
}

void Monitor::fill_page(Client& client, const wire::Hello& hello, Job& job, Time now) {
  const bool rejoins = (hello.flags & wire::kRejoin) != 0;
  for (const auto& [lane, state] : client.lanes) {
    const std::uint64_t used = rejoins ? hello.used_bytes[lane] : 0;
    memory_.join(client, lane, used);
    if (used == 0) continue;
    sampler_.measure_if_old(state.gpu, now);
    memory_.check_claim(client, lane, now);
  }
  residency_.join(client, rejoins);
  islands::ask_for_faults(job, client);
  if (job.pause->on && rejoins && !client.observer) gangs::keep_cut(job, client, now);
  // A job that is paused is held from the first launch of a new process on.
  if (job.pause->on) look(now);
  client.page->set_card(job.card);
  client.page->set_heartbeat(++beat_);
  client.page->publish();
}

// A job has the settings of whoever made it.
void Monitor::note_other_settings(Client& client, const wire::Hello& hello, const JobCard& said,
                                  Job& job) {
  if (client.observer || (hello.flags & wire::kRejoin) != 0 || !job.asked) return;
  const std::string others = other_settings(*job.asked, said);
  client.other_settings = !others.empty();
  if (others.empty() || std::exchange(job.told_other_settings.write(), true)) return;
  spdlog::warn(
      "pid {} asks for {}, but job '{}' was made without: it is ignored; "
      "see `switchyard set`",
      client.peer.pid, others, job.name);
}

Client* Monitor::join(const Peer& peer, const wire::Hello& hello, Time now, std::string& refused) {
  if (settings_.observes) {
    refused = kObserves;
    return nullptr;
  }
  now_ = now;
  const auto directory = PageDirectory::read(hello, refused);
  if (!directory) return nullptr;
  JobCard said;
  read_card_text(hello.card, said);  // whoever read the Hello has seen that it is one
  Job* job = job_of(peer, hello, said, now, refused);
  if (job == nullptr) return nullptr;
  auto fresh = std::make_unique<Client>();
  fresh->page = ClientPage::make(hello.lane_count, refused, *directory);
  if (fresh->page == nullptr) {
    drop_if_done(job->key);
    return nullptr;
  }
  fresh->job = job->key;
  fresh->peer = peer;
  fresh->container = container_of(peer.pid);
  fresh->process = printable(read_text(hello.process).value_or(""));
  fresh->observer = (hello.flags & wire::kObserver) != 0;
  const bool sees_more = see_gpus(*fresh, hello, *job);
  Client& client = registry_.add(std::move(fresh));
  const bool rejoins = (hello.flags & wire::kRejoin) != 0;
  job->place.add(place_of(peer.pid));
  // Where a site's Slurm has no cgroups the id is all there is. A user may choose that.
  if (job->place.slurm_job.empty()) job->place.slurm_job = slurm_job_named(said.job);
  const bool first = job->clients.size() == 1;
  if ((sees_more || first) && !promise(*job, client, rejoins, now, refused)) {
    registry_.remove(client.id);
    drop_if_done(job->key);
    return nullptr;
  }
  // From here on nothing refuses it.
  had_a_job_ = true;
  if (!has_begun(*job)) note_begin(*job, peer.pid, now);
  ledger_.joined(client, rejoins);
  samples_.joined(registry_, gpus_, *job, now);
  statistics_.counters.joined(client, rejoins);
  // The same process may have had another connection: what it left in force is this client's now.
  const bool known = std::any_of(departed_.begin(), departed_.end(), [&](const auto& departed) {
    return departed.second.pid == peer.pid && peer.pid != 0;
  });
  forget_departed(peer.pid);
  restore_pause(*job, hello, now);
  slice_controller_.join(client, known || rejoins);
  fill_page(client, hello, *job, now);
  spdlog::info("pid {} ({}) of {} joined job '{}' as client {}{}", peer.pid, client.process,
               user_name(peer.uid), job->name, client.id, client.observer ? " (observer)" : "");
  note_other_settings(client, hello, said, *job);
  return &client;
}

}  // namespace switchyard::monitor
