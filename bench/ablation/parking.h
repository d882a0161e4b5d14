// A model's memory to another GPU and back, in the library's way and in others.
//
// Concept. The chunks leave as in moves.h, but their copies go to memory of GPU 1 that is mapped
// for GPU 0. There they are pieces of several chunks, each at addresses of its own. When memory is
// given up, and by how many calls, differs from way to way.
//
// Threading: one thread.
#pragma once

#include <cstddef>

#include "bench/ablation/moves.h"

namespace switchyard::bench::ablation {

struct ParkWay {
  std::size_t piece = 8 * kChunk;  // of memory on the other GPU
  unsigned together = 1;           // chunks of its own memory that one call unmaps
  bool kept = false;               // all pieces are there before the move, and stay
  bool out_last = false;           // its own memory is given up after the last copy
  bool back_last = false;          // the pieces are
};

// What a move took, and what the thread that copies did meanwhile.
struct ParkTook {
  double ms = 0;
  double make_ms = 0;  // creating, mapping and giving access
  double wait_ms = 0;  // for copies
  double unmap_ms = 0;
  double release_ms = 0;
  CUresult refused = CUDA_SUCCESS;  // what the driver said to one call for several mappings
};

// Whether there is another GPU that GPU 0 reaches.
bool has_neighbour();

// Memory of GPU 1 that GPU 0 uses.
class Neighbour {
 public:
  Neighbour(std::size_t bytes, const ParkWay& way);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  unsigned count() const { return static_cast<unsigned>(pieces_.size()); }
  unsigned piece_of(std::size_t offset) const { return static_cast<unsigned>(offset / way_.piece); }
  // pre: the piece is there.
  CUdeviceptr at(std::size_t offset) const;
  // Makes a piece that is not there, or gives up one that is.
  void make(unsigned at);
  void give_up(unsigned at, ParkTook& took);

 private:
  struct Piece {
    CUdeviceptr address = 0;
    Handle handle = 0;
  };
  std::size_t bytes_of(unsigned at) const;

  std::size_t bytes_;
  ParkWay way_;
  std::vector<Piece> pieces_;
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
