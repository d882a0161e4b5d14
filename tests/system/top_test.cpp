// `switchyard top` in a terminal: what its screen shows, judged by the terminal (tmux).
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

// A shell in a terminal of 80 x 24.
class Top : public Scene {
 protected:
  void open_terminal() {
    std::ofstream(in_folder("tmux.conf")) << "set -g status off\nset -g default-terminal screen\n"
                                          << "set -g default-command 'bash --norc --noprofile'\n";
    const auto end =
        tmux({"-f", in_folder("tmux.conf"), "new-session", "-d", "-x", "80", "-y", "24"},
             {{"LC_ALL", "C.UTF-8"}, {"NO_COLOR", ""}, {"COLUMNS", ""}, {"LINES", ""}});
    ASSERT_EQ(end.status, 0) << "tmux: " << end.err;
    type("PS1='ready$ '; PATH=" + built("") + ":$PATH; clear");
    ASSERT_TRUE(shows("\nready$")) << screen();
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "the terminal:\n" << screen();
    Scene::TearDown();
  }

  Child::End tmux(const Words& words, const Changes& changes = {}) {
    Words all{"tmux", "-u", "-S", in_folder("tmux")};
    all.insert(all.end(), words.begin(), words.end());
    return run(all, changes);
  }
  void press(const std::string& key) { EXPECT_EQ(tmux({"send-keys", key}).status, 0) << key; }
  void type(const std::string& line) {
    EXPECT_EQ(tmux({"send-keys", "-l", line}).status, 0);
    press("Enter");
  }
  // `colours`: with the sequences for them.
  std::string screen(bool colours = false) {
    return tmux(colours ? Words{"capture-pane", "-p", "-e"} : Words{"capture-pane", "-p"}).out;
  }
  Words lines() {
    Words out;
    std::istringstream in("\n" + screen());
    for (std::string line; std::getline(in, line);) out.push_back(line);
    out.erase(out.begin());
    return out;
  }
  bool shows(const std::string& text) {
    return eventually([&] { return ("\n" + screen()).find(text) != std::string::npos; });
  }
  bool is_gone(const std::string& text) {
    return eventually([&] { return screen().find(text) == std::string::npos; });
  }
  void start_top(const std::string& command = "switchyard top --interval 100ms") {
    type(command);
    ASSERT_TRUE(shows("p pause")) << screen();
  }
  // "0 1": the cursor is not hidden, and the shell's own screen is shown.
  std::string told(const std::string& format) {
    const std::string out = tmux({"display-message", "-p", format}).out;
    return out.substr(0, out.find('\n'));
  }
  // What `stty` says of the shell's terminal now.
  std::string modes() {
    const std::string file = in_folder("modes" + std::to_string(++asked_));
    type("stty -g > " + file + ".new; mv " + file + ".new " + file);
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file); })) << screen();
    std::string text;
    std::getline(std::ifstream(file), text);
    return text;
  }
  // Green or yellow: the states.
  bool has_colours() {
    const std::string text = screen(true);
    return text.find("[32m") != text.npos || text.find("[33m") != text.npos;
  }
  bool is_given_back() {
    return eventually([&] { return told("#{cursor_flag} #{alternate_on}") == "1 0"; });
  }
  json state_of(const std::string& name) {
    const json job = job_named(name);
    return job.is_object() ? job["state"] : json();
  }

 private:
  int asked_ = 0;
};

TEST_F(Top, AFrameOfTwoJobsHasEightyByTwentyFour) {
  auto daemon = monitor();
  auto serve = loop({"--name", "serve", "--priority", "high"});
  auto train = loop({"--name", "train", "--memory", "1GiB"});
  open_terminal();
  start_top();
  ASSERT_TRUE(shows(" C   "));
  ASSERT_TRUE(shows("\nserve ") && shows("\ntrain ")) << screen();
  ASSERT_TRUE(shows("▁") || shows("█")) << "bars";
  const Words all = lines();
  ASSERT_EQ(all.size(), 24u);
  EXPECT_EQ(all[0].rfind("GPU 0  Switchyard Simulated GPU  ", 0), 0u) << all[0];
  EXPECT_NE(all[0].find(" of 4G "), std::string::npos) << all[0];
  EXPECT_EQ(all[2].rfind("NAME ", 0), 0u) << all[2];
  EXPECT_EQ(all[23].rfind("p pause  r resume  + - priority  k end", 0), 0u) << all[23];
  EXPECT_NE(all[2].find("STATE"), std::string::npos) << all[2];
  EXPECT_NE(screen().find("/1G"), std::string::npos) << "the quota\n" << screen();
  press("?");
  EXPECT_TRUE(shows("Any key goes back."));
  press("x");
  EXPECT_TRUE(shows("\nserve "));
  press("q");
  EXPECT_TRUE(shows("\nready$"));
}

