// Relays the answer of another rank to the client: status, headers and bytes as they come.
//
// Events are passed on whole. So if a rank is lost in the middle of an event, the client gets no
// half event; it gets an error event, as from a rank that computes the answer itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "server/http/http_client.h"
#include "server/usage/request_memory.h"

namespace hocket {

// answered: the client got the rank's answer, whatever it was. refused: the rank did nothing and
// the client got nothing, so another rank may take the request; the rank was not reached or is
// shutting down. failed: the client got an error. left: the client has left.
enum class RelayEnd : uint8_t { answered, refused, failed, left };

class Relay final : public HttpSink {
 public:
  static constexpr size_t kHeldMax = 256 << 20;  // bytes of an event, or of an unstreamed answer

  // The memory of the request. body: the bytes of its body, held until they are sent to the rank.
  // of_request: counts the answer that comes back.
  struct Memory {
    std::shared_ptr<RequestMemory> of_request;
    std::shared_ptr<HeldBytes> body;
  };
  // `from` is the rank's name, for errors. `ended` is called once, on the thread forward.
  Relay(std::shared_ptr<HttpExchange> exchange, std::string from, Memory memory,
        std::function<void(RelayEnd, const std::string& why)> ended);

  // Sets the error that the client gets when the call is cancelled. Precondition: it is not
  // cancelled yet.
  // Thread: any.
  void give_up(const Error& why);
  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }
  // Returns the status of the rank's answer; 0 before it comes.   Thread: forward.
  int status() const { return status_; }

  bool head(int status, HttpHeaders&& headers) override;
  bool body(std::string_view piece) override;
  void end(HttpEnd how, const std::string& why) override;

 private:
  bool hold(std::string_view piece);
  RelayEnd finish(HttpEnd how, const std::string& why);
  RelayEnd deliver();
  RelayEnd fail_with(const Error& why);

  const std::shared_ptr<HttpExchange> exchange_;
  const std::string from_;
  std::function<void(RelayEnd, const std::string&)> ended_;
  int status_ = 0;
  bool streaming_ = false;
  const std::shared_ptr<HeldBytes> body_;
  HeldBytes held_bytes_;
  std::string type_, held_;
  HttpHeaders kept_;
  Mutex mutex_;
  std::optional<Error> why_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
