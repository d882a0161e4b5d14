#include "monitor/control/unmanaged_listing.h"

#include <fmt/format.h>

#include "monitor/control/reply.h"
#include "monitor/core/ancestry.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

// What a person may do about a process that runs without the library; null: nobody knows.
json hint_of(const Registry& registry, pid_t pid, std::uint32_t layout) {
  const Job* job = job_by_descent(registry, pid);
  if (layout != 0) {
    return fmt::format("{} library (page layout {}, the monitor's is {}){}: restart it",
                       layout < abi::kLayoutVersion ? "old" : "newer", layout, abi::kLayoutVersion,
                       job == nullptr ? "" : ", of job '" + job->name + "'");
  }
  if (job == nullptr) return nullptr;
  return fmt::format(
      "belongs to job '{}', but runs without the library: it was started without the "
      "job's LD_PRELOAD",
      job->name);
}

json list_one(Monitor& monitor, const Peer& peer, pid_t pid, const Unmanaged::Process& process,
              Time now) {
  const std::uint32_t layout = monitor.refused_processes().layout_of(pid, now);
  const ProcessAbout& about = process.about;
  return {{"pid", pid},
          {"name", about.name},
          {"user", about.uid ? json(user_name(*about.uid)) : json(nullptr)},
          {"uid", about.uid ? json(*about.uid) : json(nullptr)},
          {"container", text_or_null(about.place.container)},
          {"pod", text_or_null(about.place.pod)},
          {"unit", text_or_null(about.place.unit)},
          {"command", sees_command(about, peer) ? text_or_null(process.command) : json(nullptr)},
          {"library_layout", layout == 0 ? json(nullptr) : json(layout)},
          {"hint", hint_of(monitor.registry(), pid, layout)}};
}

}  // namespace

bool sees_command(const ProcessAbout& about, const Peer& peer) {
  return peer.owner().is_root() ||
         (about.uid && may_change({*about.uid, about.container}, peer.owner()));
}

json list_unmanaged(Monitor& monitor, const Peer& peer, Time now) {
  json out = json::array();
  for (const auto& [pid, process] : monitor.unmanaged().processes()) {
    const json one = list_one(monitor, peer, pid, process, now);
    for (const auto& [gpu, on] : process.gpus) {
      const GpuInfo& info = monitor.gpus()[gpu].info;
      json row = one;
      row["gpu_uuid"] = info.uuid_text;
      row["gpu_index"] = info.index;
      row["memory_used_bytes"] = on.bytes;
      row["share_got_ratio"] = on.share ? json(*on.share) : json(nullptr);
      row["share_got_estimated"] = true;
      row["since_seconds"] = seconds(now - on.since);
      out.push_back(std::move(row));
    }
  }
  return out;
}

}  // namespace switchyard::monitor
