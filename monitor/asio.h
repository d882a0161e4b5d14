// Boost.Asio as the monitor uses it.
//
// Threading: as Asio says.
#pragma once

// clang-format off: the 1.74 of Debian 12 and Ubuntu 22.04 uses std::exchange without <utility>.
#include <boost/asio.hpp>
#include <utility>
// clang-format on

namespace switchyard::monitor {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;

}  // namespace switchyard::monitor
