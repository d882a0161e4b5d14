// nvidia-cuda-mps-control of the simulated GPU: `-d` starts the daemon. Without it, each line of
// the standard input is a command for the daemon.
//
//   get_server_list                  the server's pid
//   get_client_list SERVER           the pids of its clients
//   terminate_client SERVER CLIENT   that client's calls fail from now on
//   quit [-t SECONDS]                the server and the daemon end once all clients have, or then
//
// Threading: one thread, one connection at a time.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "protocol.h"

using namespace fakecuda::mps;

namespace {

class Server {
 public:
  // The running one, or a new one; 0: there is none.
  pid_t pid() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) drop();
    return pid_;
  }
  bool start() {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return false;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      const std::string program = beside("nvidia-cuda-mps-server");
      execl(program.c_str(), "nvidia-cuda-mps-server", nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = fdopen(out[0], "r");
    return pid_ > 0;
  }
  // What it answers; empty where it has gone.
  std::string ask(const std::string& line) {
    std::string all;
    if (pid() <= 0 || write(to_, (line + "\n").data(), line.size() + 1) < 0) return all;
    char part[128];
    while (fgets(part, sizeof part, from_) && part[0] != '\n') all += part;
    return all;
  }
  // It waits for its clients; where a limit is given, not for longer.
  void end(std::optional<int> seconds) {
    if (pid() <= 0) return;
    const pid_t server = pid_;
    drop();
    if (!seconds) {
      waitpid(server, nullptr, 0);
      return;
    }
    for (int looks = 100 * *seconds; waitpid(server, nullptr, WNOHANG) == 0; --looks) {
      if (looks <= 0) kill(server, SIGKILL);
      usleep(10'000);
    }
  }

 private:
  static std::string beside(const char* name) {
    char self[4096] = {};
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const std::string path(self, length > 0 ? static_cast<std::size_t>(length) : 0);
    return path.substr(0, path.rfind('/') + 1) + name;
  }
  void drop() {
    close(to_);
    fclose(from_);
    pid_ = 0;
  }
  pid_t pid_ = 0;
  int to_ = -1;
  FILE* from_ = nullptr;
};

std::string attach(Server& server, uid_t who) {
  if (who != getuid()) return "refused\n";
  if (server.pid() <= 0 && !server.start()) return "refused\n";
  const std::string answer = server.ask("attach");
  return answer.empty() ? "refused\n" : answer;
}

// Whether the line names the server that runs.
// The answer where the next word is not the server; empty: it is.
std::string other_than(Server& server, std::istringstream& words) {
  std::string named;
  words >> named;
  return named == std::to_string(server.pid()) ? "" : "Server " + named + " not found\n";
}

std::string obey(Server& server, const std::string& line, uid_t who, bool& quits) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "attach") return attach(server, who);
  if (command == "get_server_list") {
    return server.pid() > 0 ? std::to_string(server.pid()) + "\n" : "";
  }
  if (command == "get_client_list" || command == "terminate_client") {
    const std::string other = other_than(server, words);
    if (!other.empty()) return other;
    if (command == "get_client_list") return server.ask("clients");
    std::string client;
    words >> client;
    return server.ask("terminate " + client);
  }
  if (command != "quit") return "Unknown command \"" + command + "\"\n";
  quits = true;
  std::string option;
  int seconds = 0;
  const bool limited = words >> option >> seconds && option == "-t";
  server.end(limited ? std::optional(seconds) : std::nullopt);
  return "";
}

int listen_at(const std::string& path) {
  sockaddr_un address{};
  if (!address_of(path, address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(path.c_str());
  const bool listens = fd >= 0 &&
                       bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       chmod(path.c_str(), 0666) == 0 && listen(fd, 64) == 0;
  return listens ? fd : -1;
}

void serve(int listener) {
  Server server;
  for (bool quits = false; !quits;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0 && errno == EINTR) continue;
    if (fd < 0) return;
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const timeval limit{5, 0};
    char line[256] = {};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
        read(fd, line, sizeof line - 1) > 0) {
      line[strcspn(line, "\n")] = '\0';
      const std::string answer = obey(server, line, peer.uid, quits);
      send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    close(fd);
  }
}

int start_daemon() {
  std::string ignored;
  if (ask_daemon("get_server_list", ignored)) {
    std::cerr << "An instance of this daemon is already running\n";
    return 1;
  }
  const std::string path = control_path();
  const int listener = listen_at(path);
  if (listener < 0) {
    std::cerr << "Cannot listen at " << path << ": " << strerror(errno) << "\n";
    return 1;
  }
  if (fork() != 0) return 0;
  setsid();
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  signal(SIGPIPE, SIG_IGN);
  std::ofstream(path.substr(0, path.rfind('/')) + "/nvidia-cuda-mps-control.pid") << getpid();
  serve(listener);
  unlink(path.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "-d") == 0) return start_daemon();
  for (std::string line, answer; std::getline(std::cin, line);) {
    if (!ask_daemon(line, answer)) {
      std::cerr << "Cannot find MPS control daemon process\n";
      return 1;
    }
    std::cout << answer;
  }
  return 0;
}
