#include "monitor/core/registry.h"

#include <fmt/format.h>

#include <algorithm>

namespace switchyard::monitor {

// Each is looked at several times a second, by gangs, stalls and statistics. 64 processes of 128.
constexpr std::size_t kMostCommunicatorsOfUser = 8'192;

Registry::Registry(std::function<std::uint64_t()> random, const Users& users)
    : random_(std::move(random)), users_(users) {}

Job* Registry::find(JobKey key) {
  const auto found = jobs_.find(key);
  return found == jobs_.end() ? nullptr : &found->second;
}

Job* Registry::find_id(const std::string& id) {
  for (auto& [key, job] : jobs_) {
    if (job.id == id) return &job;
  }
  return nullptr;
}

Job* Registry::find_id_of(const std::string& id, const Owner& owner) {
  for (auto& [key, job] : jobs_) {
    if (owner_of(job) == owner && (job.id == id || job.said_id == id)) return &job;
  }
  return nullptr;
}

Job* Registry::find_target(const std::string& target) {
  for (auto& [key, job] : jobs_) {
    if (job.name == target) return &job;
  }
  return find_id(target);
}

Job* Registry::make(const JobCard& card, const Knobs& knobs, const Owner& owner, Time now,
                    std::string& why) {
  if (const uid_t account = account_of(owner); !users_.may_make_job(account, jobs_of(account))) {
    why = users_.too_many_jobs(owner);
    return nullptr;
  }
  std::string id = card.job;
  if (!id.empty() && find_id_of(id, owner) != nullptr) {
    why = fmt::format("a job with the id '{}' is running already", id);
    return nullptr;
  }
  while (id.empty() || find_target(id) != nullptr) id = fmt::format("j{:012x}", random_() >> 16);
  const bool unnamed = card.name[0] == '\0' || card.name == std::string(card.job);
  const std::string name = unnamed ? id : card.name;
  if (const Job* other = find_target(name)) {
    why = fmt::format("the name '{}' is in use by a job of {} (id {}): choose another name", name,
                      user_name(other->uid), other->id);
    return nullptr;
  }
  Job job;
  job.key = next_job_++;
  job.id = id;
  if (id != card.job) job.said_id = card.job;
  job.name = name;
  job.uid = owner.uid;
  job.container = owner.container;
  job.groups = owner.groups;
  job.card = card;
  set_text(job.card.job, id);
  set_text(job.card.name, name);
  job.knobs = knobs;
  // Some knobs imply it, and the library reads this one.
  if (knobs.swappable) set_text(job.card.swappable, "yes");
  job.since = now;
  job.tap = tap_;
  job.memory.tells(tap_, job.key);
  return &jobs_.emplace(job.key, std::move(job)).first->second;
}

std::size_t Registry::jobs_of(uid_t account) const {
  return static_cast<std::size_t>(
      std::count_if(jobs_.begin(), jobs_.end(), [account](const auto& job) {
        return account_of(job.second.uid, job.second.container) == account;
      }));
}

std::string Registry::free_name(const std::string& wanted) const {
  const auto taken = [this](const std::string& name) {
    for (const auto& [key, job] : jobs_) {
      if (job.name == name || job.id == name) return true;
    }
    return false;
  };
  if (!taken(wanted)) return wanted;
  for (unsigned i = 2;; ++i) {
    const std::string ending = "-" + std::to_string(i);
    std::string name = wanted.substr(0, 63 - ending.size()) + ending;
    if (!taken(name)) return name;
  }
}

Client& Registry::add(std::unique_ptr<Client> client) {
  client->id = next_client_++;
  Client& added = *client;
  jobs_.at(added.job).clients.insert(added.id);
  ++clients_of_[added.peer.account()];
  clients_.emplace(added.id, std::move(client));
  bound(added);
  return added;
}

void Registry::bound(const Client& client) const {
  if (!users_.bounded(client.peer.account())) return;
  client.page->bound_communicators(part_of(
      kMostCommunicatorsOfUser, clients_of(client.peer.account()), abi::kMostCommunicators));
}

void Registry::next_tick() {
  work_.next_tick();
  for (const auto& [id, client] : clients_) bound(*client);
}

Client* Registry::client(ClientId id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

void Registry::remove(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const auto job = jobs_.find(found->second->job);
  if (job != jobs_.end()) job->second.clients.erase(id);
  const auto user = clients_of_.find(found->second->peer.account());
  if (--user->second == 0) clients_of_.erase(user);
  clients_.erase(found);
}

std::size_t Registry::clients_of(uid_t account) const {
  const auto found = clients_of_.find(account);
  return found != clients_of_.end() ? found->second : 0;
}

}  // namespace switchyard::monitor
