// A scene with a second user, who has a folder, a place for a monitor and the programs of this
// build.
//
// Threading: as Scene.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "harness.h"

namespace switchyard::system_tests {

// pre: this is root.
class UsersScene : public Scene {
 protected:
  static constexpr uid_t kUser = 47111;
  static constexpr uid_t kStranger = 47112;

  void SetUp() override {
    namespace fs = std::filesystem;
    Scene::SetUp();
    fs::permissions(in_folder(""), fs::perms::owner_all | fs::perms::others_exec);
    make_folder("victim", kUser);
    make_folder("victim/switchyard", kUser);
    fs::permissions(in_folder("victim/switchyard"), fs::perms::owner_all);
    fs::create_directory(in_folder("lib"));
    for (const char* name : {"switchyard", "switchyardd", "libswitchyard.so", "tests/jobs/job_loop",
                             "fakecuda/libcuda.so.1", "fakecuda/libnvidia-ml.so.1"}) {
      fs::copy_file(built(name), in_folder("lib/" + fs::path(name).filename().string()));
    }
  }
  void make_folder(const std::string& name, uid_t owner) {
    std::filesystem::create_directory(in_folder(name));
    ASSERT_EQ(::chown(in_folder(name).c_str(), owner, owner), 0);
  }
  // Where a monitor of that user listens.
  std::string place() const { return in_folder("victim/switchyard/monitor.sock"); }

  Words user_words(const Words& words) const {
    Words command{"setpriv", "--reuid=47111", "--regid=47111", "--clear-groups"};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  // All processes of the scene, whoever's, have the same simulated GPU. No socket is named.
  Changes shared(const Changes& more = {}) const {
    Changes changes{{"SWITCHYARD_SOCKET", ""},
                    {"XDG_RUNTIME_DIR", in_folder("victim")},
                    {"FAKECUDA_STATE", in_folder("victim/gpu")},
                    {"LD_LIBRARY_PATH", in_folder("lib")}};
    changes.insert(changes.end(), more.begin(), more.end());
    return changes;
  }
  Child::End as_user(const Words& words, const Changes& more = {}) {
    return run(user_words(words), shared(more));
  }
  Child start_as_user(const Words& words, const Changes& more = {}) {
    return start(user_words(words), shared(more));
  }
};

}  // namespace switchyard::system_tests
