// A driver that takes its time, and a loop that doesn't wait for it.
#include "monitor/platform/patient_gpus.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/monitor/fake_gpus.h"

namespace switchyard::monitor::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Stands still while it is told to.
class SlowGpus final : public Gpus {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = true;
    int asked = 0;

    void set(bool to) {
      const std::lock_guard lock(mutex);
      open = to;
      changed.notify_all();
    }
  };
  explicit SlowGpus(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  std::string problem() const override { return gpus_.problem(); }
  std::string driver_version() const override { return gpus_.driver_version(); }
  const std::vector<GpuInfo>& list() const override { return gpus_.list(); }
  std::optional<GpuMemory> memory(std::size_t at) override {
    pass();
    return gpus_.memory(at);
  }
  std::optional<std::vector<ProcessMemory>> processes(std::size_t at) override {
    pass();
    return gpus_.processes(at);
  }
  std::optional<std::vector<ProcessLoad>> loads(std::size_t) override { return std::nullopt; }
  std::optional<GpuCondition> condition(std::size_t) override { return std::nullopt; }

 private:
  void pass() {
    std::unique_lock lock(gate_->mutex);
    ++gate_->asked;
    gate_->changed.wait_for(lock, seconds(60), [this] { return gate_->open; });
  }

  std::shared_ptr<Gate> gate_;
  FakeGpus gpus_{2};
};

TEST(PatientGpus, AnswersAsTheDriverDoes) {
  auto fake = std::make_unique<FakeGpus>(2);
  fake->conditions = GpuCondition{0.5, 60, 312.5};
  PatientGpus gpus(std::move(fake));
  EXPECT_EQ(gpus.condition(0)->power_watts, 312.5);
  EXPECT_EQ(gpus.condition(1), std::nullopt);
  EXPECT_EQ(gpus.list().size(), 2u);
  EXPECT_EQ(gpus.driver_version(), "580.1-simulated");
  EXPECT_EQ(gpus.memory(1)->total_bytes, 4 * kGiB);
  EXPECT_TRUE(gpus.processes(0)->empty());
  EXPECT_EQ(gpus.loads(0), std::nullopt) << "a question that can't be answered";
}

TEST(PatientGpus, WaitForADriverThatStandsStillForAPartOfTheTimeOnly) {
  const auto gate = std::make_shared<SlowGpus::Gate>();
  PatientGpus gpus(std::make_unique<SlowGpus>(gate));
  ASSERT_NE(gpus.memory(0), std::nullopt);
  gate->set(false);
  // Were each of them waited for, however shortly, this would take for ever.
  for (int i = 0; i < 5'000; ++i) ASSERT_EQ(gpus.memory(i % 2), std::nullopt);
  {
    const std::lock_guard lock(gate->mutex);
    EXPECT_LE(gate->asked, 2) << "one question is enough";
  }
  gate->set(true);
  std::optional<GpuMemory> answer;
  for (int i = 0; i < 10'000 && !answer; ++i) {
    answer = gpus.memory(0);
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_NE(answer, std::nullopt) << "what comes late is told later";
  EXPECT_EQ(answer->total_bytes, 4 * kGiB);
}

TEST(PatientGpus, EndWhileTheDriverStandsStill) {
  const auto gate = std::make_shared<SlowGpus::Gate>();
  gate->set(false);
  {
    PatientGpus gpus(std::make_unique<SlowGpus>(gate));
    EXPECT_EQ(gpus.memory(0), std::nullopt);
  }
  gate->set(true);
}

}  // namespace
}  // namespace switchyard::monitor::test
