#include "tools/cdi/cdi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "switchyard/paths.h"
#include "tools/base/places.h"
#include "tools/base/sockets.h"
#include "tools/base/write_file.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Options {
  std::string verb;
  std::optional<std::string> output;
};

constexpr char kExamples[] = R"(Examples:
  sudo switchyard cdi generate --output /etc/cdi/switchyard.json
  podman run --device nvidia.com/gpu=0 --device switchyard.io/job=low IMAGE
      docker and Kubernetes take the same devices where CDI is enabled

The devices are switchyard.io/job=high, normal, low and default; the last names no priority. Each
mounts the library, switchyard-entrypoint and the folder of the monitor's socket, and sets
LD_PRELOAD. That replaces an LD_PRELOAD of the image, and a program with musl does not start under
one. Such images use switchyard-entrypoint: see docs/guide/containers.md.

Without --socket the socket is that of the machine's monitor, else that of your own. Run it again
after an installation in another place. Exit status: 0, 1 not written, 2 bad value.)";

// The folder in which containers find everything, wherever it is on the host.
constexpr char kFolder[] = "/usr/lib/switchyard";

json mount(const std::string& from, const std::string& to, std::vector<std::string> more) {
  json options = {"bind", "nosuid", "nodev"};
  for (std::string& each : more) options.push_back(std::move(each));
  return {{"hostPath", from}, {"containerPath", to}, {"options", options}};
}

json device(const char* name, const json& environment) {
  json all = environment;
  if (std::string_view(name) != "default") {
    all.push_back(fmt::format("SWITCHYARD_PRIORITY={}", name));
  }
  return {{"name", name}, {"containerEdits", {{"env", all}}}};
}

// Where everything is on the host.
struct Parts {
  std::string library;
  std::string entrypoint;
  std::string socket;
};

json specification(const Parts& parts) {
  const fs::path socket = parts.socket;
  const json environment = {
      fmt::format("LD_PRELOAD={}/libswitchyard.so", kFolder),
      // Named, since root of the host has another number in a user namespace (trust.h).
      fmt::format("SWITCHYARD_SOCKET={}/{}", kSystemFolder, socket.filename().string())};
  json devices = json::array();
  for (const char* name : {"default", "high", "normal", "low"}) {
    devices.push_back(device(name, environment));
  }
  // The folder of the socket, since a restarted monitor makes another socket there. To connect
  // writes nothing.
  return {{"cdiVersion", "0.5.0"},
          {"kind", "switchyard.io/job"},
          {"containerEdits",
           {{"mounts",
             {mount(parts.library, fmt::format("{}/libswitchyard.so", kFolder), {"ro"}),
              mount(parts.entrypoint, fmt::format("{}/switchyard-entrypoint", kFolder), {"ro"}),
              mount(socket.parent_path().string(), kSystemFolder, {"ro", "noexec"})}}}},
          {"devices", devices}};
}

Result<Parts> find_parts() {
  auto library = find_library();
  if (!library) return library.error();
  Parts parts;
  std::error_code ignored;
  parts.library = fs::canonical(*library, ignored).string();
  parts.entrypoint = (fs::path(parts.library).parent_path() / "switchyard-entrypoint").string();
  if (::access(parts.entrypoint.c_str(), X_OK) != 0) {
    return Error{kFailure, fmt::format("{} is not an executable file: install Switchyard anew",
                                       parts.entrypoint)};
  }
  parts.socket = own_socket();
  if (parts.socket.empty()) return Error{kUsage, "the path of the monitor's socket is too long"};
  parts.socket = fs::absolute(parts.socket, ignored).lexically_normal().string();
  if (!fs::is_directory(fs::path(parts.socket).parent_path(), ignored)) {
    complain(
        fmt::format("{} does not exist yet: containers with these devices start once the "
                    "monitor's socket is there; `systemctl start switchyardd.socket`",
                    fs::path(parts.socket).parent_path().string()));
  }
  return parts;
}

int cdi(const Options& options) {
  if (options.verb != "generate") return fail(bad_value("the word", options.verb, "generate"));
  if (options.output && fs::path(*options.output).extension() != ".json") {
    return fail(bad_value("--output", *options.output,
                          "a path that ends in .json, for container runtimes read no other"));
  }
  auto parts = find_parts();
  if (!parts) return fail(parts.error());
  const std::string text = specification(*parts).dump(2) + "\n";
  if (!options.output) {
    fmt::print("{}", text);
    return kOk;
  }
  if (auto failed = write_file(*options.output, text)) return fail(*failed);
  return kOk;
}

}  // namespace

void add_cdi(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("cdi", "describe Switchyard to container runtimes", kExamples)
      .required_word("VERB", options->verb, "generate: write the devices as JSON")
      .option("--output", "PATH", options->output,
              "where to write, as in /etc/cdi/switchyard.json; without it, to stdout")
      .socket_option()
      .acts([options] { return cdi(*options); });
}

}  // namespace switchyard::tools
