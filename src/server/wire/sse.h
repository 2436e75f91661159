// Server-sent events: what streams of answers are made of.
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
#include "server/wire/http.h"

namespace hocket {

inline constexpr std::string_view kSseDone = "[DONE]";

// Appends one event. Each line of `data` (\n, \r or \r\n) becomes a `data:` line.
void append_sse(std::string& out, std::string_view data);
// The same with a name, for APIs that name their events.
void append_sse_event(std::string& out, std::string_view name, std::string_view data);

// Writes events to one exchange; the head goes out with the first of them. All return false when
// the client has left.
class SseWriter {
 public:
  explicit SseWriter(std::shared_ptr<HttpExchange> exchange, HttpHeaders extra = {});

  bool data(std::string_view json);
  // Events that are framed already.
  bool events(std::string_view framed);
  // [DONE], and the end.
  bool done();
  // The end, without [DONE].
  bool finish();
  // Before the first event a plain answer with its status; after it what the client's API says of
  // errors in streams, and the end.
  bool error(const Error& error);
  bool started() const { return started_; }

 private:
  bool start();

  std::shared_ptr<HttpExchange> exchange_;
  HttpHeaders extra_;
  std::string block_;
  bool started_ = false;
};

// The reading side, for clients of ours: benches, the demo, tests.
class SseReader {
 public:
  // The data of the events that these bytes complete, lines joined by \n; comments and other fields
  // are skipped. Events may be cut anywhere.
  std::vector<std::string> feed(std::string_view bytes);

 private:
  void line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a \n that follows belongs to the \r before
};

}  // namespace hocket
