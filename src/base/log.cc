#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>

#include "base/json_text.h"
#include "base/log_queue.h"
#include "base/mutex.h"

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

// Makes spdlog's pattern for lines; a '%' in `origin` is escaped.
std::string pattern(std::string_view origin) {
  std::string text = "[%Y-%m-%d %H:%M:%S.%e] %L ";
  for (const char c : origin) text += c == '%' ? "%%" : std::string(1, c);
  return text + (origin.empty() ? "%v" : " | %v");
}

// The form of all lines; set at the start.
struct Style {
  Format format = Format::text;
  std::string origin;
};
Style& style() {
  static Style instance;
  return instance;
}

const char* name_of(Level level) {
  switch (level) {
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warning:
      return "warning";
    case Level::error:
    case Level::off:
      break;
  }
  return "error";
}

// Appends `{"time":"2026-01-02T03:04:05.678Z","level":"info"`; the caller adds further members.
void append_head(std::string& line, Level level) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now());
  fmt::format_to(std::back_inserter(line), R"({{"time":"{:%FT%T}.{:03d}Z","level":"{}")",
                 fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                 static_cast<int>((now.time_since_epoch() % std::chrono::seconds(1)).count()),
                 name_of(level));
  if (style().origin.empty()) return;
  line += R"(,"origin":)";
  append_json_string(line, style().origin);
}

// Returns an empty line that keeps its memory, so that a line allocates nothing once the longest
// kind was written.
std::string& fresh_line() {
  thread_local std::string line;
  line.clear();
  return line;
}

void append_number(std::string& line, double value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(line), "{:.6g}", value);
  else
    line += "null";  // JSON has no infinity
}

void append_value(std::string& line, const Field::Value& value, Format format) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    fmt::format_to(std::back_inserter(line), "{}", *number);
  } else if (const auto* real = std::get_if<double>(&value)) {
    append_number(line, *real);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    line += *flag ? "true" : "false";
  } else {
    const auto text = std::get<std::string_view>(value);
    const bool plain = format == Format::text && !text.empty() &&
                       text.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                           "-_./:+") == std::string_view::npos;
    if (plain)
      line += text;
    else
      append_json_string(line, text);
  }
}

// Puts lines into the queue; its lock is held only while a line is formatted.
class QueueSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    {
      const MutexLock lock(mutex_);
      formatter_->format(message, line);
    }
    queue().put({line.data(), line.size()});
  }
  void flush() override {}
  void set_pattern(const std::string& text) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(text));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    const MutexLock lock(mutex_);
    formatter_ = std::move(formatter);
  }

 private:
  Mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ HOCKET_GUARDED_BY(mutex_);
};

// The logger is never destroyed, like the queue.
spdlog::logger& logger() {
  static spdlog::logger& instance = [] -> spdlog::logger& {
    auto* made = new spdlog::logger("hocket", std::make_shared<QueueSink>());
    made->set_pattern(pattern(""));
    return *made;
  }();
  return instance;
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

Result<Format> parse_format(std::string_view name) {
  if (name == "text") return Format::text;
  if (name == "json") return Format::json;
  return fail(hocket::error(ErrorCode::bad_value, "log format {} is not one of text, json", name)
                  .with_param("log-format"));
}

void set_format(Format format) {
  style().format = format;
  logger().set_pattern(format == Format::json ? "%v" : pattern(style().origin));
}

void set_origin(std::string_view name) {
  style().origin = name;
  set_format(style().format);
}

bool enabled(Level level) {
  return logger().should_log(to_spdlog(level));
}

void write(Level level, std::string_view line) {
  if (style().format == Format::text)
    return logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
  if (!enabled(level)) return;
  std::string& text = fresh_line();
  append_head(text, level);
  text += R"(,"message":)";
  append_json_string(text, line);
  text += '}';
  logger().log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

void format_and_write(Level level, fmt::string_view text, fmt::format_args args) {
  fmt::memory_buffer buffer;
  fmt::vformat_to(std::back_inserter(buffer), text, args);
  write(level, {buffer.data(), buffer.size()});
}

Writer::Writer(Duration last_wait) : last_wait_(last_wait) {
  queue().start();
}

Writer::~Writer() {
  queue().stop(last_wait_);
}

int64_t num_lost() {
  return queue().num_lost();
}

bool flush(Duration patience) {
  return queue().flush(patience);
}

void record(Level level, std::string_view event, std::span<const Field> fields) {
  if (!enabled(level)) return;
  const Format format = style().format;
  std::string& line = fresh_line();
  if (format == Format::json) {
    append_head(line, level);
    line += R"(,"event":)";
    append_json_string(line, event);
  } else {
    line += event;
  }
  for (const Field& field : fields) {
    if (format == Format::json) {
      line += ',';
      append_json_string(line, field.name);
      line += ':';
    } else {
      line.append(" ").append(field.name).append("=");
    }
    append_value(line, field.value, format);
  }
  if (format == Format::json) line += '}';
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace hocket::log
