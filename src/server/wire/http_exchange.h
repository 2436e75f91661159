// What an exchange's holders and its connection share: the bytes on their way out, and how it ends.
// Inside of http.h and http_client.h.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/access/request_memory.h"
#include "server/wire/http.h"

namespace hocket {

// Logs an exception of an http thread, out of memory most likely. The caller ends only the
// connection or the call that it served.
void tell_failure(const char* event, const std::exception& e) noexcept;
// Calls `run` until it returns without an exception, and logs each exception.
void run_whatever_fails(const std::function<void()>& run);

// How an answer is framed: fixed once the request's head is known.
struct HttpFraming {
  bool keep_alive = false;
  bool head_only = false;  // the request was HEAD
  bool http_1_0 = false;   // knows no chunks: a stream ends with the connection
  std::string more;        // lines that the head of every answer has, each with its CR LF
};

// `name: value`. Values may quote the client: nothing in them may begin another header.
void append_header(std::string& out, std::string_view name, std::string_view value);
// A whole answer: head, then body unless head_only.
std::string http_answer(const HttpFraming& framing, int status, std::string_view content_type,
                        std::string_view body, const HttpHeaders& extra);

// So many waiting bytes of an answer are not counted, so that probes and errors are sent even if
// requests hold all memory. A connection keeps no larger buffer than this for its next answer.
inline constexpr size_t kUncountedBytes = 16 << 10;

//   holders (any thread)  -> out -> connection (its http thread) -> socket
// Lock order: the mutex is a leaf; wake() and left() are called without it.
struct HttpExchange::State {
  HttpFraming framing;
  ErrorForm error_form = ErrorForm::openai;
  std::shared_ptr<RequestMeter> meter;  // ends before the client can see the end
  size_t max_buffered_bytes = 0;
  std::function<void()> wake;  // tells the connection to look here; any thread

  std::mutex mutex;
  // Nothing more will be answered.   mutex is held.
  void end_meter();
  // Counts the bytes that wait, and `more`. Errors: those of RequestMemory::take.   mutex is held.
  Result<void> hold(size_t more);
  // Adds a piece of a stream to `out`.   mutex is held.
  void append(std::string_view bytes);
  // Ends a stream for which there is no memory: a stream of events with the event `why`, which is
  // not counted, any other by a cut.   mutex is held.
  void break_off(const Error& why);

  HeldBytes held;          // of what waits, where it is more than kUncountedBytes
  std::string out;         // not yet taken by the connection
  size_t taken = 0;        // bytes of the connection's batch; 0 when all of it is sent
  size_t unsent = 0;       // bytes of the batch that are not sent yet
  size_t largest = 0;      // of the writes so far
  int status = 0;          // 0: nothing answered yet
  bool streaming = false;  // between start_stream() and finish()
  bool events = false;     // text/event-stream
  bool complete = false;   // `out` is the rest of the answer
  bool cut = false;        // ended in mid-stream by the server: the connection must end
  bool slow = false;
  bool closed = false;  // nothing more is accepted
  bool woken = false;   // wake() was called and take() has not happened yet
  std::function<void()> left;

  // The connection's side.
  enum class Next { send, wait, done, cut };
  // Moves what is there into `batch` (send), or says what to do.
  Next take(std::string& batch);
  void sent(size_t num_bytes);
  bool is_cut();  // slow or cut
  // Adds a comment to a quiet event stream.
  void ping();
  // Pre: the client has closed its sending side. Sends it something to read if nothing is on its
  // way: a client that is gone altogether answers with a reset. False: it is taken for gone.
  bool ask();
  // The client has left: calls left(). After it the holders change nothing any more.
  void leave();
};

}  // namespace hocket
