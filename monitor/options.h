// The command line of switchyardd, and its file.
//
// Concept. What an option says wins over what a variable says, and that over the file; else there
// is a default. The command line stays as it is while the monitor runs, so the file can be read
// anew beside it.
//
// Threading: parse_options() at start-up; understand() on any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "monitor/config/reader.h"
#include "monitor/monitor.h"
#include "monitor/platform/asio.h"

namespace switchyard::monitor {

struct CommandLine;  // as it was written

struct Options {
  Settings settings;
  bool system = false;                             // root's monitor for all users
  std::string log_file;                            // empty: stderr
  std::uint64_t log_bytes = 16ull << 20;           // of the file, before another one begins
  std::string history_folder;                      // empty: no history is kept
  std::int64_t history_days = 90;                  // that it is kept
  std::uint64_t history_bytes = 256u << 20;        // of its file, about
  Time wait_for_gpu{0};                            // at start-up, until there is one
  std::optional<asio::ip::tcp::endpoint> metrics;  // where HTTP answers scrapers
  std::string metrics_textfile;                    // for node_exporter; empty: none
  std::string job_mapping_folder;                  // for dcgm-exporter; empty: none
  std::string config_file;                         // that was read; empty: none counts
  config::Remarks remarks;                         // on the file, for the log
  bool only_checks = false;                        // nothing shall run
  std::shared_ptr<const CommandLine> line;
};

// Nullopt when there is nothing to run: `exit_code` then says how to end (help and version: 0).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

// The same command line with the file as it is now. Nullopt: `problems` has what is wrong.
std::optional<Options> understand(std::shared_ptr<const CommandLine> line,
                                  std::vector<std::string>& problems);

}  // namespace switchyard::monitor
