// A value that all modules read, and one writes.
//
// Concept. What a module remembers of a job or a client mostly stands beside it (registry.h): so it
// ends with it, and needs no key. `Owner` alone may change it; elsewhere the attempt does not
// compile. It is a class, or a struct in the .cpp of a module that is made of functions.
//
// Threading: that of the value.
#pragma once

namespace switchyard::monitor {

namespace test {
struct Plants;  // makes up what no test can bring about (tests/monitor/plants.h)
}

template <typename T, typename Owner>
class WrittenBy {
 public:
  WrittenBy() = default;
  WrittenBy(const WrittenBy&) = default;
  WrittenBy(WrittenBy&&) noexcept = default;
  WrittenBy& operator=(const WrittenBy&) = delete;
  WrittenBy& operator=(WrittenBy&&) = delete;
  ~WrittenBy() = default;

  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  friend Owner;
  friend test::Plants;
  T& write() { return value_; }

  T value_{};
};

}  // namespace switchyard::monitor
