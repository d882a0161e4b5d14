#include "failures.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <sstream>
#include <string>

namespace fakecuda {
namespace {

struct Failure {
  std::string call;
  unsigned first = 0;
  bool all_after = false;
  CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
  std::atomic<unsigned> calls{0};
};

// Whatever isn't CALL:N[+][=CODE] makes nothing fail: a test that relies on it then says so.
std::list<Failure>* parse(const char* text) {
  auto* list = new std::list<Failure>;
  std::stringstream words(text == nullptr ? "" : text);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) continue;
    Failure& failure = list->emplace_back();
    failure.call = word.substr(0, colon);
    char* rest = nullptr;
    failure.first = static_cast<unsigned>(std::strtoul(word.c_str() + colon + 1, &rest, 10));
    if (*rest == '+') {
      failure.all_after = true;
      ++rest;
    }
    if (*rest == '=') failure.code = static_cast<CUresult>(std::atoi(rest + 1));
  }
  return list;
}

void note(const Failure& failure, unsigned number) {
  const char* path = std::getenv("FAKECUDA_FAILED");
  if (path == nullptr) return;
  if (std::FILE* file = std::fopen(path, "ae")) {
    std::fprintf(file, "%s %u\n", failure.call.c_str(), number);
    std::fclose(file);
  }
}

}  // namespace

CUresult wanted_failure(const char* call) {
  static std::list<Failure>* failures = parse(std::getenv("FAKECUDA_FAIL"));
  for (Failure& failure : *failures) {
    if (failure.call != call) continue;
    const unsigned number = failure.calls.fetch_add(1) + 1;
    if (number == failure.first || (failure.all_after && number > failure.first)) {
      note(failure, number);
      return failure.code;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace fakecuda
