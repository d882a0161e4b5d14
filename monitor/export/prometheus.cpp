#include "monitor/export/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace switchyard::monitor::metrics {
namespace {

constexpr const char* kDirections[] = {"out", "in"};
constexpr const char* kBackends[] = {"slice", "gate", "slice+gate", "none"};

// A letter of UTF-8 at the begin of `text`: its bytes; 0: there is none.
std::size_t letter_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 && first <= 0xf4   ? 4
                            : first >= 0xe0 && first <= 0xef ? 3
                            : first >= 0xc2 && first <= 0xdf ? 2
                                                             : 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Written too long, halves of pairs, and what lies beyond the last code point.
  const bool bad = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                   (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
  return bad ? 0 : bytes;
}

// The text of a page: one family after the other.
class Page {
 public:
  explicit Page(const Snapshot& snapshot) {
    monitor_ = fmt::format(R"(hostname="{}")", label_text(snapshot.hostname));
    for (const Gpu& gpu : snapshot.gpus) {
      gpus_.push_back(fmt::format(
          R"(gpu="{0}",UUID="{1}",pci_bus_id="{2}",device="nvidia{0}",modelName="{3}",{4})",
          gpu.index, label_text(gpu.uuid), label_text(gpu.pci_bus_id), label_text(gpu.model),
          monitor_));
    }
  }

  void begin(const Family& family) {
    family_ = &family;
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", family.name,
                   family.help, family.type);
  }
  // `suffix`: of the name. `own`: the family's own labels, with a comma before.
  template <typename Value>
  void add(const std::string& labels, Value value, std::string_view own = {},
           std::string_view suffix = {}) {
    fmt::format_to(std::back_inserter(text_), "{}{}{{{}{}}} {}\n", family_->name, suffix, labels,
                   own, value);
  }
  const std::string& monitor() const { return monitor_; }
  const std::string& gpu(std::size_t at) const { return gpus_[at]; }
  std::string job(const Job& job, const OnGpu& on) const {
    std::string out = fmt::format(R"({},job_name="{}",user="{}",priority="{}")", gpus_[on.gpu],
                                  label_text(job.name), label_text(job.user), job.priority);
    const auto add = [&out](const char* label, const std::string& text) {
      if (!text.empty()) out += fmt::format(R"(,{}="{}")", label, label_text(text));
    };
    add("slurmjobid", job.place.slurm_job);
    add("container_id", job.place.container);
    add("pod_uid", job.place.pod);
    add("unit", job.place.unit);
    add("pod", job.pod.pod);
    add("namespace", job.pod.name_space);
    add("container", job.pod.container);
    return out;
  }
  std::string user(const std::string& name, std::size_t gpu) const {
    return fmt::format(R"({},user="{}")", gpus_[gpu], label_text(name));
  }
  std::string take() { return std::move(text_); }

 private:
  const Family* family_ = nullptr;
  std::string text_, monitor_;
  std::vector<std::string> gpus_;
};

// A job on one GPU, with its labels as text.
struct Row {
  const Job* job;
  const OnGpu* on;
  std::string labels;
};

// A name that is no family stops the build.
constexpr const Family& family(std::string_view name) {
  for (const Family& each : kFamilies) {
    if (name == each.name) return each;
  }
  throw "there is no such family";
}

std::string label(const char* name, std::string_view value) {
  return fmt::format(R"(,{}="{}")", name, value);
}

void add_monitor(Page& page, const Snapshot& seen, std::size_t dropped) {
  const auto one = [&page](const Family& family, auto value, std::string_view own = {}) {
    page.begin(family);
    page.add(page.monitor(), value, own);
  };
  one(family("switchyard_build_info"), 1,
      label("version", label_text(seen.version)) +
          label("driver_version", label_text(seen.driver_version)));
  one(family("switchyard_start_time_seconds"), seen.start_time_seconds);
  one(family("switchyard_series_dropped"), dropped);
  one(family("switchyard_jobs"), seen.living_jobs);
  one(family("switchyard_host_pool_size_bytes"), seen.host_pool_bytes);
  one(family("switchyard_host_pool_used_bytes"), seen.host_pool_used_bytes);
}

