// Folds numbers and texts into 64 bits, in order and each text with its length. This detects
// mistakes, not malicious changes. Private to the room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/mix.h"

namespace hocket {

class Fingerprint {
 public:
  void add(uint64_t number) { value_ = mix64(mix64(value_ + kMixStep) ^ number); }
  // Adds numbers, or values of an enum.
  void add_all(auto... numbers) { (add(static_cast<uint64_t>(numbers)), ...); }
  void add(std::string_view text) {
    add(uint64_t{text.size()});
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(8, text.size()))) {
      uint64_t word = 0;
      std::memcpy(&word, text.data(), std::min<size_t>(8, text.size()));
      add(word);
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

}  // namespace hocket
