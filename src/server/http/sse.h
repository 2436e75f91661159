// Writes and reads server-sent events, the format of streamed answers.
//
//   data: {json}\n\n   ...   data: [DONE]\n\n
//
// Source: WHATWG HTML §9.2.   Thread: any, one at a time for one object.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/http.h"

namespace hocket {

inline constexpr std::string_view kSseDone = "[DONE]";
inline constexpr std::string_view kSseDoneEvent = "data: [DONE]\n\n";

// Appends one event. Each line of `data` (\n, \r or \r\n) becomes a `data:` line.
void append_sse(std::string& out, std::string_view data);
// Appends one event with a name, for APIs that name their events.
void append_sse_event(std::string& out, std::string_view name, std::string_view data);

// Writes events to one exchange; the head is sent with the first event, unless the stream has begun
// already. All functions return false if the client has left.
class SseWriter {
 public:
  explicit SseWriter(std::shared_ptr<HttpExchange> exchange, HttpHeaders extra = {});

  bool data(std::string_view json);
  // Writes events that are already framed.
  bool events(std::string_view framed);
  // Sends [DONE] and ends the stream.
  bool done();
  // Ends the stream without [DONE].
  bool finish();
  // Before the first event: sends a plain answer with the error's status. After it: sends the
  // events of the API's error format and ends the stream.
  bool error(const Error& error);
  bool started() const { return started_; }
  // Returns the number of bytes that are written and not sent.
  size_t num_waiting() const { return exchange_->num_waiting(); }

 private:
  bool start();

  std::shared_ptr<HttpExchange> exchange_;
  HttpHeaders extra_;
  bool started_;
  std::string block_;
};

// Reads events, for clients in this project: benches, the demo, tests.
class SseReader {
 public:
  // Returns the data of the events that these bytes complete, lines joined by \n; comments and
  // other fields are skipped. Events may be cut anywhere.
  std::vector<std::string> feed(std::string_view bytes);

 private:
  void line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // true: a \n that follows belongs to this \r
};

}  // namespace hocket
