#include "visible.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "shared_state.h"

namespace fakecuda {
namespace {

constexpr std::size_t kShortestUuid = 5;  // "GPU-" and a digit

// -1: none, or several.
int by_uuid(const std::string& word, int gpu_count) {
  int found = -1;
  for (int gpu = 0; gpu < gpu_count; ++gpu) {
    char text[48];
    uuid_text(gpu, text);
    if (strncmp(text, word.c_str(), word.size()) != 0) continue;
    if (found >= 0) return -1;
    found = gpu;
  }
  return found;
}

int gpu_named(const std::string& word, int gpu_count) {
  if (word.rfind("GPU-", 0) == 0) {
    return word.size() >= kShortestUuid ? by_uuid(word, gpu_count) : -1;
  }
  const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  const int gpu = number ? atoi(word.c_str()) : -1;
  return gpu < gpu_count ? gpu : -1;
}

}  // namespace

std::vector<int> visible_gpus(const char* text, int gpu_count) {
  std::vector<int> seen;
  if (!text) {
    for (int gpu = 0; gpu < gpu_count; ++gpu) seen.push_back(gpu);
    return seen;
  }
  const std::string words = text;
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t comma = std::min(words.find(',', at), words.size());
    const int gpu = gpu_named(words.substr(at, comma - at), gpu_count);
    if (gpu < 0) return seen;
    if (std::count(seen.begin(), seen.end(), gpu) != 0) return {};
    seen.push_back(gpu);
    at = comma + 1;
  }
  return seen;
}

bool are_linked(const char* text, int gpu, int peer) {
  if (gpu == peer) return false;
  if (!text) return true;
  const std::string pair =
      std::to_string(std::min(gpu, peer)) + "-" + std::to_string(std::max(gpu, peer));
  return ("," + std::string(text) + ",").find("," + pair + ",") != std::string::npos;
}

}  // namespace fakecuda
