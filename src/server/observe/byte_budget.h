// Limits the bytes that may be kept of requests beyond what serving them needs.   Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace hocket {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : left_(bytes) {}

  // Bytes taken from a budget; the destructor gives them back.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->left_ += bytes_;
    }
    // Takes `bytes`. Returns false, and takes nothing, if the budget has no room.
    bool take(ByteBudget& budget, int64_t bytes) {
      if ((budget.left_ -= bytes) < 0) {
        budget.left_ += bytes;
        return false;
      }
      budget_ = &budget;
      bytes_ += bytes;
      return true;
    }
    // Returns a copy of `text`; empty if the budget has no room for it.
    std::string keep(ByteBudget& budget, std::string_view text) {
      return take(budget, static_cast<int64_t>(text.size())) ? std::string(text) : std::string();
    }

   private:
    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

 private:
  std::atomic<int64_t> left_;
};

}  // namespace hocket
