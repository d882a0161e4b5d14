// The claim on a GPU: an abstract socket on which the GPU's monitor listens, within one network
// namespace. The kernel says who listens there; the answer to a connection says on which socket.
//
// Threading: pure functions.
#pragma once

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <string>

namespace switchyard {

inline socklen_t claim_address(const std::string& uuid, sockaddr_un& out) {
  const std::string name = "switchyard-gpu-" + uuid;
  out = {};
  out.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(out.sun_path) - 1);
  ::memcpy(out.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

}  // namespace switchyard
