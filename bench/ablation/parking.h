// A model's memory to another GPU and back, in the library's way and in others.
//
// Concept. The chunks leave as in moves.h, but their copies go to memory of GPU 1 that is mapped
// for GPU 0. Who makes that memory, in which pieces and when, and who gives memory back, differs
// from way to way.
//
// Threading: one thread, which starts others for the length of a move.
#pragma once

#include <cstddef>

#include "bench/ablation/moves.h"

namespace switchyard::bench::ablation {

struct ParkWay {
  std::size_t chunk = kChunk;  // of the GPU's own memory, and of a copy
  std::size_t piece = kChunk;  // of memory on the other GPU: a multiple of a chunk
  unsigned streams = 1;
  unsigned together = 1;   // pieces that are given access by one call
  bool kept = false;       // all pieces are there before the move, and stay
  bool ahead = false;      // another thread makes the pieces
  bool behind = false;     // another thread gives up what has been copied
  bool as_arrived = true;  // on the way back a piece is given up once it is copied
};

// What a move took, and what the thread that copies did meanwhile.
struct ParkTook {
  double ms = 0;
  double make_ms = 0;  // creating, mapping and giving access, or waiting for who does
  double wait_ms = 0;  // for copies
  double give_ms = 0;  // unmapping and releasing
};

// Whether there is another GPU that GPU 0 reaches.
bool has_neighbour();

// Memory of GPU 1 behind addresses that GPU 0 uses.
class Neighbour {
 public:
  Neighbour(std::size_t bytes, const ParkWay& way);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  unsigned count() const { return static_cast<unsigned>(handles_.size()); }
  CUdeviceptr at(std::size_t offset) const { return address_ + offset; }
  // Makes `way.together` pieces, the first of them `at`.
  void make(unsigned at);
  void make_all();
  void give_up(unsigned at);

 private:
  std::size_t bytes_of(unsigned at) const;

  std::size_t bytes_;
  ParkWay way_;
  CUdeviceptr address_ = 0;
  std::vector<Handle> handles_;
};

// pre: all is on the device, and away, respectively.
ParkTook park(Chunks& chunks, Neighbour& neighbour, const ParkWay& way);
ParkTook bring_back(Chunks& chunks, Neighbour& neighbour, const ParkWay& way);

// Microseconds of each call for a piece of so many bytes, the mean of several.
struct CallCosts {
  double reserve = 0, create = 0, map = 0, access = 0, unmap = 0, release = 0, unreserve = 0;
};
CallCosts call_costs(int gpu, std::size_t bytes);

// Measures all ways and prints them. The program's exit status.
int measure_parking(int rounds, std::size_t bytes);

}  // namespace switchyard::bench::ablation
