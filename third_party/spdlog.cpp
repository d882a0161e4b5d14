// spdlog's definitions, in the way that its own library compiles them (SPDLOG_COMPILED_LIB).
#include <spdlog/spdlog.h>
// The declarations come first.
#include <spdlog/common-inl.h>
#include <spdlog/details/backtracer-inl.h>
#include <spdlog/details/file_helper-inl.h>
#include <spdlog/details/log_msg-inl.h>
#include <spdlog/details/log_msg_buffer-inl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os-inl.h>
#include <spdlog/details/periodic_worker-inl.h>
#include <spdlog/details/registry-inl.h>
#include <spdlog/logger-inl.h>
#include <spdlog/pattern_formatter-inl.h>
#include <spdlog/sinks/ansicolor_sink-inl.h>
#include <spdlog/sinks/base_sink-inl.h>
#include <spdlog/sinks/basic_file_sink-inl.h>
#include <spdlog/sinks/sink-inl.h>
#include <spdlog/sinks/stdout_sinks-inl.h>
#include <spdlog/spdlog-inl.h>

#include <mutex>

namespace spdlog {

template logger::logger(std::string name, sinks_init_list::iterator begin,
                        sinks_init_list::iterator end);

template std::shared_ptr<logger> stderr_logger_st<synchronous_factory>(const std::string& name);

namespace sinks {

template class base_sink<std::mutex>;
template class base_sink<details::null_mutex>;
template class basic_file_sink<details::null_mutex>;
template class ansicolor_sink<details::console_mutex>;
template class ansicolor_stdout_sink<details::console_mutex>;
template class stdout_sink_base<details::console_mutex>;
template class stdout_sink_base<details::console_nullmutex>;
template class stderr_sink<details::console_nullmutex>;

}  // namespace sinks
}  // namespace spdlog
