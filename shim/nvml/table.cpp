#include "shim/nvml/table.h"

namespace switchyard::shim::nvml {

void* entry_by_name(const char*) { return nullptr; }

std::uint32_t list_gpus(std::uint8_t (*)[16]) { return 0; }

}  // namespace switchyard::shim::nvml
