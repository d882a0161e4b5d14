// NVML behind the door of gpus.h, opened by dlopen so that the monitor starts on any machine.
//
// Threading: one thread.
#pragma once

#include <memory>

#include "monitor/platform/gpus.h"

namespace switchyard::monitor {

// Never null: without NVML or without a GPU, list() is empty and problem() says why.
std::unique_ptr<Gpus> open_nvml();

}  // namespace switchyard::monitor
