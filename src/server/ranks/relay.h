// An answer of another rank on its way to the client: status, headers and bytes as they come.
//
// Events go on whole, so that a rank that is lost in the middle of one leaves no half behind: the
// client gets an event that says so, as from a rank that served it itself.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/access/request_memory.h"
#include "server/wire/http_client.h"

namespace hocket {

// answered: with whatever the rank said. refused: the rank has done nothing and the client heard
// nothing, so another may be asked: it was not reached, or is shutting down. failed: the client got
// an error. left: there is no client any more.
enum class RelayEnd : uint8_t { answered, refused, failed, left };

class Relay final : public HttpSink {
 public:
  static constexpr size_t kHeldMax = 256 << 20;  // of an event, or an answer that is no stream

  // The account of the request. body: bytes of its body, held until they are sent to the rank.
  // of_request: counts the answer that comes back.
  struct Memory {
    std::shared_ptr<RequestMemory> of_request;
    std::shared_ptr<HeldBytes> body;
  };
  // `from`: the rank's name, for errors. `ended` is told once, on the thread forward.
  Relay(std::shared_ptr<HttpExchange> exchange, std::string from, Memory memory,
        std::function<void(RelayEnd, const std::string& why)> ended);

  // Sets the error that the client gets when the call is cancelled. Pre: it is not cancelled yet.
  // Thread: any.
  void give_up(const Error& why);
  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }
  // The status of the rank's answer; 0 before it comes.   Thread: forward.
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
  std::mutex mutex_;  // of what follows
  std::optional<Error> why_;
};

}  // namespace hocket
