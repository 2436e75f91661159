// Relays the answer of another rank to the client: status, headers and bytes as they arrive.
//
// Events are passed on whole. So if a rank is lost in the middle of an event, the client gets no
// half event. If this rank can continue the answer, the client gets the rest from here; for that
// the other rank sends its progress between the events (reply/answer_progress.h). Otherwise the
// client gets an error event, as from a rank that computes the answer itself.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/http/http_client.h"
#include "server/reply/answer_progress.h"
#include "server/usage/request_memory.h"

namespace hocket {

// answered: the client got the rank's answer, whatever it was. refused: the rank did nothing and
// the client got nothing, so another rank may take the request; the rank was not reached or is
// shutting down. lost: the rank was lost, and this rank continues the answer. failed: the client
// got an error. left: the client has left.
enum class RelayEnd : uint8_t { answered, refused, lost, failed, left };

class Relay final : public HttpSink {
 public:
  static constexpr size_t kMaxHeld = 256 << 20;  // bytes of an event, or of an unstreamed answer

  // body: the bytes of the request's body, held until they are sent to the rank. memory: counts the
  // answer that is received. resumes: this rank continues the answer if the other is lost.
  struct Options {
    std::shared_ptr<RequestMemory> memory;
    std::shared_ptr<HeldBytes> body;
    bool resumes = false;
  };
  // `from` is the rank's name, for errors. `ended` is called once, on the thread client.
  Relay(std::shared_ptr<HttpExchange> exchange, std::string from, Options options,
        std::function<void(RelayEnd, const std::string& why)> ended);

  // Set the error that the client gets when the call is cancelled; lose() says that the rank is
  // lost, so that this rank may continue. Precondition: it is not cancelled yet.
  // Thread: any.
  void give_up(const Error& why);
  void lose(const Error& why);
  // Returns how far the client has the stream, when it ended as lost.   Thread: client.
  AnswerProgress take_progress() { return reader_.take_progress(); }
  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }
  // Returns when the last bytes arrived; the beginning of time if none have.   Thread: any.
  TimePoint moved_at() const { return moved_at_.load(std::memory_order_relaxed); }
  // Returns the status of the rank's answer; 0 before it arrives.   Thread: client.
  int status() const { return status_; }

  bool head(int status, HttpHeaders&& headers) override;
  bool body(std::string_view piece) override;
  void end(HttpEnd how, const std::string& why) override;

 private:
  bool hold(std::string_view piece);
  bool pass_on_events();
  RelayEnd finish(HttpEnd how, const std::string& why);
  RelayEnd deliver();
  RelayEnd fail_with(const Error& why);

  const std::shared_ptr<HttpExchange> exchange_;
  const std::string from_;
  std::function<void(RelayEnd, const std::string&)> ended_;
  int status_ = 0;
  bool streaming_ = false;
  const std::shared_ptr<HeldBytes> body_;
  const bool resumes_;
  HeldBytes held_bytes_, held_ids_;
  ProgressReader reader_;
  std::atomic<TimePoint> moved_at_{TimePoint{}};
  bool done_ = false;  // true: the client has the end of the stream
  std::string type_, held_;
  HttpHeaders headers_;
  Mutex mutex_;
  std::optional<Error> why_ HOCKET_GUARDED_BY(mutex_);
  bool is_lost_ HOCKET_GUARDED_BY(mutex_) = false;
};

}  // namespace hocket
