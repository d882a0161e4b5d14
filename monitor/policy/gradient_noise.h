// Gradient noise scale and gradient variance of a data-parallel training: the rule alone.
//
// Concept. N ranks have each the gradient g_i of a batch of their own, of size b. The mean of all
// is g, of B = N b. With |G|² the square of the true gradient and S the variance of one batch:
//
//     E |g_i|² = |G|² + S          E |g|² = |G|² + S / N
//
// so that, with the unit of batches b (KungFu's formulas, for b = 1 and B = N),
//
//     |G|² = (N |g|² - |g_i|²) / (N - 1)          S = (|g_i|² - |g|²) / (1 - 1 / N)
//
// are free of bias. The noise scale S / |G|² is the critical batch in units of b; divided by N, in
// units of what the training uses now. A factor that all ranks apply to their gradients does not
// matter to it. Such a factor is a loss scale or the division by N before a sum.
//
// Norms are sums over buckets, and smoothing is linear: each bucket is smoothed by itself, and the
// result is the sum. So it is no matter where a step begins. A *round* goes from one marker
// (iterations.h) to the next and has each bucket of a step once.
//
//     bucket                                              → it
//     at its place in most of the last rounds             → counts: it is of the gradient
//     was in few of them: a metric, an evaluation         → does not count
//     a rank has not told its norm, or it is not finite   → is left out this time
//     some before it were lost                            → its round does not count
//     the marker is another                               → all begins anew
//
// Threading: plain values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "monitor/policy/iterations.h"

namespace switchyard::monitor::noise {

// The part of the old value: KungFu's, where batches are chosen by the result.
inline constexpr double kDecay = 0.9;
// Rounds by which it is told what a step's buckets are.
inline constexpr std::size_t kShapeRounds = 8;
inline constexpr std::size_t kFewestShapes = 4;
// Steps by which the spread is told, and before there is a result.
inline constexpr std::size_t kSpreadSteps = 64;
inline constexpr std::size_t kFewestSteps = 10;

// |g_i|², the mean over the ranks, and |g|².
struct Squares {
  double local = 0;
  double mean = 0;
  Squares& operator+=(const Squares& more) {
    local += more.local;
    mean += more.mean;
    return *this;
  }
};

struct Estimate {
  double gradient = 0;  // |G|²
  double variance = 0;  // S
};
// pre: ranks > 1.
Estimate estimate(const Squares& squares, unsigned ranks);

// One bucket of one step.
struct Bucket {
  std::uint32_t what = 0;  // the same for the same bucket of all steps, or of those of its size
  std::uint64_t elements = 0;
  std::uint64_t number = 0;  // of the collective in its communicator
  std::optional<Squares> squares;
  bool after_loss = false;  // others before it may be missing
};

struct Result {
  std::size_t steps = 0;
  Estimate smoothed;
  // The critical batch in units of the batch of all ranks, and its standard error; nothing: |G|² is
  // not told apart from 0 (yet).
  std::optional<double> ratio;
  double spread = 0;
};

// By what the library finds each so many steps by itself (abi.h: NormOrder).
struct Cadence {
  std::uint64_t elements = 0;  // of the marker; 0: none is known
  std::uint32_t stride = 0;    // operations of the communicator from one to the next
  bool operator==(const Cadence&) const = default;
};

class Estimator {
 public:
  explicit Estimator(unsigned ranks) : ranks_(ranks) {}

  // Of a step, buckets, of which an eighth may be of different sizes.
  void bound(std::size_t most);
  // In the order of their numbers.
  void add(const Bucket& bucket);

  // Nothing: too few steps were seen.
  std::optional<Result> result() const;
  Cadence cadence() const { return cadence_; }
  // A step's buckets are known.
  bool periodic() const { return !shape_.empty(); }

 private:
  // A bucket's size, and how many of that size came before it in the round.
  using Place = std::pair<std::uint32_t, std::uint32_t>;
  using Shape = std::map<std::uint32_t, std::uint32_t>;  // how many of each size

  void restart();
  void close_round();
  void find_cadence(const Bucket& marker);
  void find_shape();
  bool counts_at(const Place& place) const;
  double effective_steps() const;

  unsigned ranks_;
  std::size_t most_ = iterations::kMostEvents;
  iterations::Finder finder_;
  std::optional<std::uint32_t> marker_;
  Cadence cadence_;
  std::optional<Bucket> last_marker_;
  std::deque<std::uint64_t> distances_;  // the last ones, of steps that follow each other
  bool in_round_ = false;
  Shape seen_;               // in this round,
  std::size_t buckets_ = 0;  // so many
  std::size_t taken_ = 0;    // buckets of the gradient, with their norms
  Squares sum_;              // of these
  std::deque<Shape> rounds_;
  Shape shape_;
  std::map<Place, Squares> smoothed_;
  std::deque<Estimate> steps_;  // the last ones
  std::size_t step_count_ = 0;
};

// How the result of a collective relates to the mean of what was sent.
struct Relation {
  bool summed = true;      // not averaged
  bool scattered = false;  // each rank has a part of it: reduce-scatter
  bool operator==(const Relation&) const = default;
};

// What a rank tells of a collective.
struct Told {
  std::uint64_t number = 0;
  std::uint64_t elements = 0;  // of the gradient, whole
  Relation relation;
  double before = 0;  // the squared norm of what it sent
  double after = 0;   // and of what it received
  bool after_loss = false;
};

// Brings together what the ranks of a communicator tell.
//
//     told by all                               → a bucket, in the order of numbers
//     all have told of later ones               → a bucket without norms
//     more are not told by all than may wait    → the oldest: a bucket without norms
//
// A process may claim any rank of any number of them. So there is room for ranks that have told of
// something, and for no more of them than there are processes that may tell.
class Ranks {
 public:
  static constexpr std::size_t kMostPending = 1024;

  explicit Ranks(unsigned ranks) : size_(ranks) {}

  // How many ranks there can be by now, and how many numbers may wait.
  void bound(std::size_t tellers, std::size_t pending) {
    most_tellers_ = tellers;
    most_pending_ = pending;
  }
  // Answers the buckets that are complete now.
  std::vector<Bucket> add(unsigned rank, const Told& told);
  // Ranks that have told of anything.
  std::size_t telling() const { return latest_.size(); }
  std::size_t size() const { return size_; }
  std::size_t pending() const { return pending_.size(); }

 private:
  // A rank that has told of something.
  struct Teller {
    std::size_t place = 0;  // in Pending::from
    std::uint64_t latest = 0;
  };
  struct Pending {
    Told first;
    std::vector<bool> from;  // by place, as far as they have told
    std::size_t count = 0;
    bool alike = true;
    double before = 0;
    double after = 0;
  };

  Bucket conclude(const Pending& pending);
  bool all_past(std::uint64_t number) const;
  void take(Pending& pending, std::size_t place, const Told& told);

  std::size_t size_;
  std::size_t most_tellers_ = ~std::size_t{0};
  std::size_t most_pending_ = kMostPending;
  std::map<unsigned, Teller> latest_;  // by rank
  std::uint64_t concluded_ = 0;
  std::uint64_t lost_before_ = 0;  // the next bucket from this number on follows a loss; 0: none
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace switchyard::monitor::noise
