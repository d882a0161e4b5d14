// Plays: a process's movers among orders of any kind and failures of the driver. Monitors change.
// The application allocates, works, and has contexts begin and end. mover_plays.txt is the record
// (tests/support/plays.h), which this renews, as record.txt:
//
//   SWITCHYARD_PLAYS=FOLDER build/shim_mover_test --gtest_filter='*MoverPlays.*'
#include <string.h>

#include <random>
#include <sstream>

#include "shim/swap/memory/parking.h"
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/plays.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr unsigned kPlays = 12;
constexpr unsigned kParts = 4;
constexpr unsigned kSteps = 60;  // of each part

// Of the orders of a play.
enum Theme : unsigned { kLimits, kTwoGpus, kParks, kContexts, kThemes };

class MoverPlays : public MoverTest, public ::testing::WithParamInterface<unsigned> {
 public:
  void step() {
    for (unsigned i = roll(3); i > 0; --i) somebody_orders();
    if (roll(3) == 0) something_happens();
    if (roll(4) == 0) application();
    for (unsigned i = 1 + roll(6); i > 0; --i) look(gpus_ == 2 && roll(3) == 0 ? 1 : 0);
    if (roll(10) == 0) run_for(roll(30) * 100 * kMs);
    note();
  }
  const test_support::Columns& columns() const { return columns_; }

 protected:
  MoverPlays() {
    swap::parking::clear();
    swap::clear_digests();
    if (gpus_ == 2) use_two_gpus();
    process().swappable.store(2);
    for (unsigned gpu : {0u, 1u}) {
      std::uint8_t uuid[16];
      ::memset(uuid, static_cast<int>(gpu + 1), sizeof(uuid));
      ::memcpy(page().lanes[gpu].uuid, uuid, sizeof(uuid));
      std::uint64_t words[2];
      ::memcpy(words, uuid, sizeof(words));
      for (unsigned i : {0u, 1u}) page().lanes[gpu].machine_uuid[i].store(words[i]);
    }
  }
  ~MoverPlays() override {
    calm();
    EXPECT_TRUE(run_until([&] {
      if (gpus_ == 2) look(1);
      return is_back() && page().residencies[1].phase.load() == abi::kResident;
    }));
    expect_told_right_of_all();
    for (abi::Lane& lane : page().lanes) {
      for (abi::Word64& word : lane.machine_uuid) word.store(0);
      ::memset(lane.uuid, 0, sizeof(lane.uuid));
    }
  }

 private:
  unsigned roll(unsigned sides) { return static_cast<unsigned>(random_() % sides); }
  abi::Residency& some_words() { return page().residencies[gpus_ == 2 ? roll(2) : 0]; }

  // The monitor's words.
  void somebody_orders() {
    abi::Residency& at = some_words();
    abi::Lane& lane = page().lanes[&at - page().residencies];
    const unsigned chunks = roll(7);
    const bool numbered = roll(4) != 0;
    const bool parks = theme_ == kParks && roll(3) == 0;
    const bool detaches = theme_ == kContexts && roll(4) == 0;
    const unsigned what = roll(9);
    switch (parks ? 6 : detaches ? 4 : what) {
      case 0:
      case 1:
        at.limit_bytes.store(chunks * kMiB2);
        at.limited.store(1);
        break;
      case 2:
      case 3:
        at.limited.store(abi::kUnlimited);
        break;
      case 4:
        at.limit_bytes.store(0);
        at.limited.store(theme_ == kContexts ? abi::kContextsToo : 1);
        lane.shall_be_on.store(theme_ == kContexts ? chunks % 3 : 0);
        break;
      case 5:
        at.host_limit_bytes.store(chunks % 3 * swap::pinned_pool::kSlab);
        break;
      case 6:
        at.park_lane.store(gpus_ == 1 && chunks != 0 ? 2 : 0);
        at.park_bytes.store(chunks * kMiB2);
        at.park_only.store(roll(3) == 0 ? 1 : 0);
        break;
      case 7:
        lane.precopy.store(roll(2));
        lane.unpin.store(roll(4));
        break;
      default:
        pause(roll(2) == 0);
    }
    if (numbered) at.order.fetch_add(1);
  }

