#include "tests/shim/reach/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace reach {
namespace {

// The GNU hash table holds one chain per bucket; the last symbol of a chain has an odd hash.
std::uint32_t symbols_in(const std::uint32_t* table) {
  const std::uint32_t buckets = table[0];
  const std::uint32_t first = table[1];
  const std::uint32_t* bucket = table + 4 + table[2] * 2;
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return 0;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

void* own_symbol(void* handle, const char* name) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  std::uint32_t count = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) {
      count = symbols_in(reinterpret_cast<const std::uint32_t*>(entry->d_un.d_ptr));
    }
  }
  if (symbols == nullptr || names == nullptr) return nullptr;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (symbols[i].st_shndx != SHN_UNDEF && std::strcmp(names + symbols[i].st_name, name) == 0) {
      return reinterpret_cast<void*>(map->l_addr + symbols[i].st_value);
    }
  }
  return nullptr;
}

const char* library_of(const void* address) {
  Dl_info info{};
  return address != nullptr && ::dladdr(address, &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "";
}

}  // namespace reach
