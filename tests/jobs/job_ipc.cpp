// job_ipc: memory that processes give each other by legacy IPC, when told to. Each line on stdin is
// answered by one line: what is told below, "did COMMAND", or "failed COMMAND CODE".
//
//   alloc BYTES        → "did alloc INDEX"       free INDEX
//   fill INDEX WORD    sets each word            check INDEX WORD  → "right" or "wrong AT"
//   export INDEX AT    of the address at byte AT → "handle HEX"
//   open HEX           → "opened INDEX BASE"     close INDEX
//   bounds INDEX AT    → "bounds BASE BYTES", as the driver says of the address at byte AT; and
//                      as the attributes say, "differ" if these are others
//   capable INDEX      → "capable 0" or "1", of legacy IPC
//   reset              the primary context       renew              retains it again
//   quit
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "conversation.h"

namespace {

struct Buffer {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

std::string hex_of(const CUipcMemHandle& handle) {
  std::string text;
  char digits[3];
  for (const char byte : handle.reserved) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

CUipcMemHandle handle_of(const std::string& hex) {
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof(handle.reserved) && 2 * i + 1 < hex.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::strtoul(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return handle;
}

class Memory {
 public:
  CUresult open_context() {
    CUcontext context = nullptr;
    const CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
  }

  CUresult alloc(std::size_t bytes, std::string& says) {
    Buffer buffer{0, bytes};
    const CUresult result = cuMemAlloc(&buffer.address, bytes);
    buffers_.push_back(buffer);
    says = "did alloc " + std::to_string(buffers_.size() - 1);
    return result;
  }

  CUresult fill(std::size_t index, std::uint32_t word) {
    const Buffer& buffer = buffers_.at(index);
    const CUresult result = cuMemsetD32(buffer.address, word, buffer.bytes / 4);
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
  }

  CUresult check(std::size_t index, std::uint32_t word, std::string& says) {
    const Buffer& buffer = buffers_.at(index);
    std::vector<std::uint32_t> words(buffer.bytes / 4);
    says = "right";
    const CUresult result = cuMemcpyDtoH(words.data(), buffer.address, buffer.bytes);
    for (std::size_t i = words.size(); i-- > 0;) {
      if (words[i] != word) says = "wrong " + std::to_string(4 * i);
    }
    return result;
  }

  CUresult give(std::size_t index, std::size_t at, std::string& says) {
    CUipcMemHandle handle{};
    const CUresult result = cuIpcGetMemHandle(&handle, buffers_.at(index).address + at);
    says = "handle " + hex_of(handle);
    return result;
  }

  CUresult open(const std::string& hex, std::string& says) {
    Buffer buffer;
    CUresult result =
        cuIpcOpenMemHandle(&buffer.address, handle_of(hex), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS) {
      result = cuMemGetAddressRange(nullptr, &buffer.bytes, buffer.address);
    }
    buffers_.push_back(buffer);
    std::ostringstream text;
    text << "opened " << buffers_.size() - 1 << ' ' << buffer.address;
    says = text.str();
    return result;
  }

  CUresult bounds(std::size_t index, std::size_t at, std::string& says) {
    const CUdeviceptr inside = buffers_.at(index).address + at;
    CUdeviceptr base = 0, start = 0;
    std::size_t bytes = 0, size = 0;
    void* answers[] = {&start, &size};
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUresult result = cuMemGetAddressRange(&base, &bytes, inside);
    if (result == CUDA_SUCCESS) result = cuPointerGetAttributes(2, asked, answers, inside);
    std::ostringstream text;
    text << (base == start && bytes == size ? "bounds " : "differ ") << base << ' ' << bytes;
    says = text.str();
    return result;
  }

  CUresult capable(std::size_t index, std::string& says) {
    unsigned capable = 9;
    const CUresult result = cuPointerGetAttribute(
        &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, buffers_.at(index).address);
    says = "capable " + std::to_string(capable);
    return result;
  }

  CUresult act(const std::string& line, std::string& says) {
    std::istringstream words(line);
    std::string command, first;
    std::size_t second = 0;
    words >> command >> first >> second;
    const std::size_t number = std::strtoull(first.c_str(), nullptr, 10);
    if (command == "alloc") return alloc(number, says);
    if (command == "free") return cuMemFree(buffers_.at(number).address);
    if (command == "fill") return fill(number, static_cast<std::uint32_t>(second));
    if (command == "check") return check(number, static_cast<std::uint32_t>(second), says);
    if (command == "export") return give(number, second, says);
    if (command == "open") return open(first, says);
    if (command == "close") return cuIpcCloseMemHandle(buffers_.at(number).address);
    if (command == "bounds") return bounds(number, second, says);
    if (command == "capable") return capable(number, says);
    if (command == "reset") return cuDevicePrimaryCtxReset(0);
    if (command == "renew") return open_context();
    return CUDA_ERROR_INVALID_VALUE;
  }

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace

int main() {
  Memory memory;
  const bool ok = cuInit(0) == CUDA_SUCCESS && memory.open_context() == CUDA_SUCCESS;
  return jobs::converse(
      ok, [&](const std::string& line, std::string& says) { return memory.act(line, says); });
}
