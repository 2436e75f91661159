// State that the holders of an exchange and its connection share: the bytes to send, and how the
// answer ends. Internal to http.h and http_client.h.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "server/http/http.h"
#include "server/usage/request_memory.h"

namespace hocket {

// Logs an exception of an http thread, most likely out of memory. The caller ends only the
// connection or the call that it served.
void log_failure(const char* event, const std::exception& e) noexcept;
// Calls `run` until it returns without an exception, and logs each exception.
void run_whatever_fails(const std::function<void()>& run);

// The framing of an answer, fixed when the request's head is known.
struct HttpFraming {
  bool keep_alive = false;
  bool head_only = false;  // the request was HEAD
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  std::string more;        // lines in the head of every answer, each with its CR LF
};

// Appends a line `name: value`. Values may quote the client, so bytes that could begin another
// header are left out.
void append_header(std::string& out, std::string_view name, std::string_view value);
// Returns a whole answer: head, then body unless head_only.
std::string http_answer(const HttpFraming& framing, int status, std::string_view content_type,
                        std::string_view body, const HttpHeaders& extra);

// Number of waiting bytes of an answer that are not counted, so that probes and errors are sent
// even if requests hold all memory. A connection keeps no larger buffer for its next answer.
inline constexpr size_t kUncountedBytes = 16 << 10;

//   holders (any thread)  -> out -> connection (its http thread) -> socket
// Lock order: under this mutex only on_end may take another one; wake() and left() are called
// without it.
struct HttpExchange::State {
  HttpFraming framing;
  const ErrorFormat* error_format = nullptr;  // never null after the connection has made it
  size_t max_buffered_bytes = 0;
  std::function<void()> wake;  // makes the connection read this state again; any thread

  Mutex mutex;
  // Calls on_end the first time, because nothing more will be answered.
  void end_request() HOCKET_REQUIRES(mutex);
  // Counts the waiting bytes plus `more`. Errors: those of RequestMemory::take.
  Result<void> hold(size_t more) HOCKET_REQUIRES(mutex);
  // Adds a piece of a stream to `out`.
  void append(std::string_view bytes) HOCKET_REQUIRES(mutex);
  // Ends a stream for which there is no memory: a stream of events with the event `why`, which is
  // not counted; any other stream by closing the connection.
  void break_off(const Error& why) HOCKET_REQUIRES(mutex);

  std::function<void()> on_end HOCKET_GUARDED_BY(mutex);  // that of HttpAdmission
  HeldBytes held HOCKET_GUARDED_BY(mutex);     // waiting bytes, if more than kUncountedBytes
  std::string out HOCKET_GUARDED_BY(mutex);    // not yet taken by the connection
  size_t taken HOCKET_GUARDED_BY(mutex) = 0;   // bytes of the connection's batch; 0 when it is sent
  size_t unsent HOCKET_GUARDED_BY(mutex) = 0;  // bytes of the batch that are not sent
  size_t largest HOCKET_GUARDED_BY(mutex) = 0;      // largest write so far
  int status HOCKET_GUARDED_BY(mutex) = 0;          // 0: no answer yet
  bool streaming HOCKET_GUARDED_BY(mutex) = false;  // between start_stream() and finish()
  bool events HOCKET_GUARDED_BY(mutex) = false;     // text/event-stream
  bool complete HOCKET_GUARDED_BY(mutex) = false;   // true: `out` is the rest of the answer
  // True: the server ended the stream early, and must close the connection.
  bool cut HOCKET_GUARDED_BY(mutex) = false;
  bool slow HOCKET_GUARDED_BY(mutex) = false;
  bool closed HOCKET_GUARDED_BY(mutex) = false;  // nothing more is accepted
  // True: wake() was called, and take() was not called since.
  bool woken HOCKET_GUARDED_BY(mutex) = false;
  std::function<void()> on_closed HOCKET_GUARDED_BY(mutex);

  // Functions of the connection.
  void begin(std::function<void()> when_ended, HeldBytes waiting);
  enum class Next { send, wait, done, cut };
  // Moves the waiting bytes into `batch` and returns send, or returns what to do instead.
  Next take(std::string& batch);
  void sent(size_t num_bytes);
  bool is_cut();  // true: slow or cut
  bool is_slow();
  // Returns the answer's status if the client got it whole, 500 if the server cut it, else 499.
  int end_status(bool whole);
  // Adds a comment to a quiet event stream.
  void ping();
  // Precondition: the client has closed its sending side. Sends it a few bytes if none are on their
  // way: a client that is gone answers with a reset. Returns false if the client counts as gone at
  // once.
  bool ask();
  // The client has left: calls left(). After it the holders' calls have no effect.
  void leave();
};

}  // namespace hocket
