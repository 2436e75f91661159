// Writes log lines to stderr, one for each fact: time, level, text. The text is an event name with
// key-values, or a line such as `Prefill batch, ...` whose form users' scripts parse. Rates belong
// to metrics; prompts are logged only if --log-requests-level asks for them.
//
// As JSON each line is one object: {"time", "level", "origin", "message"}; a record has "event" and
// its fields in place of "message".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/result.h"

namespace hocket::log {

enum class Level { debug, info, warning, error, off };
enum class Format : uint8_t { text, json };

// Reads "debug", "info", "warning", "error" or "off". Errors: bad_value.
Result<Level> parse_level(std::string_view name);
void set_level(Level level);
// Reads "text" or "json". Errors: bad_value.
Result<Format> parse_format(std::string_view name);
// Call at the start, before other threads write.
void set_format(Format format);
// Puts `name` into every line, since several processes may write to one place; "" puts none.
void set_origin(std::string_view name);
bool enabled(Level level);
void write(Level level, std::string_view line);  // Thread: any.

inline constexpr Duration kLastWait = std::chrono::seconds(1);

// While a Writer lives, the thread `log` writes the lines, so that no other thread waits for the
// reader of stderr. Lines that find the queue full (kQueueBytes, base/log_queue.h) are lost and
// counted. Without a Writer, the thread that logs also writes. The destructor waits at most
// `last_wait` for the last lines; if they are not written by then, later lines are lost, too.
class Writer {
 public:
  explicit Writer(Duration last_wait = kLastWait);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  const Duration last_wait_;
};

// Returns how many lines stderr did not take since the process began.   Thread: any.
int64_t num_lost();
// Waits for the lines that are not written yet. Returns false if `patience` was too short.
bool flush(Duration patience = kLastWait);
// Does the same in a handler of a signal that ends the process. The thread `log` continues writing
// meanwhile, unless the handler runs on that thread, or on a thread that holds the queue's lock;
// then `patience` passes without effect. Async-signal-safe.
void wait_in_signal(Duration patience = kLastWait);
// Writes `text` unchanged, unless stderr has no room for it at present. Async-signal-safe.
void write_now(std::string_view text);

// One fact of an event. Its views must be valid until record() returns.
struct Field {
  using Value = std::variant<int64_t, double, bool, std::string_view>;
  std::string_view name;
  Value value;
};
// Writes `event name=3 name="a text"`. A value may hold text of clients: it cannot end the line.
// Thread: any.
void record(Level level, std::string_view event, std::span<const Field> fields);

// Formats on the stack: a line of ordinary length allocates nothing. It is compiled once, in
// log.cc, because every file that logs would else compile fmt's writers again.
void format_and_write(Level level, fmt::string_view text, fmt::format_args args);
template <class... Args>
void line(Level level, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(level)) format_and_write(level, text, fmt::make_format_args(args...));
}
template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  line(Level::debug, text, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  line(Level::info, text, std::forward<Args>(args)...);
}
// A warning says three things: the event, the server's reaction, and the setting to change.
template <class... Args>
void warning(fmt::format_string<Args...> text, Args&&... args) {
  line(Level::warning, text, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  line(Level::error, text, std::forward<Args>(args)...);
}

}  // namespace hocket::log
