#include "monitor/platform/process_stat.h"

#include <fstream>
#include <sstream>

namespace switchyard::monitor {

std::string word_of_stat(const std::string& path, std::size_t word) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == text.npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  std::string out;
  for (std::size_t at = kStatState; at <= word; ++at) {
    if (!(rest >> out)) return {};
  }
  return out;
}

}  // namespace switchyard::monitor
