#include "bench/ablation/starts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "bench/ablation/child.h"

namespace switchyard::bench::ablation {
namespace {

void wait_for_result(const Child& child) {
  char byte = 0;
  if (::read(child.from, &byte, 1) != 1) {
    std::fprintf(stderr, "swap_ablation: the new process had no result\n");
    std::exit(1);
  }
}

}  // namespace

double warm_ms(Chunks& away, const Copy& copy, const Work& work) {
  const std::int64_t begun = now_ns();
  move_in(away, copy, {});
  work.launch_all(away, {});
  work.wait();
  return ms_since(begun);
}

int model_file(std::size_t bytes) {
  const int file = ::memfd_create("model", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return -1;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return -1;
  std::memset(at, 7, bytes);  // as if it had been read before
  ::munmap(at, bytes);
  return file;
}

StopAndStart stop_and_start(int file, std::size_t bytes) {
  const std::vector<std::string> arguments = {"--new-process", std::to_string(file),
                                              std::to_string(bytes)};
  const Child before = start_self(arguments);
  wait_for_result(before);
  StopAndStart out;
  const std::int64_t stopped = now_ns();
  end(before);
  out.stop_ms = ms_since(stopped);
  const std::int64_t started = now_ns();
  const Child after = start_self(arguments);
  wait_for_result(after);
  out.start_ms = ms_since(started);
  end(after);
  return out;
}

int be_new_process(int file, std::size_t bytes) {
  ::alarm(60);  // should the other be gone
  const Work work(load_module());
  Chunks model(bytes, kChunk);
  model.bring_all();
  const void* weights = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (weights == MAP_FAILED) fail("mmap");
  for (unsigned i = 0; i < model.count(); ++i) {
    const auto* from = static_cast<const unsigned char*>(weights) + model.offset(i);
    CU(cuMemcpyHtoD, model.address(i), from, model.bytes(i));
  }
  work.launch_all(model, {});
  work.wait();
  if (::write(STDOUT_FILENO, ".", 1) != 1) fail("write");
  for (;;) ::pause();
}

}  // namespace switchyard::bench::ablation
