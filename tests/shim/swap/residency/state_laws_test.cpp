// The laws of the residency state machine, over random inputs and a made-up world.
//
// Concept. The world is a count of chunks on the device, an order that changes at random, and
// actions that fail at random. It does what the executor would do, and the laws are looked at after
// each step. At the end the world is calm: no order, no failure, room and a context.
#include <gtest/gtest.h>

#include <random>

#include "shim/swap/residency/state.h"
#include "tests/support/seeds.h"

namespace switchyard::shim::swap::residency {
namespace {

constexpr std::uint64_t kChunkBytes = kLeastPart;
constexpr std::uint64_t kChunks = 8;

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {}

  // One look: actions until nothing is left to do.
  void look() {
    rests_ = false;
    Input input{.event = MoverEvent::kLook, .seen = see()};
    for (int actions = 0;; ++actions) {
      ASSERT_LT(actions, 8) << "a look ends";
      MoverStep step = next(now_, input, time_);
      if (input.event == MoverEvent::kLook && needs_context(step.action) && !context_) {
        input.seen.context = false;
        step = next(now_, input, time_);
      }
      adopt(step);
      if (!act(step.action, input)) {
        time_ += step.look_in_ns + 1;
        return;
      }
    }
  }

  void change_something() {
    switch (roll(12)) {
      case 0:
      case 1:
        limited_ = true;
        limit_ = roll(kChunks + 2) * kChunkBytes;
        detaches_ = roll(2) == 0;
        break;
      case 2:
        limited_ = false;
        break;
      case 3:
        if (detached()) break;  // nobody can: the contexts are away
        if (!context_) make_context();
        context_ = !context_;
        break;
      case 4:
        monitored_ = !monitored_;
        break;
      case 5:
        handoff_ = static_cast<Handoff>(roll(4));
        break;
      case 6:
        asked_ = true;
        break;
      case 7:
        park_limit_ = roll(kChunks + 1);
        break;
      default:
        break;
    }
  }

  // No order, no failure, and a context.
  void calm() {
    calm_ = true;
    limited_ = false;
    handoff_ = Handoff::kNone;
    if (!context_) make_context();
    context_ = true;
  }

  bool is_home() const { return now_.state == MoverState::kResident && resident_ == kChunks; }
  std::uint64_t time() const { return time_; }
  void expect_page_tells_the_truth() const {
    // Once there is nothing to do, what was said last is the state that it rests in.
    if (!rests_) return;
    EXPECT_EQ(said_phase_, phase_of(now_.state));
  }

 private:
  std::uint64_t roll(std::uint64_t sides) { return random_() % sides; }
  bool fails() { return !calm_ && roll(4) == 0; }

  MoverView see() {
    return {.limited = limited_,
            .limit = limited_ ? limit_ : UINT64_MAX,
            .detaches = limited_ && detaches_,
            .total = kChunks * kChunkBytes,
            .resident = resident_ * kChunkBytes,
            .monitored = monitored_,
            .quiesced = quiesced_,
            .answered = said_phase_ ==
                        phase_of(detached() ? MoverState::kDetached : MoverState::kSwappedOut),
            .asked = asked_,
            .parked = parked_ * kChunkBytes,
            .park_limit = park_limit_ * kChunkBytes,
            .kept = kept_ && parked_ != 0,
            .handoff = admits(now_.state) || detached() ? Handoff::kNone : handoff_};
  }
  bool detached() const { return now_.state == MoverState::kDetached; }

  void adopt(const MoverStep& step) {
    EXPECT_TRUE(is_legal(now_.state, step.to.state))
        << static_cast<int>(now_.state) << " to " << static_cast<int>(step.to.state);
    now_ = step.to;
    if (admits(now_.state)) quiesced_ = false;
    if (now_.state == MoverState::kResident) {
      EXPECT_EQ(resident_, kChunks) << "work is admitted only when all is there";
    }
    if (step.failed) {
      EXPECT_TRUE(step.says) << "a failure is told";
      EXPECT_GT(now_.not_before_ns, time_);
    }
    if (step.says) said_phase_ = phase_of(now_.state);
  }

  // False: the look is over.
  bool act(Action action, Input& input) {
    input.error = Error::kFine;
    input.away = false;
    switch (action) {
      case Action::kFindHostRoom:
        input.event = fails() ? MoverEvent::kNoHostRoom : MoverEvent::kHostRoom;
        return true;
      case Action::kQuiesce:
        quiesce(input);
        return true;
      case Action::kConsolidate:
        asked_ = false;
        if (!admits(now_.before)) ADD_FAILURE() << "only while work is admitted";
        if (context_ && roll(2) == 0) {
          quiesced_ = true;
          if (fails()) resident_ = roll(kChunks + 1);
          input.away = resident_ != kChunks;
        }
        input.event = MoverEvent::kConsolidated;
        return true;
      case Action::kSwapOut:
        EXPECT_TRUE(quiesced_) << "memory leaves only once work is done";
        move_out(input);
        return true;
      case Action::kSwapIn:
      case Action::kSwapInPart:
        move_in(input, action == Action::kSwapInPart);
        return true;
      case Action::kTakeContexts:
        EXPECT_EQ(resident_, 0u);
        EXPECT_LE(parked_, kept_ ? park_limit_ : 0) << "the driver would take that as well";
        input.event = fails() ? MoverEvent::kContextsStay : MoverEvent::kContextsTaken;
        return true;
      case Action::kBringContexts:
        EXPECT_TRUE(detached());
        bring_contexts(input);
        return true;
      case Action::kMoveOn:
        move_on(input);
        return true;
      case Action::kMakeWay:
        if (roll(2) == 0) resident_ = 0;
        return false;
      default:
        rests_ = action != Action::kAnswer && action != Action::kNothing;
        return false;
    }
  }

