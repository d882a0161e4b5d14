#include "shim/nccl/table.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <iterator>

#include "shim/dl.h"
#include "shim/log.h"
#include "shim/nccl/rules.h"
#include "shim/trampoline.h"

// The twins, declared with the types of the calls that they are twins of.
extern "C" {
#define NCCL_CALL(Name, rule) decltype(nccl##Name) pnccl##Name;
#include "shim/nccl/calls.def"
#undef NCCL_CALL
}

namespace switchyard::shim::nccl {
namespace {

// Both names of each line.
#define SWITCHYARD_NCCL_TWINS(X, Name, rule) X(nccl##Name, rule) X(pnccl##Name, rule)

enum Row : unsigned {
#define ROW(name, rule) kRow_##name,
#define NCCL_CALL(Name, rule) SWITCHYARD_NCCL_TWINS(ROW, Name, rule)
#include "shim/nccl/calls.def"
#undef NCCL_CALL
#undef ROW
  kRows
};

constexpr const char* kNames[] = {
#define ROW(name, rule) #name,
#define NCCL_CALL(Name, rule) SWITCHYARD_NCCL_TWINS(ROW, Name, rule)
#include "shim/nccl/calls.def"
#undef NCCL_CALL
#undef ROW
};
static_assert(std::size(kNames) == kRows);

constexpr char kSoname[] = "libnccl.so.2";

// A copy of NCCL: where it was loaded, and a handle of ours, by which its calls are found.
struct Copy {
  std::atomic<void*> base;
  std::atomic<void*> handle;
};

// A forked child has its parent's libraries.
struct State {
  Copy copies[kMostCopies];
  std::atomic<void*> original[kDoors][kRows];
  std::atomic<unsigned> linked;  // the copy of the exported names + 1
};
constinit State g_state;

// The file that an address is in; its base is null where nobody knows.
Dl_info file_of(const void* address) {
  Dl_info info{};
  if (address == nullptr || ::dladdr(address, &info) == 0) info.dli_fbase = nullptr;
  return info;
}

bool is_own(const Dl_info& info) {
  static const void* const own = file_of(&g_state).dli_fbase;
  return info.dli_fbase == own;
}

// The number of the copy that has this function; -1: it is ours, or there are too many.
int copy_of(const void* function) {
  const Dl_info info = file_of(function);
  if (info.dli_fbase == nullptr || is_own(info)) return -1;
  for (unsigned i = 0; i < kMostCopies; ++i) {
    Copy& copy = g_state.copies[i];
    void* there = copy.base.load(std::memory_order_acquire);
    if (there == nullptr && copy.base.compare_exchange_strong(there, info.dli_fbase)) {
      there = info.dli_fbase;
    }
    if (there != info.dli_fbase) continue;
    // Null for the main program, which may hold NCCL itself.
    if (copy.handle.load(std::memory_order_acquire) == nullptr) {
      copy.handle.store(::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD),
                        std::memory_order_release);
    }
    return static_cast<int>(i);
  }
  static Once said;
  log_once(said, Level::kWarn, "this process has more than %u copies of NCCL: %s is not watched",
           kMostCopies, info.dli_fname);
  return -1;
}

void* look_up(void* handle, const char* name) {
  return handle != nullptr ? real_dlsym()(handle, name) : nullptr;
}

// The function that the caller at `address` would have been linked to. It stands in the libraries
// that the caller needs, in those behind us, or in NCCL as it is usually called.
void* linked_original(const char* name, const void* address) {
  if (real_dlsym() == nullptr) return nullptr;
  const Dl_info caller = file_of(address);
  if (caller.dli_fbase != nullptr && !is_own(caller)) {
    void* scope = ::dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void* found = look_up(scope, name);
    if (scope != nullptr) ::dlclose(scope);
    // A hook that passes the call on finds itself first.
    const Dl_info there = file_of(found);
    if (found != nullptr && !is_own(there) && there.dli_fbase != caller.dli_fbase) return found;
  }
  if (void* found = look_up(RTLD_NEXT, name)) return found;
  void* usual = ::dlopen(kSoname, RTLD_LAZY | RTLD_NOLOAD);
  void* found = look_up(usual, name);
  if (usual != nullptr) ::dlclose(usual);  // copy_of() keeps it
  return found;
}

void* find_original(unsigned door, unsigned row, const void* caller) {
  std::atomic<void*>& place = g_state.original[door][row];
  void* found = door == 0 ? linked_original(kNames[row], caller)
                          : look_up(g_state.copies[door - 1].handle, kNames[row]);
  if (found == nullptr) return nullptr;
  if (door == 0) g_state.linked.store(static_cast<unsigned>(copy_of(found) + 1));
  place.store(found, std::memory_order_release);
  return found;
}

// Any call of the copy behind a door; null: it has none.
template <typename Function>
Function* other_call(unsigned door, const char* name) {
  const unsigned copy = door == 0 ? g_state.linked.load() : door;
  if (copy == 0) return nullptr;
  return reinterpret_cast<Function*>(look_up(g_state.copies[copy - 1].handle, name));
}

template <typename Signature>
struct Original {
  Signature* function;
  unsigned door;

