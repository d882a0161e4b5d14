// A scene with containers: a root file system each, and PID, mount, user, IPC, network and UTS
// namespaces of its own. The host's monitor is mounted as the guide says.
//
// Threading: as Scene.
#pragma once

#include "harness.h"

namespace switchyard::system_tests {

class ContainerScene : public Scene {
 protected:
  // How a container is made.
  struct Container {
    std::string root;  // a folder of the scene
    bool mounts_the_socket = true;
    bool mounts_the_library = true;
    uid_t user = 0;         // who is its root, outside; only root plays others
    bool has_users = true;  // a user namespace of its own; only root can do without
  };

  // Whether this machine lets us make such namespaces. No test needs more.
  bool permitted();
  // A root file system with the programs that the tests run in containers, and what these need.
  Container make_container(const std::string& name);
  // Adds a program, with its libraries, at the path that it has outside or at `at`.
  void add_program(const Container& container, const std::string& program, std::string at = {});

  // What the loader will look for.
  void add_libraries_of(const Container& container, const std::string& program);

  // The command line that runs `command` in it. Its program is one of those above.
  Words in_container(const Container& container, const Words& command) const;
  Child start_in(const Container& container, const Words& command, const Changes& changes = {});
  Child::End run_in(const Container& container, const Words& command, const Changes& changes = {});
  // The same as a job of the monitor: behind switchyard-entrypoint.
  Child enter(const Container& container, Words command, const Changes& changes = {});

  // The monitor of the host, on monitor.sock in the folder that containers mount.
  Child host_monitor(const Words& options = {});
  Changes on_the_host() const {
    return {{"SWITCHYARD_SOCKET", in_folder("run/monitor.sock")},
            {"FAKECUDA_STATE", in_folder("machine/gpu")}};
  }
  json host_job(const std::string& name);

 private:
  Changes inside(const Changes& more) const;
};

}  // namespace switchyard::system_tests
