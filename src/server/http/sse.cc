#include "server/http/sse.h"

#include <utility>

#include "server/http/error_map.h"

namespace hocket {

void append_sse(std::string& out, std::string_view data) {
  for (;;) {
    const size_t end = data.find_first_of("\r\n");
    out.append("data: ").append(data.substr(0, end)).push_back('\n');
    if (end == data.npos) break;
    data.remove_prefix(end + (data.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  out += '\n';
}

void append_sse_event(std::string& out, std::string_view name, std::string_view data) {
  out.append("event: ").append(name).push_back('\n');
  append_sse(out, data);
}

SseWriter::SseWriter(std::shared_ptr<HttpExchange> exchange, HttpHeaders extra)
    : exchange_(std::move(exchange)),
      extra_(std::move(extra)),
      started_(exchange_->is_streaming()) {
  extra_.emplace_back("Cache-Control", "no-cache");
  extra_.emplace_back("X-Accel-Buffering", "no");  // otherwise nginx holds events back
}

bool SseWriter::start() {
  return std::exchange(started_, true) || exchange_->start_stream("text/event-stream", extra_);
}

bool SseWriter::data(std::string_view json) {
  if (!start()) return false;
  block_.clear();
  append_sse(block_, json);
  return exchange_->write(block_);
}

bool SseWriter::events(std::string_view framed) {
  return start() && exchange_->write(framed);
}

bool SseWriter::done() {
  return start() && exchange_->finish(kSseDoneEvent);
}

bool SseWriter::finish() {
  return start() && exchange_->finish();
}

bool SseWriter::error(const Error& error) {
  if (!started_) return respond_error(*exchange_, error);
  return events(exchange_->error_format().events(error)) && exchange_->finish();
}

std::vector<std::string> SseReader::feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char c : bytes) {
    if (std::exchange(after_return_, c == '\r') && c == '\n') continue;
    if (c == '\r' || c == '\n')
      line(events);
    else
      line_ += c;
  }
  return events;
}

void SseReader::line(std::vector<std::string>& events) {
  if (line_.empty()) {
    if (has_data_) events.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
    return;
  }
  std::string_view text = line_;
  const size_t colon = text.find(':');
  if (text.substr(0, colon) == "data") {
    std::string_view value = colon == text.npos ? "" : text.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += value;
  }
  line_.clear();
}

}  // namespace hocket
