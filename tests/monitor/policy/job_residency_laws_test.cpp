// The laws of a job's residency, over random inputs and a made-up world.
//
// Concept. The world is one client with some chunks of memory, and an account that has room or has
// not. People and rules want the job out or in at random. It does what the executor would do, and
// the laws are looked at after each step. A new monitor may come at any time: it knows nothing but
// what the client says. At the end the world is calm: nobody wants it out, and there is room.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "monitor/policy/job_residency.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::residency {
namespace {

constexpr unsigned kChunks = 4;
constexpr Reason kEachReason[] = {Reason::kUser, Reason::kPause, Reason::kIdle, Reason::kYield,
                                  Reason::kMove};

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {}

  // One look of the monitor.
  void look() {
    time_ += std::chrono::milliseconds(roll(200));
    take({.event = Event::kReported, .seen = see()});
    std::optional<Input> input{Input{.event = Event::kLook}};
    for (int actions = 0; input; ++actions) {
      ASSERT_LT(actions, 5) << "a look ends";
      input->seen = see();
      input = act(take(*input));
    }
  }

  // The client does a part of what it was told, or not.
  void live() {
    fails_ = !calm_ && roll(6) == 0;
    if (fails_ || (!calm_ && roll(3) == 0)) return;
    if (!limited_ && there_ < kChunks) ++there_;
    if (limited_ && there_ > limit_) --there_;
    if (there_ == limit_) away_ = limited_;
    if (there_ == kChunks && !limited_) away_ = false;
  }

  void change_something() {
    const Reason reason = kEachReason[roll(5)];
    switch (roll(10)) {
      case 0:
      case 1:
        take({.event = Event::kWantedOut, .reasons = reason, .contexts = roll(2) == 0});
        break;
      case 2:
        take({.event = Event::kWantedIn, .reasons = reason});
        break;
      case 3:
        take({.event = Event::kWantedIn, .reasons = kAllReasons});
        break;
      case 4:
        take({.event = Event::kRoomCame});
        break;
      case 5:
        room_ = !room_;
        break;
      case 6:
        first_ = !first_;
        break;
      case 7:
        // Without a monitor it came before there was room.
        if (there_ < kChunks) act(take({.event = Event::kFoundAway}));
        break;
      case 8:
        start_another_monitor();
        break;
      default:
        take({.event = Event::kKeeps});
        break;
    }
  }

  void calm() {
    calm_ = room_ = first_ = true;
    take({.event = Event::kWantedIn, .reasons = kAllReasons.with(Reason::kMove)});
  }
  bool is_home() const { return machine_->state == State::kResident && there_ == kChunks; }

 private:
  unsigned roll(unsigned sides) { return random_() % sides; }

  Seen see() const {
    return {.has_memory = there_ > 0 || (limited_ && limit_ > 0),
            .all_there = there_ == kChunks,
            .resident = !away_ && there_ == kChunks,
            .first = first_};
  }

  // Its page is new, so nothing is limited; its account holds what the client says that it has.
  void start_another_monitor() {
    machine_ = {};
    released_ = suspended_ = limited_ = false;
    const bool away = away_;
    if (away) act(take({.event = Event::kFoundAway}));
    EXPECT_EQ(machine_->state, away ? State::kSwappedOut : State::kResident);
    EXPECT_EQ(limited_, away) << "the monitor finds the truth";
    EXPECT_EQ(suspended_, away);
  }

  Step take(const Input& input) {
    const State from = machine_->state;
    const Reasons before = machine_->wanted_out;
    const Step step = machine_.take(input, time_);
    const State to = step.to.state;
    EXPECT_TRUE(is_legal(from, to));
    EXPECT_FALSE(step.to.waits_since != Time{0} && !released(to)) << "who is in waits no more";
    if (from == State::kSwappingIn && to == State::kResident) {
      EXPECT_EQ(there_, kChunks) << "it works only with all of its memory";
    }
    if (input.event == Event::kStays) {
      // A job that is out and could not move stays out for each reason that wants it out.
      const bool moves = from == State::kSwappedOut && before.has(Reason::kMove);
      EXPECT_EQ(step.to.wanted_out, moves ? before.without(Reason::kMove) : Reasons())
          << "an error ends what cannot be";
      EXPECT_TRUE(step.to.failure.failed);
    }
    return step;
  }

  std::optional<Input> act(const Step& step) {
    const std::optional<Input> out = carry_out(step.action);
    EXPECT_EQ(limited_, released(machine_->state)) << "work goes on only where it is wanted in";
    EXPECT_EQ(released_, released(machine_->state)) << "who works is counted in full";
    EXPECT_TRUE(!suspended_ || machine_->state == State::kSwappedOut)
        << "its room is others' only when it is out";
    return out;
  }