void add_gpus(Page& page, const Snapshot& seen) {
  const auto each = [&](const Family& family, auto add) {
    page.begin(family);
    for (std::size_t i = 0; i < seen.gpus.size(); ++i) add(page.gpu(i), seen.gpus[i]);
  };
  const auto value = [&](const Family& family, auto member) {
    each(family, [&](const std::string& labels, const Gpu& gpu) { page.add(labels, gpu.*member); });
  };
  const auto known = [&](const Family& family, auto member) {
    each(family, [&](const std::string& labels, const Gpu& gpu) {
      if (gpu.*member) page.add(labels, *(gpu.*member));
    });
  };
  value(family("switchyard_gpu_busy_seconds_total"), &Gpu::busy_seconds);
  known(family("switchyard_gpu_memory_total_bytes"), &Gpu::memory_total_bytes);
  known(family("switchyard_gpu_memory_used_bytes"), &Gpu::memory_used_bytes);
  value(family("switchyard_gpu_unmanaged_memory_bytes"), &Gpu::unmanaged_memory_bytes);
  value(family("switchyard_gpu_unmanaged_processes"), &Gpu::unmanaged_processes);
  each(family("switchyard_gpu_backend"), [&](const std::string& labels, const Gpu& gpu) {
    for (const char* backend : kBackends) {
      page.add(labels, gpu.backend == backend ? 1 : 0, label("backend", backend));
    }
  });
}

void add_sums(Page& page, const std::vector<Row>& rows) {
  const auto each = [&](const Family& family, auto add) {
    page.begin(family);
    for (const Row& row : rows) add(row.labels, row.on->sums);
  };
  each(family("switchyard_gpu_seconds_total"),
       [&](const auto& labels, const Sums& sums) { page.add(labels, sums.gpu_seconds); });
  each(family("switchyard_gpu_seconds_estimated_total"),
       [&](const auto& labels, const Sums& sums) { page.add(labels, sums.estimated_seconds); });
  each(family("switchyard_wait_seconds_total"), [&](const auto& labels, const Sums& sums) {
    for (std::size_t i = 0; i < Usage::kReasons.size(); ++i) {
      page.add(labels, sums.waits_seconds[i], label("reason", stalls::key_of(Usage::kReasons[i])));
    }
    page.add(labels, sums.slices_seconds, label("reason", "slices"));
  });
}

void add_counters(Page& page, const std::vector<Row>& rows) {
  const auto each = [&](const Family& family, auto add) {
    page.begin(family);
    for (const Row& row : rows) add(row.labels, row.on->sums.counters);
  };
  each(family("switchyard_switches_total"), [&](const auto& labels, const Counters::OfGpu& counts) {
    page.add(labels, counts.gate_openings);
  });
  each(family("switchyard_swap_bytes_total"),
       [&](const auto& labels, const Counters::OfGpu& counts) {
         page.add(labels, counts.swapped_out_bytes, label("direction", kDirections[0]));
         page.add(labels, counts.swapped_in_bytes, label("direction", kDirections[1]));
       });
  each(family("switchyard_refusals_total"), [&](const auto& labels, const Counters::OfGpu& counts) {
    for (std::size_t i = 0; i < counts.refusals.size(); ++i) {
      page.add(labels, counts.refusals[i], label("reason", Counters::kRefusedNames[i]));
    }
  });
}

void add_gauges(Page& page, const std::vector<Row>& rows) {
  const auto living = [&](const Family& family, auto add) {
    page.begin(family);
    for (const Row& row : rows) {
      if (!row.job->ended) add(row.labels, row);
    }
  };
  const auto known = [&page](const std::string& labels, const auto& value) {
    if (value) page.add(labels, *value);
  };
  living(family("switchyard_memory_used_bytes"),
         [&](const auto& labels, const Row& row) { page.add(labels, row.on->used_bytes); });
  living(family("switchyard_memory_quota_bytes"),
         [&](const auto& labels, const Row& row) { known(labels, row.on->quota_bytes); });
  living(family("switchyard_memory_swapped_bytes"),
         [&](const auto& labels, const Row& row) { page.add(labels, row.on->swapped_bytes); });
  living(family("switchyard_share_ratio"),
         [&](const auto& labels, const Row& row) { known(labels, row.on->share); });
  living(family("switchyard_limit_ratio"),
         [&](const auto& labels, const Row& row) { known(labels, row.job->limit); });
}

void add_states(Page& page, const std::vector<Row>& rows) {
  page.begin(family("switchyard_job_state"));
  for (const Row& row : rows) {
    for (std::size_t state = 0; state < kStates; ++state) {
      page.add(row.labels, row.on->state == state ? 1 : 0, label("state", state_name(state)));
    }
  }
  page.begin(family("switchyard_stalled_ranks"));
  for (const Row& row : rows) {
    if (!row.job->ended) page.add(row.labels, row.job->stalled_ranks);
  }
}

