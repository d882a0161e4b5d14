// One fault of each kind, on request: a sanitizer build in which these pass unseen protects
// nothing.
//
//   bite address | undefined | thread
//
// Threading: `thread` races on purpose.
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

namespace {

int use_after_free() {
  auto owner = std::make_unique<int>(1);
  volatile int* dangling = owner.get();
  owner.reset();
  return *dangling;
}

int overflow(int one) {
  volatile int most = INT_MAX;
  return most + one;
}

int race() {
  int shared = 0;
  std::thread other([&shared] {
    for (int i = 0; i < 100000; ++i) *const_cast<volatile int*>(&shared) = i;
  });
  for (int i = 0; i < 100000; ++i) *const_cast<volatile int*>(&shared) = -i;
  other.join();
  return shared;
}

}  // namespace

int main(int argc, char** argv) {
  const char* kind = argc == 2 ? argv[1] : "";
  int result = 0;
  if (std::strcmp(kind, "address") == 0) {
    result = use_after_free();
  } else if (std::strcmp(kind, "undefined") == 0) {
    result = overflow(argc);
  } else if (std::strcmp(kind, "thread") == 0) {
    result = race();
  } else {
    return 2;
  }
  std::printf("nothing noticed (%d)\n", result);
  return 0;
}
