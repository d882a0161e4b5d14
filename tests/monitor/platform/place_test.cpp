// The names in a cgroup's path, and which of them are believed.
#include "monitor/platform/place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

namespace switchyard::monitor {
namespace {

std::string digits(char digit) { return std::string(64, digit); }

std::optional<uid_t> nobody_knows(std::string_view, const std::string&) { return std::nullopt; }
Place place(const std::string& cgroups) { return place_in(cgroups, nobody_knows); }
// Folders of users; all others are root's.
Place place_with(const std::string& cgroups, const std::map<std::string, uid_t>& owners) {
  return place_in(cgroups, [&](std::string_view, const std::string& path) -> std::optional<uid_t> {
    const auto found = owners.find(path);
    return found == owners.end() ? 0 : found->second;
  });
}

constexpr char kPod[] = "2f2c7a4e-1111-4c7e-9a6b-0123456789ab";
constexpr char kPodInSlice[] = "2f2c7a4e_1111_4c7e_9a6b_0123456789ab";

TEST(Place, AContainerIsNamedByItsCgroup) {
  const std::string id = digits('a');
  EXPECT_EQ(place("0::/system.slice/docker-" + id + ".scope\n").container, id);
  EXPECT_EQ(place("12:memory:/docker/" + id + "\n0::/\n").container, id);
  EXPECT_EQ(place("0::/machine.slice/libpod-" + id + ".scope/container\n").container, id);
  EXPECT_EQ(place("0::/../" + id + "\n").container, id) << "beside the monitor's own";
}

TEST(Place, WithoutAContainerThereIsNoName) {
  EXPECT_EQ(place(""), Place{});
  EXPECT_EQ(place("0::/\n"), Place{});
  EXPECT_EQ(place("0::/user.slice/user-1000.slice/session-1.scope\n"), Place{}) << "a login";
  EXPECT_EQ(place("0::/docker/" + std::string(63, 'a') + "\n").container, "") << "too short";
  EXPECT_EQ(place("no colon\n1:one\n"), Place{});
  EXPECT_EQ(place_of(0), Place{});
}

TEST(Place, APodIsNamedByItsCgroupOfEachDriver) {
  const std::string container = "/cri-containerd-" + digits('a') + ".scope";
  const std::string slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod";
  const Place by_systemd = place("0::" + slices + kPodInSlice + ".slice" + container + "/init\n");
  EXPECT_EQ(by_systemd.pod, kPod);
  EXPECT_EQ(by_systemd.container, digits('a'));
  EXPECT_EQ(by_systemd.unit, "") << "the scope is the container's";
  const std::string folders = "/kubepods/besteffort/pod";
  EXPECT_EQ(place("11:cpu,cpuacct:" + folders + kPod + "/" + digits('b') + "\n").pod, kPod);
  // A static pod has the hash of its file.
  EXPECT_EQ(place("0::/kubepods/pod" + std::string(32, 'f') + "/" + digits('a') + "\n").pod,
            std::string(32, 'f'));
  EXPECT_EQ(place("0::/kubepods/podx/" + digits('a') + "\n").pod, "");
  EXPECT_EQ(place("0::/system.slice/pod" + std::string(kPod) + "\n").pod, "") << "of no kubelet";
}

TEST(Place, AUnitIsTheOutermostOne) {
  EXPECT_EQ(place("0::/system.slice/train.service\n").unit, "train.service");
  EXPECT_EQ(place("0::/system.slice/system-train.slice/train@a.service/inner.scope\n").unit,
            "train@a.service");
  EXPECT_EQ(place("1:name=systemd:/system.slice/run-r1.scope\n").unit, "run-r1.scope");
  const Place slurm = place("0::/system.slice/slurmstepd.scope/job_123/step_0\n");
  EXPECT_EQ(slurm.unit, "slurmstepd.scope");
  EXPECT_EQ(slurm.slurm_job, "123");
  EXPECT_EQ(place("0::/system.slice/a\x1b[1m.service\n").unit, "a?[1m.service");
}

TEST(Place, ANameBelowAUsersManagerIsNotBelieved) {
  const std::string own = "0::/user.slice/user-1000.slice/user@1000.service/";
  EXPECT_EQ(place(own + "app.slice/docker-" + digits('a') + ".scope\n"), Place{});
  EXPECT_EQ(place(own + "kubepods/pod" + kPod + "/" + digits('a') + "\n"), Place{});
  EXPECT_EQ(place(own + "slurm/job_7/step_0\n"), Place{});
}

// Delegate=yes with User=: the service's folder is the user's, who names what is below.
TEST(Place, ANameBelowAFolderOfAUserIsNotBelieved) {
  const std::string service = "/system.slice/bob.service";
  const std::map<std::string, uid_t> owners{{service, 1000}};
  const Place faked = place_with("0::" + service + "/docker-" + digits('a') + ".scope\n", owners);
  EXPECT_EQ(faked.container, "");
  EXPECT_EQ(faked.unit, "bob.service") << "root has named that one";
  EXPECT_EQ(place_with("0::" + service + "/kubepods/pod" + kPod + "\n", owners).pod, "");
  EXPECT_EQ(place_with("0::" + service + "/slurm/job_7\n", owners).slurm_job, "");
  // A container of a user namespace has its own folder, which root has named.
  const std::string remapped = "/system.slice/docker-" + digits('a') + ".scope";
  EXPECT_EQ(place_with("0::" + remapped + "/x\n", {{remapped, 100000}}).container, digits('a'));
}

TEST(Place, WhatRootInAContainerNamesIsNotBelieved) {
  const std::string outer = "/docker/" + digits('a');
  EXPECT_EQ(place("0::" + outer + "/docker/" + digits('b') + "\n").container, digits('a'));
  EXPECT_EQ(place("0::" + outer + "/kubepods/pod" + kPod + "/" + digits('b') + "\n").pod, "");
  EXPECT_EQ(place("0::" + outer + "/slurm/job_7\n").slurm_job, "");
  EXPECT_EQ(place("0::" + outer + "/a.service\n").unit, "");
}

TEST(Place, ItTakesTheNamesThatAnotherHas) {
  Place all{"c", "", "u", ""};
  all.add({"", "p", "v", ""});
  EXPECT_EQ(all, (Place{"c", "p", "v", ""}));
}

}  // namespace
}  // namespace switchyard::monitor
