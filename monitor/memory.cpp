#include "monitor/memory.h"

#include <algorithm>
#include <map>

#include "monitor/text.h"

namespace switchyard::monitor {
namespace {

constexpr Time kMeasureEvery = std::chrono::seconds(1);
constexpr Time kOldReading = std::chrono::milliseconds(50);
// A waiting client asks again every 100 ms; one that did not for this long has given up.
constexpr Time kStillWaits = std::chrono::milliseconds(1000);
constexpr std::uint64_t kGranule = 2ull << 20;  // what the driver allocates in

std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

Memory::Memory(Gpus& gpus, Roster& roster, std::optional<std::uint64_t> capacity)
    : door_(gpus), roster_(roster), capacity_(capacity) {
  for (const GpuInfo& info : door_.list()) {
    gpus_.emplace_back();
    gpus_.back().info = info;
    gpus_.back().account.set_capacity(capacity);
  }
}

std::optional<std::size_t> Memory::find(const Uuid& uuid) const {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].info.uuid == uuid) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> Memory::find_text(const std::string& uuid_text) const {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].info.uuid_text == uuid_text) return i;
  }
  return std::nullopt;
}

std::vector<Memory::Place> Memory::places(std::size_t gpu) {
  std::vector<Place> out;
  for (auto& [id, client] : roster_.clients()) {
    for (auto& [lane, state] : client->lanes) {
      if (state.gpu == gpu) out.push_back({client.get(), lane, &state});
    }
  }
  return out;
}

std::optional<Memory::Place> Memory::place(std::size_t gpu, ClientId id) {
  Client* client = roster_.client(id);
  if (client == nullptr) return std::nullopt;
  for (auto& [lane, state] : client->lanes) {
    if (state.gpu == gpu) return Place{client, lane, &state};
  }
  return std::nullopt;
}

void Memory::read_credits(std::size_t gpu) {
  Account& account = gpus_[gpu].account;
  for (const Place& each : places(gpu)) {
    const Account::Holding* holding = account.holding(each.client->id);
    if (holding == nullptr) continue;
    account.set_credit(each.client->id, each.client->page->credit(each.lane, holding->granted));
  }
}

void Memory::write_page(Gpu& gpu, const Place& place, const Account::Totals& totals) {
  const auto quota = gpu.account.quota(place.client->job);
  ClientPage& page = *place.client->page;
  page.set_quota(place.lane, quota ? quota->bytes : 0);
  if (!place.client->observer) {
    page.set_account(place.lane, gpu.account.others_used(place.client->id, totals),
                     gpu.account.available(place.client->id, totals));
    return;
  }
  // An observer uses nothing itself: all that its job uses is "others".
  const auto found = totals.jobs.find(place.client->job);
  const auto sums = found != totals.jobs.end() ? found->second : Account::Totals::Sums{};
  const std::uint64_t used = minus(sums.granted, sums.credit) + sums.overhead;
  page.set_account(place.lane, used, quota ? minus(quota->bytes, used) : totals.free);
}

void Memory::write_pages(std::size_t gpu, std::optional<JobKey> only) {
  const Account::Totals totals = gpus_[gpu].account.totals();
  for (const Place& each : places(gpu)) {
    if (!only || each.client->job == *only) write_page(gpus_[gpu], each, totals);
  }
}

std::uint64_t Memory::take_back(std::size_t gpu, ClientId id, std::uint64_t bytes) {
  const auto where = place(gpu, id);
  Account& account = gpus_[gpu].account;
  const Account::Holding* holding = account.holding(id);
  if (!where || holding == nullptr) return 0;
  const std::uint64_t taken = where->client->page->take_back(where->lane, bytes, holding->granted);
  account.taken_back(id, taken);
  return taken;
}

void Memory::take_from_givers(std::size_t gpu, JobKey job, ClientId except, std::uint64_t want) {
  for (const ClientId giver : gpus_[gpu].account.givers(job, except)) {
    if (want == 0) return;
    want -= std::min(want, take_back(gpu, giver, want));
  }
}