TEST_F(Top, AKeyChangesAJobOnlyAfterAYes) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  open_terminal();
  start_top();
  ASSERT_TRUE(shows("\nonly "));
  press("p");
  ASSERT_TRUE(shows("pause only? y/n"));
  press("n");
  ASSERT_TRUE(shows("nothing was changed"));
  EXPECT_NE(state_of("only"), "paused");
  press("p");
  ASSERT_TRUE(shows("pause only? y/n"));
  press("y");
  EXPECT_TRUE(shows("only: paused; ")) << "what came of it";
  EXPECT_TRUE(shows("held: paused") || shows("paused by")) << "its row";
  EXPECT_EQ(state_of("only"), "paused");
  press("r");
  ASSERT_TRUE(shows("resume only? y/n"));
  press("y");
  EXPECT_TRUE(shows("only: resumed"));
  press("+");
  ASSERT_TRUE(shows("set the priority of only to high? y/n"));
  press("y");
  EXPECT_TRUE(shows("only: priority normal → high"));
  EXPECT_EQ(job_named("only")["priority"], "high");
}

TEST_F(Top, KEndsTheSelectedJobByASignalOfTheCaller) {
  auto daemon = monitor();
  auto stays = loop({"--name", "a-stays"});
  auto ends = loop({"--name", "b-ends"});
  open_terminal();
  start_top();
  ASSERT_TRUE(shows("\nb-ends "));
  for (int i = 0; i < 3; ++i) press("s");
  ASSERT_TRUE(shows("s sort: name"));
  press("Down");
  ASSERT_TRUE(shows("\nb-ends: "));
  press("k");
  ASSERT_TRUE(shows("end b-ends by SIGTERM? y/n"));
  press("y");
  EXPECT_TRUE(shows("b-ends: SIGTERM sent to 1 process"));
  EXPECT_EQ(ends.finish(kLimit).status, 128 + SIGTERM);
  EXPECT_TRUE(is_gone("\nb-ends  "));
  EXPECT_TRUE(shows("\na-stays: ")) << "is selected now";
  EXPECT_GE(kernels(stays), 0) << "it lives";
}

TEST_F(Top, FollowsTheSizeOfItsTerminal) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  open_terminal();
  start_top();
  ASSERT_TRUE(shows("\nonly "));
  ASSERT_EQ(tmux({"resize-window", "-x", "60", "-y", "15"}).status, 0);
  const auto fits = [&](std::size_t height) {
    return eventually([&] {
      const Words all = lines();
      return all.size() == height && all[2].rfind("NAME ", 0) == 0 &&
             all[3].rfind("only ", 0) == 0 && all[height - 1].rfind("p pause", 0) == 0;
    });
  };
  EXPECT_TRUE(fits(15));
  EXPECT_TRUE(shows("GPU%"));
  ASSERT_EQ(tmux({"resize-window", "-x", "100", "-y", "30"}).status, 0);
  EXPECT_TRUE(fits(30));
  EXPECT_TRUE(shows("s sort: GPU%  ? help  q quit"));
}

TEST_F(Top, GoesOnWhenTheMonitorDiesAndComesBack) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  open_terminal();
  start_top();
  ASSERT_TRUE(shows("\nonly "));
  kill_and_wait(daemon.pid());
  EXPECT_TRUE(shows("shown is what was "));
  EXPECT_TRUE(shows("\nonly ")) << "the last listing stays";
  press("p");
  ASSERT_TRUE(shows("pause only? y/n"));
  press("y");
  EXPECT_TRUE(is_gone("pause only ...")) << "an order fails";
  auto again = monitor();
  ASSERT_TRUE(eventually([this] { return state_of("only").is_string(); })) << "it has joined";
  EXPECT_TRUE(is_gone("shown is what was "));
  EXPECT_TRUE(shows("\nonly "));
}

