#include "mps_daemon.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "driver.h"
#include "spawned.h"

namespace conformance {
namespace {

constexpr char kControl[] = "nvidia-cuda-mps-control";
constexpr int kProgramEndsWithinMs = 30'000;

std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> found;
  std::istringstream lines(text);
  for (pid_t pid = 0; lines >> pid;) found.push_back(pid);
  return found;
}

// Until the child has closed its output, or the time is over.
std::string read_all(int fd) {
  std::string all;
  char part[512];
  for (pollfd wait{fd, POLLIN, 0}; ::poll(&wait, 1, kProgramEndsWithinMs) == 1;) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got <= 0) break;
    all.append(part, static_cast<std::size_t>(got));
  }
  return all;
}

int status_within(pid_t child, int ms) {
  int status = 0;
  for (; waitpid(child, &status, WNOHANG) == 0; ms -= 5) {
    if (ms <= 0) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      return -1;
    }
    usleep(5'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string mps_control_program() {
  Dl_info where{};
  std::string folders = "/usr/local/nvidia/bin:/usr/bin";
  if (const char* path = getenv("PATH")) folders = path + (":" + folders);
  if (driver() && dladdr(find("cuInit"), &where) && where.dli_fname) {
    folders = std::filesystem::path(where.dli_fname).parent_path().string() + ":" + folders;
  }
  std::istringstream each(folders);
  for (std::string folder; std::getline(each, folder, ':');) {
    const std::string program = folder + "/" + kControl;
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

MpsDaemon::MpsDaemon(const std::string& gpu_uuid) : uuid_(gpu_uuid) {
  char name[] = "/tmp/conformance-mps-XXXXXX";
  folder_ = mkdtemp(name);
  std::filesystem::create_directory(folder_ + "/pipe");
  std::filesystem::create_directory(folder_ + "/log");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  watched_ = ends[1];
  Spawned watcher = own_child("mps-watcher=" + folder_);
  watcher.descriptors = {{ends[0], STDIN_FILENO}};
  watcher.session = true;
  watcher_ = spawn(std::move(watcher));
  close(ends[0]);
}

int MpsDaemon::watch(const std::string& folder) {
  MpsDaemon daemon;
  daemon.folder_ = folder;
  char none;
  while (::read(STDIN_FILENO, &none, 1) > 0) {
  }
  if (!daemon.programs().empty()) daemon.ask("quit -t 2");
  eventually([&] { return daemon.programs().empty(); }, 10);
  for (const pid_t each : daemon.programs()) kill(each, SIGKILL);
  std::filesystem::remove_all(folder);
  return 0;
}

void MpsDaemon::end() {
  if (watcher_ <= 0) return;
  close(watched_);
  waitpid(watcher_, nullptr, 0);
  watcher_ = 0;
}

std::vector<std::string> MpsDaemon::environment() const {
  return {"CUDA_MPS_PIPE_DIRECTORY=" + folder_ + "/pipe",
          "CUDA_MPS_LOG_DIRECTORY=" + folder_ + "/log", "CUDA_VISIBLE_DEVICES=" + uuid_};
}

MpsDaemon::Answer MpsDaemon::control(const std::string& input,
                                     const std::vector<std::string>& arguments) const {
  const std::string program = mps_control_program();
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return {};
  // The daemon finds nvidia-cuda-mps-server beside itself or on PATH.
  const char* path = getenv("PATH");
  Spawned what{.program = program, .words = {kControl}, .more = environment()};
  what.words.insert(what.words.end(), arguments.begin(), arguments.end());
  what.more.push_back("PATH=" + program.substr(0, program.rfind('/')) + ":" + (path ? path : ""));
  what.descriptors = {{in[0], 0}, {out[1], 1}, {out[1], 2}};
  const pid_t child = spawn(std::move(what));
  close(in[0]);
  close(out[1]);
  const bool sent = input.empty() || ::write(in[1], input.data(), input.size()) > 0;
  close(in[1]);
  // The daemon may keep the output open, so that of `-d` is not read to its end.
  Answer answer;
  if (arguments.empty() && sent) answer.text = read_all(out[0]);
  if (child > 0) answer.status = status_within(child, kProgramEndsWithinMs);
  close(out[0]);
  return answer;
}

std::vector<pid_t> MpsDaemon::servers() const { return pids_in(ask("get_server_list").text); }

std::vector<pid_t> MpsDaemon::clients(pid_t server) const {
  return pids_in(ask("get_client_list " + std::to_string(server)).text);
}

pid_t MpsDaemon::server() const {
  const std::vector<pid_t> all = servers();
  return all.size() == 1 ? all.front() : 0;
}

pid_t MpsDaemon::pid() const {
  pid_t pid = 0;
  std::ifstream(folder_ + "/pipe/nvidia-cuda-mps-control.pid") >> pid;
  return pid;
}

std::vector<pid_t> MpsDaemon::programs() const {
  std::vector<pid_t> found;
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = atoi(each.path().filename().c_str());
    std::string name, all;
    if (pid <= 0) continue;
    std::ifstream(each.path() / "comm") >> name;
    if (name.rfind("nvidia-cuda-mps", 0) != 0) continue;
    std::ifstream file(each.path() / "environ");
    std::getline(file, all, '\xff');
    if (all.find(folder_) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace conformance