  void something_happens() {
    const bool fails = roll(2) == 0;
    world_.during_wait = nullptr;
    switch (roll(9)) {
      case 0:
        faults().fail(static_cast<int>(roll(30)),
                      fails ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
        break;
      case 1:
        world_.wait_result = fails && roll(3) == 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
        break;
      case 2:
        process().joined.store(roll(4) != 0);
        break;
      case 3:
        find_another_monitor();
        break;
      case 4:
        mover_.lock_result = fails ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
        break;
      case 5:
        mover_.restore_result = fails ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        break;
      case 6:
        mover_.move_result = fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        break;
      case 7:
        world_.during_wait = [this, late = roll(3) == 0] {
          if (!late) return lift();
          mover_.now_ns.fetch_add(11 * kSecond);
          swap::admission::overrule(now());
        };
        break;
      default:
        faults().none();
    }
  }

  void application() {
    if (mover_.process != CU_PROCESS_STATE_RUNNING) return;
    switch (roll(4)) {
      case 0:
        if (contents_.size() == 4 || !swap::admission::is_open()) return;
        faults().none();  // they are for the mover
        allocate_more(1);
        break;
      case 1:
        set_primary(roll(3) != 0);
        break;
      default: {
        const std::size_t range = roll(2);
        const unsigned chunk = roll(2);
        const bool zeroes = roll(4) == 0;
        if (!swap::admission::is_open() || !all_is_there()) return;
        zeroes ? zero(range, chunk) : change(range, chunk, roll(2));
      }
    }
  }
  static bool all_is_there() {
    for (const unsigned lane : {0u, 1u}) {
      const abi::Residency& at = page().residencies[lane];
      if (at.resident_bytes.load() != at.total_bytes.load()) return false;
    }
    return true;
  }
  void find_another_monitor() {
    const auto fresh = std::make_unique<abi::Page>();
    swap::residency_page::carry_over(*fresh);
    begin_fresh_page(gpus_);
  }

  void note() {
    for (unsigned lane = 0; lane < gpus_; ++lane) {
      const abi::Residency& at = page().residencies[lane];
      const abi::Lane& on = page().lanes[lane];
      const abi::Memory& memory = page().memories[lane];
      std::ostringstream line;
      line << lane << " order " << at.order << " answered " << at.answered << " phase " << at.phase
           << " error " << at.error << ' ' << at.swap_result << " bytes " << at.total_bytes << ' '
           << at.resident_bytes << ' ' << at.host_bytes << ' ' << at.moved_bytes << " moves "
           << at.moves << " parked " << on.parked_lane << ' ' << on.parked_bytes << " unpinned "
           << on.unpinned << " places " << on.places << " out " << memory.moved_out_bytes << ' '
           << memory.times_out << " in " << memory.moved_in_bytes << " spared "
           << memory.spared_bytes;
      columns_["page"].note(line.str());
    }
    std::ostringstream line;
    line << now() << " admits " << admits() << " process " << mover_.process << " groups "
         << mover_.groups << mover_.groups_come << " exchanged " << mover_.exchanged << " told "
         << mover_.told.size() << " woken " << world_.wakes << " waits " << world_.waits.size()
         << " handles " << driven_.live_handles << " in " << driven_.copies_in << " beside "
         << driven_.copies_beside << " sets " << driven_.sets << " launches " << driven_.launches
         << " permitted";
    for (const std::uint64_t bytes : driven_.permitted) line << ' ' << bytes / kMiB2;
    line << " unmapped";
    for (const std::uint64_t bytes : driven_.unmapped) line << ' ' << bytes / kMiB2;
    driven_.permitted.clear();
    driven_.unmapped.clear();
    columns_["driver"].note(line.str());
  }

  void calm() {
    world_.during_wait = nullptr;
    world_.wait_result = mover_.lock_result = mover_.restore_result = mover_.move_result =
        CUDA_SUCCESS;
    faults().none();
    process().joined.store(1);
    pause(false);
    for (unsigned lane = 0; lane < 2; ++lane) {
      abi::Residency& at = page().residencies[lane];
      at.host_limit_bytes.store(4 * swap::pinned_pool::kSlab);
      at.park_lane.store(0);
      at.limited.store(abi::kUnlimited);
      page().lanes[lane].unpin.store(0);
      page().lanes[lane].precopy.store(0);
      page().lanes[lane].shall_be_on.store(0);
    }
    world_.primary = true;
    swap::mover::context_made(0);
  }
  void expect_told_right_of_all() {
    std::uint64_t resident = 0;
    for (unsigned lane = 0; lane < 2; ++lane) {
      resident += page().residencies[lane].resident_bytes.load();
    }
    g_resident = static_cast<std::int64_t>(resident);
    expect_nothing_lost();
  }

  std::mt19937 random_{GetParam()};
  const Theme theme_ = static_cast<Theme>(GetParam() % kThemes);
  const unsigned gpus_ = theme_ == kTwoGpus ? 2 : 1;
  test_support::Columns columns_{{"page", {}}, {"driver", {}}};
};

TEST_P(MoverPlays, GoAsTheRecordSays) {
  test_support::PlayRecord(SWITCHYARD_MOVER_RECORD).hold_against(*this, GetParam(), kParts, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MoverPlays, ::testing::Range(0u, kPlays));

}  // namespace
}  // namespace switchyard::shim
