#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "switchyard/known_calls.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

// Every living descendant, for orphans come to us (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& task :
       fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", ignored)) {
    std::ifstream list(task.path() / "children");
    for (pid_t child = 0; list >> child;) {
      found.push_back(child);
      for (const pid_t deeper : children_of(child)) found.push_back(deeper);
    }
  }
  return found;
}

void end_all_descendants() {
  for (int round = 0; round < 100; ++round) {
    const auto left = children_of(::getpid());
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "processes of this test could not be ended";
}

}  // namespace

std::string built(const std::string& name) { return std::string(SWITCHYARD_BUILD) + "/" + name; }

std::string loop_program() { return built("tests/jobs/job_loop"); }

bool says(const Child::End& end, const std::string& text) {
  return end.err.find(text) != std::string::npos;
}

void Scene::SetUp() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  char folder[] = "/tmp/switchyard-system-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  folder_ = folder;
}

void Scene::TearDown() {
  end_all_descendants();
  // A scene may have put something else there, of which a reader waits for ever.
  if (HasFailure() && fs::is_regular_file(in_folder("m.log"))) {
    std::ifstream log(in_folder("m.log"));
    std::ostringstream text;
    text << log.rdbuf();
    if (!text.str().empty()) std::cerr << "the monitor's log:\n" << text.str();
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Changes Scene::environment(const Changes& changes) const {
  Changes all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (name.rfind("SWITCHYARD_", 0) == 0 || name.rfind("FAKECUDA_", 0) == 0) {
      all.emplace_back(name, "");
    }
  }
  all.emplace_back("CUDA_VISIBLE_DEVICES", "");
  all.emplace_back("LD_PRELOAD", "");
  // SWITCHYARD_TEST_REAL_GPU=1: the same scenes on the machine's own GPU. For those whose figures
  // are not the simulated GPU's (tests/gpu names them).
  if (std::getenv("SWITCHYARD_TEST_REAL_GPU") == nullptr) {
    all.emplace_back("LD_LIBRARY_PATH", built("fakecuda"));
  }
  all.emplace_back("XDG_STATE_HOME", in_folder("state"));
  all.emplace_back("FAKECUDA_STATE", in_folder("gpu"));
  // The simulated driver is of CUDA 13.0, and jobs of tests use what the build knows.
  if (kKnownVersion < 13000) all.emplace_back("SWITCHYARD_NEWER_DRIVER", "1");
  all.emplace_back("SWITCHYARD_SOCKET", socket());
  all.insert(all.end(), changes.begin(), changes.end());
  return all;
}

Child Scene::start(const Words& command, const Changes& changes) {
  return Child::start(command, environment(changes));
}

Child::End Scene::run(const Words& command, const Changes& changes) {
  const auto end = start(command, changes).finish(kLimit);
  EXPECT_TRUE(end.exited) << command.front() << " did not end";
  return end;
}

Child::End Scene::cli(const Words& words, const Changes& changes) {
  Words command{built("switchyard")};
  command.insert(command.end(), words.begin(), words.end());
  return run(command, changes);
}

Child::End Scene::cli_as_nobody(const Words& words) {
  // Neither the scene's folder nor the build need be open to others; root's socket is.
  const std::string program = in_folder("switchyard");
  fs::copy_file(built("switchyard"), program, fs::copy_options::overwrite_existing);
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::others_exec);
  Words command{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program};
  command.insert(command.end(), words.begin(), words.end());
  return run(command);
}

Child Scene::job(const Words& options, const Words& command, const Changes& changes) {
  Words all{built("switchyard"), "run"};
  all.insert(all.end(), options.begin(), options.end());
  all.emplace_back("--");
  all.insert(all.end(), command.begin(), command.end());
  return start(all, changes);
}

Child Scene::loop(const Words& options, const Words& loop_options, const Changes& changes) {
  Words command{loop_program()};
  command.insert(command.end(), loop_options.begin(), loop_options.end());
  Child child = job(options, command, changes);
  std::string line;
  if (!child.read_line(line, kLimit) || line != "ready") {
    ADD_FAILURE() << "job_loop did not start: " << line << child.finish(kLimit).err;
  }
  return child;
}

void Scene::play_allocation_that_waits(const std::function<void()>& meanwhile) {
  auto holder = job({"--name", "holder"},
                    {built("tests/jobs/job_alloc"), "alloc:3000", "wait", "free", "wait"});
  std::string line;
  ASSERT_TRUE(holder.read_line(line, kLimit) && holder.read_line(line, kLimit));
  auto waiter = job({"--name", "waiter", "--on-oom", "wait", "--oom-timeout", "10m"},
                    {built("tests/jobs/job_alloc"), "alloc:2000"});
  ASSERT_TRUE(eventually([this] {
    const json job = job_named("waiter");
    return job.is_object() && job["state"] == "waiting";
  }));
  meanwhile();
  holder.write_line("free");
  EXPECT_EQ(waiter.finish(kLimit).out, "alloc 0\n");
}

void Scene::kill_and_wait(pid_t pid) {
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  // A process that double-forked away from us is our child again.
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  EXPECT_TRUE(eventually([pid] { return ::kill(pid, 0) != 0; })) << pid << " has not ended";
}

Child Scene::monitor(const Words& options, const Changes& changes, const std::string& program) {
  Words command{program, "--persist", "--log", "debug:" + in_folder("m.log")};
  command.insert(command.end(), options.begin(), options.end());
  Child child = start(command, changes);
  // The first process that uses the simulated GPU makes it, and `status` without a monitor is one.
  if (!eventually([&] { return monitor_pid(changes) != 0; })) {
    ADD_FAILURE() << "the monitor did not come up: "
                  << child.finish(std::chrono::milliseconds(0)).err;
  }
  return child;
}

json Scene::listing(const std::string& what, const Changes& changes) {
  const auto end = cli({what, "--json"}, changes);
  if (end.status != 0) return nullptr;
  auto parsed = json::parse(end.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << end.out;
  return parsed;
}

json Scene::job_named(const std::string& name) {
  const json all = listing("ps");
  if (!all.is_object()) return nullptr;
  for (const auto& job : all["jobs"]) {
    if (job["name"] == name) return job;
  }
  return nullptr;
}

json Scene::gpu_of(const std::string& name) {
  const json job = job_named(name);
  return job.is_object() && !job["gpus"].empty() ? job["gpus"][0] : json();
}

int Scene::monitor_pid(const Changes& changes) {
  const json status = listing("status", changes);
  return status.is_object() && status["monitor"].is_object() ? status["monitor"]["pid"].get<int>()
                                                             : 0;
}

bool Scene::eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimit);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

long value_of(const std::string& output, const std::string& key) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + " ", 0) == 0) return std::stol(line.substr(key.size() + 1));
  }
  return -1;
}

std::string line_of(Child& job) {
  std::string line;
  return job.read_line(line, kLimit) ? line : std::string();
}

std::string ask(Child& job, const std::string& command) {
  return job.write_line(command) ? line_of(job) : std::string();
}

long kernels(Child& loop) {
  const std::string said = ask(loop, "count");
  return said.empty() ? -1 : std::stol(said);
}

}  // namespace switchyard::system_tests
