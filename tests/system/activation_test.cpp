// A monitor that systemd starts by its socket. The test plays systemd: it listens, passes the
// socket to the monitor, and answers as `systemctl`.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"
#include "switchyard/fd.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

class Activation : public Scene {
 protected:
  void SetUp() override {
    Scene::SetUp();
    // The user's own place.
    fs::create_directories(in_folder("run/switchyard"));
    fs::permissions(in_folder("run/switchyard"), fs::perms::owner_all);
    fs::create_directories(in_folder("bin"));
    path_ = in_folder("run/switchyard/monitor.sock");
    listen();
  }

  void listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    // Not close-on-exec: the monitor inherits it.
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_EQ(::listen(listener_.get(), 64), 0);
  }

  Changes changes() const {
    return {{"SWITCHYARD_SOCKET", path_},
            {"XDG_RUNTIME_DIR", in_folder("run")},
            {"PATH", in_folder("bin") + ":" + ::getenv("PATH")}};
  }

  // What systemd does at the first connection.
  Child activate() {
    Changes all = changes();
    all.emplace_back("LISTEN_FDS", "1");
    return start({"/bin/bash", "-c",
                  "exec 3<&" + std::to_string(listener_.get()) + "; export LISTEN_PID=$$; exec " +
                      built("switchyardd") + " --log debug:" + in_folder("m.log")},
                 all);
  }

  // `systemctl` notes what it was told, and does `act`.
  void systemctl(const std::string& act) const {
    const std::string program = in_folder("bin/systemctl");
    std::ofstream(program) << "#!/bin/sh\necho \"$*\" >> " << in_folder("told") << "\n"
                           << act << "\n";
    fs::permissions(program, fs::perms::owner_all);
  }
  std::string told() const {
    std::ifstream file(in_folder("told"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string path_;
  Fd listener_;
};

TEST_F(Activation, WhoeverConnectedFirstIsServedAndTheSocketOutlivesTheMonitor) {
  auto waits = job({"--name", "first", "--require"}, {loop_program()}, changes());
  auto daemon = activate();
  ASSERT_EQ(line_of(waits), "ready");
  const int first = monitor_pid(changes());
  EXPECT_EQ(first, daemon.pid());
  ::kill(first, SIGTERM);
  EXPECT_EQ(daemon.finish(kLimit).status, 0);
  EXPECT_TRUE(fs::is_socket(path_));
  // The job has connected to it again.
  auto next = activate();
  EXPECT_TRUE(eventually([&] {
    const json all = listing("ps", changes());
    return all.is_object() && all["jobs"].size() == 1 && all["jobs"][0]["name"] == "first";
  }));
  EXPECT_EQ(waits.finish(kLimit).status, 0);
}

TEST_F(Activation, AMonitorStartedByHandDoesNotTakeTheSocketAway) {
  const auto refused = run({built("switchyardd")}, changes());
  EXPECT_EQ(refused.status, 6);
  EXPECT_TRUE(says(refused, "listens on " + path_)) << refused.err;
  auto daemon = activate();
  EXPECT_EQ(monitor_pid(changes()), daemon.pid());
}

TEST_F(Activation, StopStopsTheSocketUnitToo) {
  systemctl("rm " + path_);
  auto daemon = activate();
  ASSERT_EQ(monitor_pid(changes()), daemon.pid());
  const auto end = cli({"stop", "--json"}, changes());
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(json::parse(end.out)["socket_passed"], true);
  EXPECT_EQ(told(), "--user stop switchyardd.socket switchyardd.service\n");
  EXPECT_EQ(daemon.finish(kLimit).status, 0);
}

TEST_F(Activation, StopThatIsRefusedStopsNoUnit) {
  systemctl("rm " + path_);
  auto daemon = activate();
  auto child = job({"--name", "worker"}, {loop_program()}, changes());
  ASSERT_EQ(line_of(child), "ready");
  EXPECT_EQ(cli({"stop"}, changes()).status, 6);
  EXPECT_EQ(told(), "");
  EXPECT_EQ(monitor_pid(changes()), daemon.pid());
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(Activation, StopSaysSoWhereTheUnitCanNotBeStopped) {
  systemctl("echo no bus >&2; exit 1");
  auto daemon = activate();
  ASSERT_EQ(monitor_pid(changes()), daemon.pid());
  const auto end = cli({"stop"}, changes());
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(says(end,
                   "'systemctl --user stop switchyardd.socket switchyardd.service' failed: "
                   "no bus"))
      << end.err;
  EXPECT_EQ(daemon.finish(kLimit).status, 0);
}

TEST_F(Activation, StopOfAPlaceOfSomebodysOwnNamesTheSocket) {
  systemctl("true");
  auto daemon = activate();
  ASSERT_EQ(monitor_pid(changes()), daemon.pid());
  Changes elsewhere = changes();
  elsewhere.emplace_back("XDG_RUNTIME_DIR", in_folder("other"));
  const auto end = cli({"stop"}, elsewhere);
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(says(end, "what listens on " + path_ + " starts another")) << end.err;
  EXPECT_EQ(told(), "");
}

TEST_F(Activation, AMonitorOfItsOwnSocketAsksNoUnit) {
  systemctl("false");
  auto daemon = monitor();
  EXPECT_EQ(cli({"stop"}, {{"PATH", in_folder("bin") + ":" + ::getenv("PATH")}}).status, 0);
  EXPECT_EQ(told(), "");
}

}  // namespace
}  // namespace switchyard::system_tests