void add_burst_waits(Page& page, const std::vector<Row>& rows) {
  page.begin(family("switchyard_burst_wait_seconds"));
  for (const Row& row : rows) {
    if (!row.job->high) continue;
    const BurstWaits& waits = row.on->sums.counters.waits;
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < BurstWaits::kMostUs.size(); ++i) {
      count += waits.counts[i];
      page.add(row.labels, count, label("le", fmt::format("{}", BurstWaits::kMostUs[i] / 1e6)),
               "_bucket");
    }
    count += waits.counts.back();
    page.add(row.labels, count, label("le", "+Inf"), "_bucket");
    page.add(row.labels, static_cast<double>(waits.sum_us) / 1e6, {}, "_sum");
    page.add(row.labels, count, {}, "_count");
  }
}

// At most, of one row: every family with all of its own labels.
constexpr std::size_t kSeriesOfRow =
    2 + (Usage::kReasons.size() + 1) + 1 + 2 + Counters::kRefusedNames.size() + 6 + kStates;
constexpr std::size_t kSeriesOfHighRow = BurstWaits::kMostUs.size() + 3;
constexpr std::size_t kSeriesOfMonitor = 6;
constexpr std::size_t kSeriesOfGpu = 5 + std::size(kBackends);

std::size_t series_of(const Job& job) {
  return job.gpus.size() * (kSeriesOfRow + (job.high ? kSeriesOfHighRow : 0));
}

}  // namespace

Sums& Sums::operator+=(const Sums& other) {
  gpu_seconds += other.gpu_seconds;
  estimated_seconds += other.estimated_seconds;
  slices_seconds += other.slices_seconds;
  for (std::size_t i = 0; i < waits_seconds.size(); ++i) waits_seconds[i] += other.waits_seconds[i];
  counters += other.counters;
  return *this;
}

const char* state_name(std::size_t state) {
  return state == kEnded ? "ended" : key_of(static_cast<status::State>(state));
}

std::string label_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = letter_bytes(text);
    const std::string_view letter = text.substr(0, std::max<std::size_t>(bytes, 1));
    if (bytes == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD
    } else if (letter == "\n") {
      out += "\\n";
    } else {
      if (letter == "\\" || letter == "\"") out += '\\';
      out += letter;
    }
    text.remove_prefix(letter.size());
  }
  return out;
}

std::string render(const Snapshot& snapshot, std::size_t most_series) {
  Page page(snapshot);
  std::size_t room =
      most_series - std::min(most_series, kSeriesOfMonitor + kSeriesOfGpu * snapshot.gpus.size());
  std::size_t dropped = 0;
  const auto fits = [&](std::size_t series) {
    if (series > room) {
      dropped += series;
      return false;
    }
    room -= series;
    return true;
  };
  std::vector<const User*> users;
  for (const User& user : snapshot.users) {
    if (fits(1)) users.push_back(&user);
  }
  std::vector<const UnmanagedUser*> unmanaged;
  for (const UnmanagedUser& user : snapshot.unmanaged) {
    if (fits(2)) unmanaged.push_back(&user);
  }
  std::vector<Row> rows;
  for (const Job& job : snapshot.jobs) {
    if (!fits(series_of(job))) continue;
    for (const OnGpu& on : job.gpus) rows.push_back({&job, &on, page.job(job, on)});
  }
  add_monitor(page, snapshot, dropped);
  add_gpus(page, snapshot);
  page.begin(family("switchyard_user_gpu_seconds_total"));
  for (const User* user : users) page.add(page.user(user->name, user->gpu), user->gpu_seconds);
  page.begin(family("switchyard_user_unmanaged_gpu_seconds_total"));
  for (const UnmanagedUser* user : unmanaged) {
    page.add(page.user(user->name, user->gpu), user->gpu_seconds);
  }
  page.begin(family("switchyard_user_unmanaged_memory_bytes"));
  for (const UnmanagedUser* user : unmanaged) {
    page.add(page.user(user->name, user->gpu), user->bytes);
  }
  add_sums(page, rows);
  add_gauges(page, rows);
  add_counters(page, rows);
  add_states(page, rows);
  add_burst_waits(page, rows);
  return page.take();
}

}  // namespace switchyard::monitor::metrics
