#include "tests/shim/engine/host_heap.h"

#include <atomic>
#include <cstddef>

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's.
void* __real_malloc(std::size_t bytes);
void* __real_calloc(std::size_t count, std::size_t bytes);
void __real_free(void* piece);
void* __wrap_malloc(std::size_t bytes);
void* __wrap_calloc(std::size_t count, std::size_t bytes);
void __wrap_free(void* piece);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace switchyard::shim::testing {
namespace {

thread_local bool t_empty = false;
std::atomic<long> g_pieces{0};

void* counted(void* piece) {
  if (piece != nullptr) g_pieces.fetch_add(1, std::memory_order_relaxed);
  return piece;
}

}  // namespace

EmptyHeap::EmptyHeap() { t_empty = true; }
EmptyHeap::~EmptyHeap() { t_empty = false; }

long pieces_in_use() { return g_pieces.load(std::memory_order_relaxed); }

}  // namespace switchyard::shim::testing

using namespace switchyard::shim::testing;

void* __wrap_malloc(std::size_t bytes) { return t_empty ? nullptr : counted(__real_malloc(bytes)); }

void* __wrap_calloc(std::size_t count, std::size_t bytes) {
  return t_empty ? nullptr : counted(__real_calloc(count, bytes));
}

void __wrap_free(void* piece) {
  if (piece != nullptr) g_pieces.fetch_sub(1, std::memory_order_relaxed);
  __real_free(piece);
}
