// Calls of a made-up driver that fail: the one way for all of these tests.
//
// Concept. A world watches the calls of its driver that a test may have fail. A watched call is
// counted, and does what it did before unless its turn has come; then it does nothing, as a driver
// that refuses. So no function of a made-up driver has failures of its own.
//
// Threading: any thread may call; a test sets faults before it lets others call.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "shim/driver.h"

namespace switchyard::shim::testing {

class Faults {
 public:
  // The watched call after `after` others fails, once; 0: the next one.
  void fail(int after, CUresult error = CUDA_ERROR_OUT_OF_MEMORY) { fail({}, after, error); }
  // The same, of the calls whose names begin like that.
  void fail(std::string name, int after, CUresult error = CUDA_ERROR_OUT_OF_MEMORY) {
    const std::lock_guard hold(lock_);
    expect_watched(name);
    name_ = std::move(name);
    left_ = after;
    error_ = error;
  }
  // All calls of one name fail, until none().
  void refuse(std::string name, CUresult error) {
    const std::lock_guard hold(lock_);
    expect_watched(name);
    refused_ = std::move(name);
    refusal_ = error;
  }
  // Nothing fails from here on.
  void none() {
    const std::lock_guard hold(lock_);
    left_ = -1;
    refused_.clear();
  }

  // pre: the call has its function. May be called again once it has another.
  template <auto Call>
  void watch(const char* name) {
    watch_as<Call>(Call, name);
  }

 private:
  template <auto Call, typename... Args>
  void watch_as(CUresult (*Driver::*)(Args...), const char* name) {
    static CUresult (*done)(Args...);
    static Faults* faults;
    static const char* called;
    CUresult (*const counted)(Args...) = [](Args... args) {
      const CUresult result = faults->next(called);
      return result == CUDA_SUCCESS ? done(args...) : result;
    };
    if (g_driver.*Call != counted) done = g_driver.*Call;
    faults = this;
    called = name;
    watched_.insert(name);
    g_driver.*Call = counted;
  }

  // Else the fault would never come, and the test would try nothing.
  void expect_watched(const std::string& name) const {
    const auto found = watched_.lower_bound(name);
    EXPECT_TRUE(found != watched_.end() && found->compare(0, name.size(), name) == 0)
        << name << " is not watched";
  }

  CUresult next(const std::string& name) {
    const std::lock_guard hold(lock_);
    if (name == refused_) return refusal_;
    if (left_ < 0 || name.compare(0, name_.size(), name_) != 0) return CUDA_SUCCESS;
    return left_-- == 0 ? error_ : CUDA_SUCCESS;
  }

  std::mutex lock_;
  std::set<std::string> watched_;
  std::string name_;  // empty: all that are watched
  int left_ = -1;
  CUresult error_ = CUDA_SUCCESS;
  std::string refused_;
  CUresult refusal_ = CUDA_SUCCESS;
};

}  // namespace switchyard::shim::testing

#define SWITCHYARD_WATCH(faults, call) (faults).watch<&::switchyard::shim::Driver::call>(#call)
