// One line a fact on stderr: time, level, text. Text is an event name and key-values, or the
// `Prefill batch, ...` lines whose shape users' scripts parse. Rates belong to metrics; prompts are
// never logged.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/result.h"

namespace hocket::log {

enum class Level { debug, info, warning, error, off };

// "debug", "info", "warning", "error", "off". Errors: bad_value.
Result<Level> parse_level(std::string_view name);
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view line);  // Thread: any.

template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(text, std::forward<Args>(args)...));
}
// What happened, what we did, what to change.
template <class... Args>
void warning(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::warning))
    write(Level::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace hocket::log
