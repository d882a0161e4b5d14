#include "container_scene.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

constexpr char kLibraryFolder[] = "/usr/lib/switchyard";

// ROOT SOCKETS LIBRARY MACHINE COMMAND...: an empty word mounts nothing. All but the machine, which
// stands for the device files, is mounted as in the guide.
constexpr char kEnter[] = R"(set -e
root=$1; sockets=$2; library=$3; machine=$4; shift 4
bind() { mount --bind "$1" "$2"; mount -o "remount,bind,ro,nosuid,nodev" "$2"; }
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$machine" "$root$machine"
if [ "$sockets" ]; then bind "$sockets" "$root/run/switchyard"; fi
if [ "$library" ]; then bind "$library" "$root/usr/lib/switchyard"; fi
exec chroot "$root" "$@")";

void copy_into(const std::string& root, const std::string& from, const std::string& to) {
  const fs::path target = root + to;
  fs::create_directories(target.parent_path());
  if (!fs::exists(target)) fs::copy_file(from, target);
}

}  // namespace

bool ContainerScene::permitted() {
  return run({"unshare", "--user", "--map-root-user", "--mount", "--pid", "--ipc", "--net", "--uts",
              "--fork", "mount", "-t", "proc", "proc", "/proc"})
             .status == 0;
}

void ContainerScene::add_program(const Container& container, const std::string& program,
                                 std::string at) {
  copy_into(container.root, program, at.empty() ? program : at);
  add_libraries_of(container, program);
}

void ContainerScene::add_libraries_of(const Container& container, const std::string& program) {
  // "name => /path (address)", and the loader without a name.
  std::istringstream words(run({"ldd", program}).out);
  for (std::string word; words >> word;) {
    if (word[0] == '/' && word.back() != ':') copy_into(container.root, word, word);
  }
}

ContainerScene::Container ContainerScene::make_container(const std::string& name) {
  fs::create_directories(in_folder("run"));
  fs::create_directories(in_folder("machine"));
  fs::create_directories(in_folder("library"));
  for (const char* part : {"libswitchyard.so", "switchyard-entrypoint"}) {
    copy_into(in_folder("library"), built(part), std::string("/") + part);
  }
  const Container container{in_folder(name)};
  for (const std::string& folder :
       {std::string("/proc"), std::string("/dev"), std::string("/tmp"),
        std::string("/run/switchyard"), std::string(kLibraryFolder), in_folder("machine")}) {
    fs::create_directories(container.root + folder);
  }
  add_program(container, "/bin/sh");
  add_libraries_of(container, built("libswitchyard.so"));
  add_program(container, loop_program(), "/bin/job_loop");
  add_program(container, built("tests/jobs/job_alloc"), "/bin/job_alloc");
  for (const char* driver : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    add_program(container, built(std::string("fakecuda/") + driver),
                std::string("/driver/") + driver);
  }
  return container;
}

Words ContainerScene::in_container(const Container& container, const Words& command) const {
  Words all;
  if (container.user != 0) {
    const std::string user = std::to_string(container.user);
    all = {"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"};
  }
  all.emplace_back("unshare");
  if (container.has_users) all.insert(all.end(), {"--user", "--map-root-user"});
  const Words made{"--mount",
                   "--pid",
                   "--ipc",
                   "--net",
                   "--uts",
                   "--fork",
                   "--kill-child",
                   "sh",
                   "-c",
                   kEnter,
                   "sh",
                   container.root,
                   container.mounts_the_socket ? in_folder("run") : "",
                   container.mounts_the_library ? in_folder("library") : "",
                   in_folder("machine")};
  all.insert(all.end(), made.begin(), made.end());
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Changes ContainerScene::inside(const Changes& more) const {
  Changes all{{"SWITCHYARD_SOCKET", ""},
              {"LD_LIBRARY_PATH", "/driver"},
              {"FAKECUDA_STATE", in_folder("machine/gpu")}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Child ContainerScene::start_in(const Container& container, const Words& command,
                               const Changes& changes) {
  return start(in_container(container, command), inside(changes));
}

Child::End ContainerScene::run_in(const Container& container, const Words& command,
                                  const Changes& changes) {
  return run(in_container(container, command), inside(changes));
}

Child ContainerScene::enter(const Container& container, Words command, const Changes& changes) {
  command.insert(command.begin(), std::string(kLibraryFolder) + "/switchyard-entrypoint");
  return start_in(container, command, changes);
}

Child ContainerScene::host_monitor(const Words& options) {
  Words all{"--socket", in_folder("run/monitor.sock")};
  all.insert(all.end(), options.begin(), options.end());
  return monitor(all, on_the_host());
}

json ContainerScene::host_job(const std::string& name) {
  const json all = listing("ps", on_the_host());
  if (!all.is_object()) return nullptr;
  for (const auto& job : all["jobs"]) {
    if (job["name"] == name) return job;
  }
  return nullptr;
}

}  // namespace switchyard::system_tests