void Memory::rebalance(std::size_t gpu) {
  Account& account = gpus_[gpu].account;
  std::map<JobKey, std::uint64_t> over;
  for (const auto& [id, holding] : account.holdings()) {
    const auto quota = account.quota(holding.job);
    if (quota) over[holding.job] = minus(account.charged(holding.job), quota->bytes);
  }
  // An overdrawn GPU takes back what lies idle outside of promises.
  std::uint64_t overdrawn = account.overdrawn();
  std::vector<ClientId> ids;
  for (const auto& [id, holding] : account.holdings()) ids.push_back(id);
  for (const ClientId id : ids) {
    const JobKey job = account.holding(id)->job;
    const auto quota = account.quota(job);
    if (quota && over[job] > 0) over[job] -= std::min(over[job], take_back(gpu, id, over[job]));
    if (overdrawn > 0 && (!quota || !quota->reserved)) {
      overdrawn -= std::min(overdrawn, take_back(gpu, id, overdrawn));
    }
  }
}

void Memory::measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                               const std::vector<std::uint64_t>& used_before) {
  Gpu& at = gpus_[gpu];
  std::map<pid_t, std::uint64_t> bytes;
  std::uint64_t listed_sum = 0;
  for (const ProcessMemory& process : listed) {
    bytes[process.pid] = process.bytes;
    listed_sum += process.bytes;
  }
  // Newest first: of two connections of one process the newer one stands for it.
  std::vector<std::pair<Place, std::uint64_t>> unlisted;
  std::map<pid_t, bool> ours;
  std::uint64_t unlisted_used = 0;
  const auto all = places(gpu);
  for (std::size_t i = all.size(); i-- > 0;) {
    const Place& each = all[i];
    const Account::Holding* holding = at.account.holding(each.client->id);
    const pid_t pid = each.client->peer.pid;
    const bool first = pid == 0 || ours.emplace(pid, true).second;
    if (holding == nullptr) continue;
    const auto found = bytes.find(pid);
    const std::uint64_t used_after = holding->used();
    if (found != bytes.end() && first) {
      each.state->nvml_bytes = found->second;
      each.state->overhead.reading(found->second, used_before[i], used_after);
    } else {
      each.state->nvml_bytes = std::nullopt;
      if (first && each.client->page->report(each.lane).contexts > 0) {
        unlisted.emplace_back(each, used_after);
        unlisted_used += used_after;
      } else {
        each.state->overhead.reading(0, 0, 0);
      }
    }
    at.account.set_overhead(each.client->id, each.state->overhead.value());
  }
  at.outsiders.clear();
  at.mps = false;
  std::uint64_t outside = 0;
  for (const auto& [pid, used] : bytes) {
    if (ours.contains(pid)) continue;
    at.outsiders.push_back({pid, used});
    at.mps = at.mps || process_name(pid).rfind("nvidia-cuda-mps", 0) == 0;
    outside += used;
  }
  // In some sandboxes NVML names processes by PIDs that we don't know, or not at all. Then what is
  // used by nobody is divided among those of our clients that it does not name; the part that was
  // there before them is somebody else's.
  const std::uint64_t remainder = minus(at.memory.used_bytes, listed_sum);
  if (unlisted.empty()) {
    at.unlisted_before = at.unlisted;
    at.unlisted = remainder;
  }
  const std::uint64_t baseline = std::min(at.unlisted, at.unlisted_before);
  for (const auto& [each, used] : unlisted) {
    const std::uint64_t extra =
        minus(remainder, baseline + unlisted_used) / std::max<std::size_t>(1, unlisted.size());
    each.state->overhead.reading(used + extra, used, used);
    at.account.set_overhead(each.client->id, each.state->overhead.value());
  }
  at.account.set_outside(outside + baseline);
}

void Memory::measure(std::size_t gpu, Time now) {
  Gpu& at = gpus_[gpu];
  at.measured_at = now;
  at.stale = false;
  read_credits(gpu);
  std::vector<std::uint64_t> used_before;
  for (const Place& each : places(gpu)) {
    const Account::Holding* holding = at.account.holding(each.client->id);
    used_before.push_back(holding != nullptr ? holding->used() : 0);
  }
  if (const auto memory = door_.memory(gpu)) at.memory = *memory;
  const auto listed = door_.processes(gpu);
  read_credits(gpu);
  if (listed) measure_overheads(gpu, *listed, used_before);
  if (at.memory.total_bytes > 0) {
    std::uint64_t capacity = minus(at.memory.total_bytes, at.memory.reserved_bytes);
    // A capacity lowered by --capacity is ours alone: outside processes use what is beyond it.
    if (capacity_) capacity = std::min(capacity, *capacity_ + at.account.outside());
    at.account.set_capacity(capacity);
  }
}

void Memory::measure_all(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) measure(i, now);
}

