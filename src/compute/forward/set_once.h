// A field of layer state that is set once and taken once. Anything else is a bug and fails a check.
#pragma once

#include <optional>
#include <utility>

#include "base/check.h"

namespace hocket {

template <class T>
class SetOnce {
 public:
  void set(T value) {
    HOCKET_CHECK(!value_.has_value());
    value_ = std::move(value);
  }
  T take() {
    HOCKET_CHECK(value_.has_value());
    return *std::exchange(value_, std::nullopt);
  }
  // Returns the value, which stays until it is taken.
  const T& peek() const {
    HOCKET_CHECK(value_.has_value());
    return *value_;
  }
  bool empty() const { return !value_.has_value(); }

 private:
  std::optional<T> value_;
};

}  // namespace hocket
