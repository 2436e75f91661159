// How much may be kept of requests beside what serving them needs.   Thread: any.
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

  // What was taken of a budget; goes back when it dies.
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
    // A copy of `text`; empty where the budget has no room for it.
    std::string keep(ByteBudget& budget, std::string_view text) {
      const auto size = static_cast<int64_t>(text.size());
      if ((budget.left_ -= size) < 0) {
        budget.left_ += size;
        return {};
      }
      budget_ = &budget;
      bytes_ += size;
      return std::string(text);
    }

   private:
    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

 private:
  std::atomic<int64_t> left_;
};

}  // namespace hocket
