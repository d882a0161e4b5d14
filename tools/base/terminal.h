// What fits a terminal: its columns, texts cut to them, and the characters that its locale has.
//
// Threading: reads the environment; call it from the only thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace switchyard::tools {

// COLUMNS, else those of the terminal on stdout; 0: there is none, and nothing is cut.
std::size_t terminal_columns();

// Whether the locale's characters are UTF-8.
bool utf8_locale();

// Columns that a terminal needs: continuation bytes of UTF-8 take no room.
std::size_t width_of(std::string_view text);

// `text` in at most `columns`, by "…" at its end where something is cut off. In a locale without
// it, that is '~'.
std::string cut(const std::string& text, std::size_t columns, bool utf8);

// Words in lines of at most `columns`; in one line where it is 0.
std::string filled(const std::string& text, std::size_t columns);

// Bytes beyond ASCII become '?', in a locale that has no UTF-8.
std::string in_locale(const std::string& text, bool utf8);

}  // namespace switchyard::tools
