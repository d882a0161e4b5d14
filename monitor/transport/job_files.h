// The files by which dcgm-exporter learns which Slurm jobs use a GPU (its --hpc-job-mapping-dir).
//
// Concept. One file for each GPU, named by its index, with the number of a job on each line. It
// becomes the label hpc_job. A file without a line is a GPU without such jobs. Once in a second the
// loop looks, and a thread writes those files that are to change. A monitor that ends leaves them
// without a line. One that begins writes all: one that was killed could not.
//
// Threading: the loop's one thread.
#pragma once

#include <map>
#include <string>

#include "monitor/monitor.h"
#include "monitor/platform/asio.h"
#include "monitor/platform/background.h"

namespace switchyard::monitor {

// Of each GPU, by its index: the text of its file.
std::map<unsigned, std::string> job_files_of(Monitor& monitor);

class JobFiles {
 public:
  JobFiles(asio::io_context& io, Monitor& monitor, std::string folder);
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

 private:
  using Texts = std::map<unsigned, std::string>;
  void listen();
  void look();
  void written(const std::string& why, const Texts& texts);

  Monitor& monitor_;
  std::string folder_;
  Background background_;
  asio::posix::stream_descriptor finished_;
  asio::steady_timer timer_;
  Texts there_;  // as written
  bool failed_ = false;
};

}  // namespace switchyard::monitor