  void quiesce(Input& input) {
    if (!quiesced_ && fails()) {
      input.event = roll(2) == 0 ? MoverEvent::kLate : MoverEvent::kFailed;
      return;
    }
    quiesced_ = true;
    if (!calm_) change_order();
    input.seen.limited = limited_;
    input.seen.limit = limited_ ? limit_ : UINT64_MAX;
    input.event = MoverEvent::kQuiesced;
  }

  void change_order() {
    if (roll(4) == 0) limited_ = !limited_;
  }

  void move_out(Input& input) {
    const std::uint64_t keep = std::min(input.seen.limit / kChunkBytes, resident_);
    input.event = fails() && resident_ != keep ? MoverEvent::kStopped : MoverEvent::kDone;
    resident_ = input.event == MoverEvent::kDone ? keep : keep + roll(resident_ - keep) + 1;
    if (input.event == MoverEvent::kStopped) input.error = Error::kNoHostRoom;
    if (parked_ == 0) kept_ = roll(2) == 0;
    parked_ = std::max(parked_, std::min(park_limit_, kChunks - resident_));
  }

  void move_on(Input& input) {
    EXPECT_TRUE(limited_) << "what comes back is parked no more anyway";
    EXPECT_TRUE(context_);
    const std::uint64_t limit = detaches_ && !kept_ ? 0 : park_limit_;
    EXPECT_GT(parked_, limit);
    input.event = fails() ? MoverEvent::kStopped : MoverEvent::kMovedOn;
    input.error = Error::kNoHostRoom;
    if (input.event == MoverEvent::kMovedOn) parked_ = limit;
  }

  void bring_contexts(Input& input) {
    input.event = fails() ? MoverEvent::kContextsAway : MoverEvent::kContextsBack;
    input.error = Error::kNoDeviceRoom;
    if (calm_ || roll(8) != 0) return;
    input.event = MoverEvent::kContextLost;
    context_ = false;
  }

  void move_in(Input& input, bool part) {
    EXPECT_FALSE(detached());
    const std::uint64_t most = part ? std::min(kChunks, input.seen.limit / kChunkBytes) : kChunks;
    if (!context_) {
      input.event = part ? MoverEvent::kStopped : MoverEvent::kContextLost;
      input.error = Error::kFailed;
    } else if (fails() && resident_ < kChunks) {
      resident_ += roll(kChunks - resident_);
      input.event = MoverEvent::kStopped;
      input.error = roll(2) == 0 ? Error::kNoDeviceRoom : Error::kFailed;
    } else {
      resident_ = std::max(resident_, most);
      input.event = MoverEvent::kDone;
    }
    parked_ = std::min(parked_, kChunks - resident_);
  }

  void make_context() {
    const Input input{.event = MoverEvent::kContextMade, .seen = {}, .away = resident_ != kChunks};
    adopt(next(now_, input, time_));
  }

  std::mt19937 random_;
  Residency now_;
  std::uint64_t time_ = 1'000'000'000;
  std::uint64_t resident_ = kChunks;
  bool limited_ = false;
  bool detaches_ = false;
  std::uint64_t limit_ = 0;
  std::uint64_t parked_ = 0;  // chunks
  std::uint64_t park_limit_ = 0;
  bool kept_ = false;
  bool context_ = true;
  bool monitored_ = true;
  bool quiesced_ = false;
  bool asked_ = false;
  bool calm_ = false;
  bool rests_ = false;
  Handoff handoff_ = Handoff::kNone;
  std::uint32_t said_phase_ = abi::kResident;
};

TEST(ResidencyLaws, AnyWorldKeepsThemAndComesHomeOnceItIsCalm) {
  for (unsigned seed = 0; seed < test_support::seeds(2'000); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 200; ++i) {
      world.change_something();
      world.look();
      world.expect_page_tells_the_truth();
      if (::testing::Test::HasFailure()) return;
    }
    world.calm();
    const std::uint64_t since = world.time();
    for (int i = 0; i < 1'000 && !world.is_home(); ++i) world.look();
    ASSERT_TRUE(world.is_home()) << "nothing is away for ever once there is room";
    EXPECT_LT(world.time() - since, 10 * kLastBackoffNs);
  }
}

}  // namespace
}  // namespace switchyard::shim::swap::residency
