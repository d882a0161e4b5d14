#include "monitor/platform/patient_gpus.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace switchyard::monitor {
namespace {

// Heartbeats are missed after two seconds.
constexpr Time kMostPatience = std::chrono::milliseconds(500);
constexpr int kPartOfTime = 4;
// An answer that came too late, and is too old for the next question.
constexpr Time kOldAnswer = std::chrono::seconds(1);
constexpr auto kGoodBye = std::chrono::seconds(1);

}  // namespace

template <typename Value>
struct PatientGpus::Question {
  bool asked = false;
  bool answered = false;
  Time answered_at{0};
  std::optional<Value> answer;
};

struct PatientGpus::Shared {
  explicit Shared(std::unique_ptr<Gpus> from)
      : door(std::move(from)),
        memories(door->list().size()),
        processes(door->list().size()),
        loads(door->list().size()),
        conditions(door->list().size()) {}

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      asked.wait(lock, [this] { return ends || !tasks.empty(); });
      if (ends) break;
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
    door.reset();
    ended = true;
    answered.notify_all();
  }

  std::unique_ptr<Gpus> door;  // the thread's
  std::mutex mutex;
  std::condition_variable asked, answered;
  std::deque<std::function<void()>> tasks;
  bool ends = false, ended = false;
  std::vector<Question<GpuMemory>> memories;
  std::vector<Question<std::vector<ProcessMemory>>> processes;
  std::vector<Question<std::vector<ProcessLoad>>> loads;
  std::vector<Question<GpuCondition>> conditions;
};

PatientGpus::PatientGpus(std::unique_ptr<Gpus> door)
    : shared_(std::make_shared<Shared>(std::move(door))),
      patience_(kMostPatience),
      counted_at_(steady_now()) {
  std::thread([shared = shared_] { shared->serve(); }).detach();
}

PatientGpus::~PatientGpus() {
  std::unique_lock lock(shared_->mutex);
  shared_->ends = true;
  shared_->asked.notify_all();
  shared_->answered.wait_for(lock, kGoodBye, [this] { return shared_->ended; });
}

// Their answers are fixed for the life of the door.
std::string PatientGpus::problem() const { return shared_->door->problem(); }
std::string PatientGpus::driver_version() const { return shared_->door->driver_version(); }
const std::vector<GpuInfo>& PatientGpus::list() const { return shared_->door->list(); }

template <typename Value>
std::optional<Value> PatientGpus::ask(std::vector<Question<Value>>& questions, std::size_t at,
                                      std::optional<Value> (Gpus::*call)(std::size_t)) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  Question<Value>& question = questions[at];
  const Time began = steady_now();
  patience_ = std::min(kMostPatience, patience_ + (began - counted_at_) / kPartOfTime);
  counted_at_ = began;
  if (question.answered && began - question.answered_at > kOldAnswer) question.answered = false;
  if (!question.answered && !question.asked) {
    question.asked = true;
    shared.tasks.push_back([&shared, &question, call, at] {
      auto answer = (*shared.door.*call)(at);
      const std::lock_guard answers(shared.mutex);
      question.answer = std::move(answer);
      question.answered = true;
      question.asked = false;
      question.answered_at = steady_now();
      shared.answered.notify_all();
    });
    shared.asked.notify_one();
  }
  shared.answered.wait_for(lock, patience_, [&question] { return question.answered; });
  const Time now = steady_now();
  patience_ = std::max(Time{0}, patience_ - (now - began));
  counted_at_ = now;
  if (!question.answered) return std::nullopt;
  question.answered = false;
  return std::exchange(question.answer, std::nullopt);
}

std::optional<GpuMemory> PatientGpus::memory(std::size_t at) {
  return ask(shared_->memories, at, &Gpus::memory);
}
std::optional<std::vector<ProcessMemory>> PatientGpus::processes(std::size_t at) {
  return ask(shared_->processes, at, &Gpus::processes);
}
std::optional<std::vector<ProcessLoad>> PatientGpus::loads(std::size_t at) {
  return ask(shared_->loads, at, &Gpus::loads);
}
std::optional<GpuCondition> PatientGpus::condition(std::size_t at) {
  return ask(shared_->conditions, at, &Gpus::condition);
}

}  // namespace switchyard::monitor