  template <typename... Args>
  ncclResult_t operator()(Args... args) const {
    return function(args...);
  }
  Calls calls() const {
    return {other_call<decltype(ncclCommSplit)>(door, "ncclCommSplit"),
            other_call<decltype(ncclCommAbort)>(door, "ncclCommAbort"),
            other_call<decltype(ncclCommUserRank)>(door, "ncclCommUserRank"),
            other_call<decltype(ncclCommCount)>(door, "ncclCommCount"),
            other_call<decltype(ncclGroupStart)>(door, "ncclGroupStart"),
            other_call<decltype(ncclGroupEnd)>(door, "ncclGroupEnd")};
  }
  // False: it can't be asked yet.
  bool ask(ncclComm_t comm, int& rank, int& ranks) const {
    auto* own_rank = other_call<decltype(ncclCommUserRank)>(door, "ncclCommUserRank");
    auto* count = other_call<decltype(ncclCommCount)>(door, "ncclCommCount");
    return own_rank != nullptr && count != nullptr && own_rank(comm, &rank) == kNcclSuccess &&
           count(comm, &ranks) == kNcclSuccess;
  }
};

template <typename Signature, typename Rule, unsigned kRow, unsigned kDoor>
struct Entry;

template <typename... Args, typename Rule, unsigned kRow, unsigned kDoor>
struct Entry<ncclResult_t(Args...), Rule, kRow, kDoor> {
  using Signature = ncclResult_t(Args...);
  static ncclResult_t call(Args... args) {
    void* original = g_state.original[kDoor][kRow].load(std::memory_order_acquire);
    if (original == nullptr) [[unlikely]] {
      original = find_original(kDoor, kRow, __builtin_return_address(0));
      if (original == nullptr) return kNcclInternalError;
    }
    return Rule::apply(Original<Signature>{reinterpret_cast<Signature*>(original), kDoor}, args...);
  }
};

#define ROW(name, rule)                                           \
  struct Rule_##name {                                            \
    template <typename Bound, typename... Args>                   \
    static ncclResult_t apply(const Bound& bound, Args... args) { \
      return rules::rule(bound, args...);                         \
    }                                                             \
  };
#define NCCL_CALL(Name, rule) SWITCHYARD_NCCL_TWINS(ROW, Name, rule)
#include "shim/nccl/calls.def"
#undef NCCL_CALL
#undef ROW

template <typename Signature, typename Rule, unsigned kRow, unsigned kDoor>
inline constexpr auto kEntry = &Entry<Signature, Rule, kRow, kDoor>::call;

}  // namespace
}  // namespace switchyard::shim::nccl

// The exported names.
#define ROW(name, rule)                                                                            \
  SWITCHYARD_EXPORT(                                                                               \
      name, (switchyard::shim::nccl::kEntry<decltype(::name), switchyard::shim::nccl::Rule_##name, \
                                            switchyard::shim::nccl::kRow_##name, 0>))
#define NCCL_CALL(Name, rule) SWITCHYARD_NCCL_TWINS(ROW, Name, rule)
#include "shim/nccl/calls.def"
#undef NCCL_CALL
#undef ROW

namespace switchyard::shim::nccl {
namespace {

using AnyFunction = void (*)();

struct Line {
  const char* name;
  AnyFunction entry[kDoors];
};

#define ENTRY(name, door) \
  reinterpret_cast<AnyFunction>(kEntry<decltype(::name), Rule_##name, kRow_##name, door>)
const Line kLines[] = {
#define ROW(name, rule) {#name, {ENTRY(name, 0), ENTRY(name, 1), ENTRY(name, 2), ENTRY(name, 3)}},
#define NCCL_CALL(Name, rule) SWITCHYARD_NCCL_TWINS(ROW, Name, rule)
#include "shim/nccl/calls.def"
#undef NCCL_CALL
#undef ROW
};
static_assert(kDoors == 4, "a line has an entry for each door");
#undef ENTRY

int row_of(const char* name) {
  for (unsigned row = 0; row < kRows; ++row) {
    if (std::strcmp(kLines[row].name, name) == 0) return static_cast<int>(row);
  }
  return -1;
}

}  // namespace

Pick pick(void* handle, const char* name) {
  const int row = row_of(name);
  if (row < 0) return {nullptr, false};
  const Line& line = kLines[row];
  if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
    // Where nobody has NCCL, our own export must not look like it: look behind us.
    if (linked_original(name, nullptr) == nullptr) return {real_dlsym()(RTLD_NEXT, name), true};
    // Only glibc, called by the true caller, can say what is next: a function that we call would
    // call us again.
    if (handle == RTLD_NEXT) return {nullptr, false};
    return {reinterpret_cast<void*>(line.entry[0]), true};
  }
  void* found = real_dlsym()(handle, name);
  if (found == nullptr) return {nullptr, true};
  if (is_own(file_of(found)))
    return pick(RTLD_DEFAULT, name);  // by the handle of the whole program
  const int copy = copy_of(found);
  if (copy < 0) return {found, true};
  g_state.original[copy + 1][row].store(found, std::memory_order_release);
  return {reinterpret_cast<void*>(line.entry[copy + 1]), true};
}

NamedEntry table_row(std::size_t index) {
  if (index >= kRows) return {nullptr, nullptr};
  return {kLines[index].name, reinterpret_cast<void*>(kLines[index].entry[0])};
}

}  // namespace switchyard::shim::nccl