  std::optional<Input> carry_out(Action action) {
    switch (action) {
      case Action::kNothing:
      case Action::kPrepare:
        return std::nullopt;
      case Action::kBeginOut:
        released_ = true;
        return order_out();
      case Action::kOrderContexts:
        EXPECT_EQ(machine_->state, State::kSwappedOut);
        return order_out();
      case Action::kOrderOut:
        EXPECT_FALSE(machine_->state == State::kSwappedOut && machine_->contexts_out.any());
        return order_out();
      case Action::kSuspend:
        EXPECT_LE(there_, limit_);
        suspended_ = true;
        return std::nullopt;
      case Action::kFollowRoom:
        if (room_ && limit_ < kChunks) ++limit_;
        return Input{.event = Event::kRoomFollowed};
      case Action::kReclaim:
        EXPECT_FALSE(machine_->wanted_out.any());
        if (!room_) return Input{.event = Event::kNoRoom};
        // Counted before it is told to come. The account forgets the rest in the same look.
        released_ = suspended_ = false;
        return let_in_next();
      case Action::kStayIn:
        released_ = suspended_ = false;
        limited_ = false;
        return std::nullopt;
      case Action::kLetIn:
        EXPECT_FALSE(released_) << "counted in full before it may come";
        limited_ = false;
        return std::nullopt;
      case Action::kAdopt:
        released_ = suspended_ = true;
        limit_there();
        return std::nullopt;
      case Action::kLimitThere:
        limit_there();
        return std::nullopt;
    }
    return std::nullopt;
  }

  // Between the account's word and the orders nothing else happens.
  std::optional<Input> let_in_next() {
    act(take({.event = Event::kRoom, .seen = see()}));
    return std::nullopt;
  }

  Input order_out() {
    limited_ = true;
    if (!machine_->wanted_out.only_yields()) limit_ = 0;
    if (there_ <= limit_ && away_) return {.event = Event::kLeft};
    if (fails_) return {.event = Event::kStays, .failure = {.failed = true, .error = 1}};
    return {.event = Event::kLeaves};
  }

  void limit_there() {
    if (!limited_) limit_ = there_;
    limited_ = true;
  }

  std::mt19937 random_;
  Machine machine_;
  Time time_ = std::chrono::hours(1);
  // The client's state.
  unsigned there_ = kChunks;
  bool away_ = false;  // it says that it works without it
  bool fails_ = false;
  // The monitor's order to it.
  bool limited_ = false;
  unsigned limit_ = 0;
  // What the account says.
  bool released_ = false;
  bool suspended_ = false;
  // The others.
  bool room_ = true;
  bool first_ = true;
  bool calm_ = false;
};

class JobResidencyLaws : public testing::TestWithParam<unsigned> {};

TEST_P(JobResidencyLaws, HoldWhateverHappensAndItComesHomeOnceThereIsRoom) {
  World world(GetParam());
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    world.change_something();
    world.live();
    world.look();
  }
  world.calm();
  for (int i = 0; i < 100 && !world.is_home(); ++i) {
    world.live();
    world.look();
  }
  EXPECT_TRUE(world.is_home());
}

INSTANTIATE_TEST_SUITE_P(Seeds, JobResidencyLaws, testing::Range(0u, test_support::seeds(50)));

// Any input in any state, also one that no executor would give.
TEST(JobResidencyLaws, NoInputAtAllBreaksTheTable) {
  std::mt19937 random(1);
  const auto roll = [&](unsigned sides) { return static_cast<unsigned>(random() % sides); };
  JobResidency from;
  bool entered[kStates] = {};
  for (int i = 0; i < 200'000; ++i) {
    Input input{.event = static_cast<Event>(roll(kEvents)), .reasons = kEachReason[roll(5)]};
    input.seen = {.has_memory = roll(2) == 0,
                  .all_there = roll(2) == 0,
                  .resident = roll(2) == 0,
                  .first = roll(2) == 0,
                  .room_comes = roll(2) == 0};
    const Step step = next(from, input, Time(i));
    const State to = step.to.state;
    ASSERT_TRUE(is_legal(from.state, to));
    const bool lifts = step.action == Action::kLetIn || step.action == Action::kStayIn;
    ASSERT_EQ(lifts, released(from.state) && !released(to)) << "limits are lifted where it comes";
    ASSERT_EQ(step.action == Action::kBeginOut || step.action == Action::kAdopt,
              !released(from.state) && released(to))
        << "and the account counts what is there from where it goes";
    ASSERT_FALSE(step.to.waits_since != Time{0} && !released(to));
    entered[static_cast<unsigned>(to)] = true;
    from = step.to;
  }
  for (const bool each : entered) EXPECT_TRUE(each);
}

}  // namespace
}  // namespace switchyard::monitor::residency
