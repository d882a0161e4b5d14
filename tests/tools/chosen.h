// A selection of jobs, in few words.
//
// Threading: pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/base/selector.h"

namespace switchyard::tools {

inline Selection chosen(std::vector<std::string> words, const std::string& users = "",
                        const std::string& gpus = "", const std::string& states = "") {
  Selection out;
  out.words = std::move(words);
  out.users = users;
  out.gpus = gpus;
  out.states = states;
  return out;
}

}  // namespace switchyard::tools
