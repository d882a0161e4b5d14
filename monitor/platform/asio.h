// Boost.Asio as the monitor uses it. The 1.74 of Debian 12 and Ubuntu 22.04 uses std::exchange
// without including <utility>, so that comes first.
//
// Threading: as Asio says.
#pragma once

#include <utility>
// (A comment line ends the block that clang-format sorts.)
#include <boost/asio.hpp>

namespace switchyard::monitor {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;

}  // namespace switchyard::monitor
