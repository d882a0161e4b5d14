// The command line of switchyardd.
//
// Threading: at start-up.
#pragma once

#include <optional>
#include <string>

#include "monitor/monitor.h"
#include "monitor/platform/asio.h"

namespace switchyard::monitor {

struct Options {
  Settings settings;
  bool system = false;  // root's monitor for all users
  std::string log_level = "info";
  std::string log_file;                            // empty: stderr
  std::uint64_t log_bytes = 16ull << 20;           // of the file, before another one begins
  std::string history_folder;                      // empty: no history is kept
  std::int64_t history_days = 90;                  // that it is kept
  std::uint64_t history_bytes = 256u << 20;        // of its file, about
  Time wait_for_gpu{0};                            // at start-up, until there is one
  std::optional<asio::ip::tcp::endpoint> metrics;  // where HTTP answers scrapers
  std::string metrics_textfile;                    // for node_exporter; empty: none
};

// Nullopt when there is nothing to run: `exit_code` then says how to end (help and version: 0).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace switchyard::monitor
