// Names of pods, by the container ids of cgroups.
//
// Concept. The kubelet keeps a link POD_NAMESPACE_CONTAINER-ID.log in one folder for each container
// of the node. None of the names has a '_', and an id is 64 hexadecimal digits. So the names of the
// links tell all, without an API server. The folder may be on a disk that does not answer, so it is
// read on a thread of its own, and names come later.
//
// Threading: the pure functions on any thread; Pods on one, behind which it has another.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

struct PodNames {
  std::string pod, name_space, container;
  bool operator==(const PodNames&) const = default;
};

// By the name of a link; with the container's id. Empty: it is none.
std::optional<std::pair<std::string, PodNames>> pod_names_in(std::string_view link);

// By the id of a container.
using PodsById = std::map<std::string, PodNames>;

class Pods {
 public:
  // The folder is read again no earlier, and only for a container that is not known.
  static constexpr Time kReadAgain = std::chrono::seconds(10);
  // More links than this are not read.
  static constexpr std::size_t kMostLinks = 10'000;

  explicit Pods(std::string folder = "/var/log/containers");
  ~Pods();  // does not wait
  Pods(const Pods&) = delete;
  Pods& operator=(const Pods&) = delete;

  // Empty: it is in no pod, or the folder has not been read since it came.
  PodNames of(const std::string& container_id, Time now);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::string folder_;
  PodsById known_;
  std::optional<Time> read_at_;
};

}  // namespace switchyard::monitor