TEST_F(Top, NeedsNeitherColoursNorUtf8) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  // A process whose name would clear the screen.
  const std::string program = in_folder("x\x1b[2Jy");
  std::filesystem::copy_file(loop_program(), program);
  auto stranger = start({program});
  open_terminal();
  start_top("LC_ALL=C NO_COLOR=1 switchyard top --interval 100ms");
  ASSERT_TRUE(shows("\nonly ") && shows("\n~x?[2Jy "));
  ASSERT_TRUE(shows("____") || shows("####")) << "bars";
  for (const char c : screen()) EXPECT_LT(static_cast<unsigned char>(c), 0x7f) << screen();
  EXPECT_FALSE(has_colours());
  EXPECT_NE(screen(true).find("7m"), std::string::npos) << "what is selected is reversed";
  press("q");
  ASSERT_TRUE(shows("\nready$"));
  start_top("TERM=vt100 switchyard top --interval 100ms");
  ASSERT_TRUE(shows("\nonly "));
  EXPECT_FALSE(has_colours());
  press("q");
  ASSERT_TRUE(shows("\nready$"));
  start_top();
  ASSERT_TRUE(shows("\nonly "));
  EXPECT_TRUE(has_colours()) << "where there are some";
}

TEST_F(Top, GivesTheTerminalBack) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  open_terminal();
  const std::string before = modes();
  ASSERT_FALSE(before.empty());
  const auto end_by = [&](const std::string& key) {
    start_top();
    EXPECT_EQ(told("#{cursor_flag} #{alternate_on}"), "0 1");
    press(key);
    EXPECT_TRUE(is_given_back()) << key;
    EXPECT_EQ(modes(), before) << key;
    type("clear; echo code $?");
  };
  end_by("q");
  end_by("C-c");
  start_top("switchyard top; echo \"code=$?\"");
  press("C-z");
  EXPECT_TRUE(is_given_back());
  EXPECT_EQ(modes(), before) << "stopped";
  // The shell's terminal is smaller meanwhile.
  ASSERT_EQ(tmux({"resize-window", "-x", "60", "-y", "15"}).status, 0);
  type("clear; fg");
  ASSERT_TRUE(eventually([&] {
    const Words all = lines();
    return all.size() == 15 && all[14].rfind("p pause", 0) == 0;
  })) << screen();
  EXPECT_EQ(tmux({"resize-window", "-x", "80", "-y", "24"}).status, 0);
  press("q");
  EXPECT_TRUE(is_given_back());
  EXPECT_EQ(modes(), before) << "continued";
  start_top("clear; switchyard top; echo \"code=$?\"");
  EXPECT_EQ(run({"bash", "-c",
                 "kill -TERM $(pgrep -f '^switchyard to[p]' -P " + told("#{pane_pid}") + ")"})
                .status,
            0);
  EXPECT_TRUE(shows("code=143"));
  EXPECT_TRUE(is_given_back());
  EXPECT_EQ(modes(), before) << "SIGTERM";
}

TEST_F(Top, WithoutAScreenThereIsAFrame) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"});
  for (const Words& words : {Words{"top", "--once"}, Words{"top"}}) {
    const auto end = cli(words);
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_EQ(end.out.rfind("GPU 0  Switchyard Simulated GPU", 0), 0u) << end.out;
    EXPECT_NE(end.out.find("\nonly "), std::string::npos) << end.out;
    EXPECT_EQ(end.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(end.out.find("y/n"), std::string::npos);
  }
  EXPECT_EQ(cli({"top", "--interval", "soon"}).status, 2);
  EXPECT_EQ(cli({"top", "--once"}, {{"SWITCHYARD_SOCKET", in_folder("none")}}).status, 3);
  open_terminal();
  type("TERM=dumb switchyard top");
  EXPECT_TRUE(shows("is unknown or too plain"));
  EXPECT_TRUE(shows("\nonly "));
}

TEST_F(Top, AFrameHasTheJobsThatAreNamed) {
  auto daemon = monitor();
  auto only = loop({"--name", "only"}), other = loop({"--name", "other"});
  const auto end = cli({"top", "--once", "on*"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_NE(end.out.find("\nonly "), std::string::npos) << end.out;
  EXPECT_EQ(end.out.find("\nother "), std::string::npos) << end.out;
  EXPECT_EQ(cli({"top", "--once", "none"}).status, 4);
}

}  // namespace
}  // namespace switchyard::system_tests
