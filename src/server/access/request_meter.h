// What a request uses, on its principal's account: made when it is let in, told of each token.
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
  // The request is no longer under way. Tokens may still come.
  void end();

 private:
  const std::shared_ptr<Account> account_;
  std::atomic<bool> ended_ = false;
};

}  // namespace hocket
