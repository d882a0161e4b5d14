#include "bench/ablation/pair.h"

#include <unistd.h>

#include <string>

#include "bench/ablation/calls.h"

namespace switchyard::bench::ablation {
namespace {

void write_line(int to, const std::string& text) {
  const std::string line = text + "\n";
  if (::write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) fail("write");
}

// Short, and never two at once: byte by byte will do.
std::string read_line(int from) {
  std::string text;
  for (char byte = 0; byte != '\n'; text += byte) {
    if (::read(from, &byte, 1) != 1) fail("the other process of a pair");
  }
  return text;
}

}  // namespace

Pair::Pair(std::size_t bytes, const HostMemory& memory)
    : bytes_(bytes), memory_(memory), other_(start_self({"--leaver", std::to_string(bytes)})) {}

Pair::~Pair() { end(other_); }

Turn Pair::turn(std::size_t chunk_bytes, bool gives_back, bool makes) {
  write_line(other_.to, std::to_string(chunk_bytes) + (gives_back ? " 1" : " 0"));
  Chunks chunks(bytes_, chunk_bytes);
  if (!makes) chunks.bring_all();
  const Copy copy(&memory_);
  read_line(other_.from);  // it is ready
  write_line(other_.to, "go");
  Turn out;
  out.in_ms = move_in(chunks, copy, {.keeps_device = !makes});
  out.out_ms = std::stod(read_line(other_.from));
  return out;
}

int be_leaver(std::size_t bytes) {
  load_module();  // which makes the context
  const HostMemory memory(bytes, HostMemory::Kind::kPinned);
  for (;;) {
    char* end = nullptr;
    const std::string told = read_line(STDIN_FILENO);
    const std::size_t chunk_bytes = std::strtoull(told.c_str(), &end, 10);
    Chunks chunks(bytes, chunk_bytes);
    chunks.bring_all();
    CU(cuMemsetD32, chunks.address(), 7, bytes / 4);
    CU(cuCtxSynchronize);
    Copy copy(&memory);
    write_line(STDOUT_FILENO, "ready");
    read_line(STDIN_FILENO);
    const bool gives_back = std::strtoul(end, nullptr, 10) != 0;
    write_line(STDOUT_FILENO,
               std::to_string(move_out(chunks, copy, {.keeps_device = !gives_back})));
  }
}

}  // namespace switchyard::bench::ablation
