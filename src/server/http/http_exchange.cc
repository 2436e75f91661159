#include "server/http/http_exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "server/http/error_map.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "";
  }
}

std::string answer_head(const HttpFraming& framing, int status, std::string_view content_type,
                        const HttpHeaders& extra) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  append_header(head, "Date",
                fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(std::time(nullptr))));
  if (!content_type.empty()) append_header(head, "Content-Type", content_type);
  if (!framing.keep_alive)
    append_header(head, "Connection", "close");
  else if (framing.http_1_0)
    append_header(head, "Connection", "keep-alive");
  for (const auto& [name, value] : extra) append_header(head, name, value);
  return head += framing.more;
}

}  // namespace

void log_failure(const char* event, const std::exception& e) noexcept {
  try {
    log::error("{} what=\"{}\"", event, e.what());
  } catch (...) {
    return;  // there is no memory for the log line
  }
}

void run_whatever_fails(const std::function<void()>& run) {
  for (;;) {
    try {
      return run();
    } catch (const std::exception& e) {
      log_failure("http_thread_failed", e);
    }
  }
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  std::copy_if(value.begin(), value.end(), std::back_inserter(out),
               [](unsigned char c) { return c >= 32 && c != 127; });
  out += "\r\n";
}

std::string http_answer(const HttpFraming& framing, int status, std::string_view content_type,
                        std::string_view body, const HttpHeaders& extra) {
  std::string answer = answer_head(framing, status, content_type, extra);
  if (status != 204 && status != 304)
    append_header(answer, "Content-Length", std::to_string(body.size()));
  answer += "\r\n";
  if (!framing.head_only) answer += body;
  return answer;
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (same_name(key, name)) return value;
  return {};
}

void HttpExchange::State::begin(std::function<void()> when_ended, HeldBytes waiting) {
  const MutexLock lock(mutex);
  on_end = std::move(when_ended);
  held = std::move(waiting);
}

HttpExchange::State::Next HttpExchange::State::take(std::string& batch) {
  MutexLock lock(mutex);
  woken = false;
  if (slow || cut) return Next::cut;
  if (out.empty()) return complete ? Next::done : Next::wait;
  batch.clear();
  if (batch.capacity() > kUncountedBytes) batch = {};
  std::swap(batch, out);
  taken = unsent = batch.size();
  return Next::send;
}

Result<void> HttpExchange::State::hold(size_t more) {
  const size_t waiting = taken + out.size() + more;
  return held.resize(waiting > kUncountedBytes ? static_cast<int64_t>(waiting) : 0);
}

void HttpExchange::State::append(std::string_view bytes) {
  if (framing.http_1_0)
    out += bytes;
  else
    fmt::format_to(std::back_inserter(out), "{:x}\r\n{}\r\n", bytes.size(), bytes);
}

void HttpExchange::State::break_off(const Error& why) {
  closed = true;
  cut = !events;
  if (cut) return;
  append(error_format->events(why));
  if (!framing.http_1_0) out += "0\r\n\r\n";
  streaming = false;
  complete = true;
  end_request();
}

void HttpExchange::State::sent(size_t num_bytes) {
  MutexLock lock(mutex);
  unsent -= num_bytes;
  if (unsent > 0) return;  // the batch is one string, which stays until its last byte is sent
  taken = 0;
  (void)hold(0);  // fewer than before, except an error of break_off(), which is not counted
}

bool HttpExchange::State::is_cut() {
  MutexLock lock(mutex);
  return slow || cut;
}

bool HttpExchange::State::is_slow() {
  const MutexLock lock(mutex);
  return slow;
}

int HttpExchange::State::end_status(bool whole) {
  const MutexLock lock(mutex);
  return whole ? status : cut ? 500 : 499;
}

void HttpExchange::State::ping() {
  constexpr std::string_view comment = ": ping\n\n";
  MutexLock lock(mutex);
  if (streaming && events && out.empty()) append(comment);
}

bool HttpExchange::State::ask() {
  {
    MutexLock lock(mutex);
    if (framing.http_1_0) return false;
    if (status == 0) out = "HTTP/1.1 100 Continue\r\n\r\n";  // RFC 9110 §15.2: any number of them
  }
  ping();
  return true;
}

void HttpExchange::State::end_request() {
  if (on_end) std::exchange(on_end, nullptr)();
}

void HttpExchange::State::leave() {
  std::function<void()> call;
  {
    MutexLock lock(mutex);
    closed = true;
    call.swap(on_closed);
    end_request();
    out = {};
    held.release();
    if (complete) return;
  }
  if (call) call();
}

