#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace hocket::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

// A '%' would be read as spdlog's.
std::string pattern(std::string_view origin) {
  std::string text = "[%Y-%m-%d %H:%M:%S.%e] %L ";
  for (const char c : origin) text += c == '%' ? "%%" : std::string(1, c);
  return text + (origin.empty() ? "%v" : " | %v");
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_logger_mt("hocket");
    made->set_pattern(pattern(""));
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  for (const auto& [known, level] : {std::pair{"debug", Level::debug},
                                     {"info", Level::info},
                                     {"warning", Level::warning},
                                     {"error", Level::error},
                                     {"off", Level::off}})
    if (name == known) return level;
  return fail(hocket::error(ErrorCode::bad_value,
                            "log level {} is not one of debug, info, warning, error, off", name)
                  .with_param("log-level"));
}

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}

void set_origin(std::string_view name) {
  logger().set_pattern(pattern(name));
}

bool enabled(Level level) {
  return logger().should_log(to_spdlog(level));
}

void write(Level level, std::string_view line) {
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace hocket::log
