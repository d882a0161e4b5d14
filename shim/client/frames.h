// Frames of the wire (switchyard/wire.h) on the client's side: bytes and descriptors over a
// connected socket.
//
// Concept. Calls block no longer than the socket's own limits. After a false answer the stream is
// out of step and can't be trusted again. Descriptors travel with the first byte of their frame.
//
// Threading: plain values; who has the socket guards it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchyard/wire.h"

namespace switchyard::shim {

// Descriptors that go along with a frame, or came with one.
struct Descriptors {
  int fd[wire::kMostDescriptors];
  std::uint32_t count = 0;

  void add(int one) { fd[count++] = one; }  // pre: there is room
  void close();
};

bool send_frame(int fd, wire::Kind kind, std::uint32_t id, const void* payload, std::size_t bytes,
                const Descriptors& along = {});

// A frame's header, and what came with it, which is the caller's to close, whatever the answer.
bool receive_header(int fd, wire::FrameHeader& header, Descriptors& along);
bool receive_all(int fd, void* data, std::size_t bytes);
// A payload as the struct of its kind; what a later version has behind it is skipped.
bool receive_payload(int fd, const wire::FrameHeader& header, void* data, std::size_t bytes);

}  // namespace switchyard::shim
