// What `top` draws: lines of pieces, each with its tone, for a screen of a given size.
//
// Concept. Above stands a line for each GPU, which can be pasted into a chat, and the sentence that
// ends `ps`. Then come the rows, in the columns of `ps`; where there is room, each has its past as
// bars, newest last. Below stand what is selected, the question or the last message, and the keys.
// On a small screen what stands below goes first.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/table.h"
#include "tools/top/model.h"

namespace switchyard::tools::top {

struct Size {
  std::size_t columns = 80, lines = 24;
  bool utf8 = true;
};

struct Line {
  Table::Line pieces;
  bool selected = false;
};

// No line is wider than the screen, and there are no more of them than it has.
std::vector<Line> draw(const Model& model, const Size& size, Time now);

// The rows of jobs that fit, for the keys that turn a page.
std::size_t page_of(const Model& model, const Size& size);

// All of it, without bars and keys. `columns`: 0 is as many as it takes.
std::string draw_once(const Model& model, std::size_t columns, bool utf8);

// "GPU 0  NVIDIA H200  98%  81.2G of 141G  54 C  612 W", a line for each; a name that is too long
// for the columns is cut.
std::vector<std::string> gpu_lines(const nlohmann::json& gpus, std::size_t columns, bool utf8);

// The newest `width` ratios as bars of as many columns; a blank: not known.
std::string bars(const std::deque<std::optional<double>>& past, std::size_t width, bool utf8);

}  // namespace switchyard::tools::top
