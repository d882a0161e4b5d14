// The command line of switchyardd as it was written, before anything of it is understood.
//
// Threading: a plain value.
#pragma once

#include <string>
#include <vector>

#include "monitor/config/settings.h"

namespace switchyard::monitor {

// Options without a key in the file. All is text first, so that every error shows the value and the
// accepted forms.
struct Plain {
  std::string socket, config, old_backend;
  std::string stay_moves, worth_handing_over;  // for tests
  std::vector<std::string> allow_high;
  bool foreground = false, system = false, observe = false, check = false;
};

struct CommandLine {
  Plain plain;
  config::Texts texts;
};

}  // namespace switchyard::monitor
