// Counts the tokens and the end of one request in its principal's account. It is made when the
// request is let in.
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace hocket {

class RequestMeter {
 public:
  struct Account;
  explicit RequestMeter(std::shared_ptr<Account> account);
  ~RequestMeter() { end(); }
  RequestMeter(const RequestMeter&) = delete;
  RequestMeter& operator=(const RequestMeter&) = delete;

  void take_tokens(int64_t num_tokens);
  // Ends the request's part in `concurrency`. Tokens may still be taken afterwards.
  void end();

 private:
  const std::shared_ptr<Account> account_;
  std::atomic<bool> ended_ = false;
};

}  // namespace hocket