void Memory::measure_due(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].stale || now - gpus_[i].measured_at >= kMeasureEvery) measure(i, now);
  }
}

void Memory::measure_if_old(std::size_t gpu, Time now) {
  if (now - gpus_[gpu].measured_at >= kOldReading) measure(gpu, now);
}

void Memory::measure_loads() {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const auto all = places(i);
    if (all.empty()) continue;
    const auto loads = door_.loads(i);
    if (!loads) continue;
    for (const Place& each : all) {
      // A process without a sample since the last time did not run.
      if (each.state->load >= 0) each.state->load = 0;
      for (const ProcessLoad& load : *loads) {
        if (load.pid == each.client->peer.pid && load.pid != 0) each.state->load = load.ratio;
      }
    }
  }
}

std::vector<std::size_t> Memory::gpus_of(const Job& job) const {
  std::vector<std::size_t> out(job.seen.begin(), job.seen.end());
  // Not known yet: it may become any of them.
  if (out.empty()) {
    for (std::size_t i = 0; i < gpus_.size(); ++i) out.push_back(i);
  }
  return out;
}

bool Memory::make_room(std::size_t gpu, JobKey job, std::uint64_t bytes, Time now) {
  Account& account = gpus_[gpu].account;
  measure_if_old(gpu, now);
  read_credits(gpu);
  if (account.fits(job, bytes)) return true;
  // Credit that lies idle in jobs without a promise is nobody's yet.
  for (const auto& [id, holding] : std::map(account.holdings())) {
    const auto quota = account.quota(holding.job);
    if (quota && quota->reserved) continue;
    take_back(gpu, id, holding.credit);
    if (account.fits(job, bytes)) return true;
  }
  return false;
}

std::string Memory::who_holds_what(std::size_t gpu, JobKey except, std::uint64_t asked) {
  const Gpu& at = gpus_[gpu];
  std::string out = fmt::format("{} were asked on {}", bytes_text(asked), at.info.uuid_text);
  if (at.account.capacity())
    out += fmt::format(", which has {}", bytes_text(*at.account.capacity()));
  std::uint64_t others = at.account.outside();
  for (const auto& [key, job] : roster_.jobs()) {
    const std::uint64_t held = at.account.held(key);
    if (key == except || held == 0) continue;
    others += held;
    out += fmt::format("; job '{}' of {} holds {}", job.name, user_name(job.uid), bytes_text(held));
  }
  if (at.account.outside() > 0) {
    out += fmt::format("; outside processes hold {}", bytes_text(at.account.outside()));
  }
  const std::uint64_t left = minus(at.account.capacity().value_or(0), others);
  return out + fmt::format("; {} are left: ask for less, or end one of these", bytes_text(left));
}

std::size_t Memory::reserve(const Job& job, Time now, std::string& why) {
  const auto applies = gpus_of(job);
  std::size_t promised = 0;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    Account& account = gpus_[i].account;
    const bool here = std::find(applies.begin(), applies.end(), i) != applies.end();
    if (!job.knobs.memory_bytes || !here) {
      account.clear_quota(job.key);
      continue;
    }
    const bool fits = make_room(i, job.key, *job.knobs.memory_bytes, now);
    account.set_quota(job.key, {*job.knobs.memory_bytes, fits});
    if (fits) {
      ++promised;
    } else if (why.empty()) {
      why = who_holds_what(i, job.key, *job.knobs.memory_bytes);
    }
  }
  return promised;
}

bool Memory::can_become(const Job& job, std::uint64_t bytes, Time now, std::string& why) {
  for (const std::size_t gpu : gpus_of(job)) {
    const auto quota = gpus_[gpu].account.quota(job.key);
    // Less than now is always granted: below use it refuses new allocations only.
    if (quota && bytes <= quota->bytes) continue;
    if (make_room(gpu, job.key, bytes, now)) continue;
    why = who_holds_what(gpu, job.key, bytes);
    return false;
  }
  return true;
}

void Memory::forget(const Job& job) {
  for (Gpu& gpu : gpus_) gpu.account.clear_quota(job.key);
}

void Memory::join(Client& client, unsigned lane, std::uint64_t used_bytes) {
  const auto found = client.lanes.find(lane);
  if (found == client.lanes.end()) return;
  Gpu& gpu = gpus_[found->second.gpu];
  // What it allocated under another monitor is granted by force; more than the GPU has can't be.
  if (gpu.memory.total_bytes > 0) used_bytes = std::min(used_bytes, gpu.memory.total_bytes);
  if (!client.observer) gpu.account.join(client.id, client.job, used_bytes);
  write_page(gpu, {&client, lane, &found->second}, gpu.account.totals());
}