HttpExchange::HttpExchange(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpExchange::~HttpExchange() {
  bool answered;
  std::function<void()> unused;
  {
    MutexLock lock(state_->mutex);
    if (state_->closed || state_->complete) return;
    unused.swap(state_->on_closed);
    answered = state_->status != 0;
    state_->cut = answered;
  }
  if (answered)
    state_->wake();
  else
    respond_error(*this, error(ErrorCode::internal, "the request was dropped without an answer"));
}

bool HttpExchange::respond(int status, std::string_view content_type, std::string_view body,
                           const HttpHeaders& extra) {
  std::string answer = http_answer(state_->framing, status, content_type, body, extra);
  std::function<void()> unused;  // may hold this exchange, so it is destroyed without the lock
  {
    MutexLock lock(state_->mutex);
    HOCKET_CHECK(state_->status == 0);
    if (state_->closed) return false;
    if (const auto counted = state_->hold(answer.size()); !counted) {
      const Error& why = counted.error();
      status = http_status(why.code);
      answer = http_answer(state_->framing, status, kJsonType, state_->error_format->body(why),
                           error_headers(why.code));
    }
    state_->status = status;
    state_->out = std::move(answer);
    state_->complete = true;
    state_->woken = true;
    unused.swap(state_->on_closed);
    state_->end_request();
  }
  state_->wake();
  return true;
}

bool HttpExchange::start_stream(std::string_view content_type, const HttpHeaders& extra) {
  std::string head = answer_head(state_->framing, 200, content_type, extra);
  if (!state_->framing.http_1_0) append_header(head, "Transfer-Encoding", "chunked");
  head += "\r\n";
  std::function<void()> unused;
  {
    MutexLock lock(state_->mutex);
    HOCKET_CHECK(state_->status == 0);
    if (state_->closed) return false;
    state_->status = 200;
    state_->out = std::move(head);
    state_->streaming = true;
    state_->events = content_type.starts_with("text/event-stream");
    state_->woken = true;
    if (state_->framing.head_only) {
      state_->streaming = false;
      state_->complete = state_->closed = true;
      state_->end_request();
      unused.swap(state_->on_closed);
    }
  }
  state_->wake();
  return !state_->framing.head_only;
}

bool HttpExchange::write(std::string_view bytes) {
  bool ended = true;
  std::function<void()> unused;
  {
    MutexLock lock(state_->mutex);
    if (state_->closed) return false;
    HOCKET_CHECK(state_->streaming);
    if (bytes.empty()) return true;
    // One large write does not make a client slow, nor do the small writes after it.
    state_->largest = std::max(state_->largest, bytes.size());
    if (state_->out.size() + state_->unsent > state_->max_buffered_bytes + state_->largest) {
      state_->slow = state_->closed = true;
    } else if (const auto counted = state_->hold(bytes.size()); !counted) {
      state_->break_off(counted.error());
      if (state_->complete) unused.swap(state_->on_closed);
    } else {
      ended = false;
      state_->append(bytes);
      if (std::exchange(state_->woken, true)) return true;
    }
  }
  state_->wake();
  return !ended;
}

bool HttpExchange::finish(std::string_view last) {
  std::function<void()> unused;
  {
    MutexLock lock(state_->mutex);
    if (state_->closed) return false;
    HOCKET_CHECK(state_->streaming);
    if (!last.empty()) state_->append(last);
    if (!state_->framing.http_1_0) state_->out += "0\r\n\r\n";
    state_->streaming = false;
    state_->complete = true;
    unused.swap(state_->on_closed);
    state_->end_request();
  }
  state_->wake();
  return true;
}

void HttpExchange::outlive_answer() {
  MutexLock lock(state_->mutex);
  state_->on_end = nullptr;
}

void HttpExchange::on_close(std::function<void()> on_closed) {
  {
    MutexLock lock(state_->mutex);
    if (state_->complete) return;
    if (!state_->closed) {
      state_->on_closed = std::move(on_closed);
      return;
    }
  }
  on_closed();
}

const ErrorFormat& HttpExchange::error_format() const {
  return *state_->error_format;
}

bool HttpExchange::has_begun() const {
  MutexLock lock(state_->mutex);
  return state_->status != 0;
}

bool HttpExchange::is_streaming() const {
  MutexLock lock(state_->mutex);
  return state_->streaming;
}

size_t HttpExchange::num_waiting() const {
  MutexLock lock(state_->mutex);
  return state_->out.size() + state_->unsent;
}

bool HttpExchange::is_closed() const {
  MutexLock lock(state_->mutex);
  return state_->closed;
}

}  // namespace hocket
