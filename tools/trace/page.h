// A timeline as a page of HTML that needs nothing else: no network, no other file.
//
// Concept. The page is a file of its own, page.html, which the build puts into the program. It
// draws what stands in it as one JSON text. Names of jobs and users are chosen by anybody, so no
// '<', '>' or '&' stands in that text: they are written as \u003c, \u003e and \u0026.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/trace/spans.h"

namespace switchyard::tools::trace {

// What the page draws. Times are microseconds since the beginning.
nlohmann::json page_data_of(const Timeline& timeline);
// `host`: where it was recorded.
std::string page_of(const Timeline& timeline, const std::string& host);

}  // namespace switchyard::tools::trace