void Memory::leave(const Client& client) {
  for (const auto& [lane, state] : client.lanes) {
    gpus_[state.gpu].account.leave(client.id);
    gpus_[state.gpu].stale = true;
  }
}

wire::Charged Memory::charge(Client& client, unsigned lane, std::uint64_t bytes, Time now) {
  wire::Charged out{};
  const auto found = client.lanes.find(lane);
  if (client.observer || found == client.lanes.end()) {
    // A GPU that we don't govern: nothing to account, so nothing to refuse.
    if (lane < client.page->lane_count() && !client.observer) client.page->grant(lane, bytes);
    out.granted_bytes = client.observer ? 0 : bytes;
    out.available_bytes = ~0ull;
    return out;
  }
  const std::size_t gpu = found->second.gpu;
  Account& account = gpus_[gpu].account;
  // What is near its end is handed out by fresh figures only.
  if (account.quota(client.job) || gpus_[gpu].stale) measure_if_old(gpu, now);
  read_credits(gpu);
  rebalance(gpu);
  const auto needed = [&] {
    const std::uint64_t missing = minus(bytes, account.holding(client.id)->credit);
    // Rounded up, unless that would wrap around.
    return missing > ~0ull - kGranule ? missing : (missing + kGranule - 1) / kGranule * kGranule;
  };
  const auto missing = [&] { return minus(bytes, account.holding(client.id)->credit); };
  if (missing() > account.headroom(client.job)) {
    take_from_givers(gpu, client.job, client.id, minus(needed(), account.headroom(client.job)));
  }
  if (missing() > account.headroom(client.job)) {
    measure_if_old(gpu, now);
    rebalance(gpu);
  }
  const std::uint64_t room = account.headroom(client.job);
  if (missing() <= room) {
    const std::uint64_t need = std::min(needed(), room);
    const std::uint64_t size = need == 0 ? 0 : account.grant_size(client.job, need);
    account.granted(client.id, size);
    client.page->grant(lane, size);
    found->second.waits_since = Time{0};
    out.verdict = wire::kGranted;
    out.granted_bytes = size;
  } else {
    out.verdict = refuse(gpu, client, found->second, now);
  }
  write_pages(gpu, client.job);
  out.available_bytes = account.available(client.id);
  return out;
}

wire::Verdict Memory::refuse(std::size_t gpu, Client& client, Client::Lane& lane, Time now) {
  const Job* job = roster_.find(client.job);
  const bool quota = gpus_[gpu].account.quota(client.job).has_value();
  if (job == nullptr || !job->knobs.wait_on_oom) return quota ? wire::kOverQuota : wire::kGpuFull;
  if (lane.waits_since == Time{0} || now - lane.last_asked > kStillWaits) lane.waits_since = now;
  lane.last_asked = now;
  if (now - lane.waits_since < job->knobs.oom_timeout && !everybody_waits(gpu, client, now)) {
    return wire::kWait;
  }
  lane.waits_since = Time{0};
  return wire::kWaitsInVain;
}

// Whether all who could give memory to `asking` wait for memory themselves. Within a promise these
// are the job's own processes; outside of promises everybody who holds anything, since the end of a
// job with a promise helps too.
bool Memory::everybody_waits(std::size_t gpu, const Client& asking, Time now) {
  const Account& account = gpus_[gpu].account;
  const auto quota = account.quota(asking.job);
  const bool own_promise = quota && quota->reserved;
  for (const Place& each : places(gpu)) {
    if (each.client->id == asking.id || (own_promise && each.client->job != asking.job)) continue;
    const Account::Holding* holding = account.holding(each.client->id);
    if (holding == nullptr || holding->used() + holding->overhead == 0) continue;
    const bool waits =
        each.state->waits_since != Time{0} && now - each.state->last_asked <= kStillWaits;
    if (!waits) return false;
  }
  if (own_promise) return true;
  for (const auto& [key, job] : roster_.jobs()) {
    // A promise without a process yet will be used or ended by somebody who is not waiting.
    if (key != asking.job && job.clients.empty() && account.held(key) > 0) return false;
  }
  return account.outside() == 0;
}

}  // namespace switchyard::monitor
