// Makes the C ABI of rust/ safe: buffers that free themselves, and the last error as text. Only .cc
// files of this room include it.
#pragma once

#include <hocket_rs.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace hocket::rust {

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { hk_buf_free(&buf_); }

  HkBuf* out() { return &buf_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(buf_.ptr), buf_.len}; }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> v(buf_.len / sizeof(T));
    text().copy(reinterpret_cast<char*>(v.data()), v.size() * sizeof(T));
    return v;
  }

 private:
  HkBuf buf_{};
};

// Returns what went wrong in this thread's last call.
inline std::string last_error() {
  std::string text(hk_last_error(nullptr, 0), '\0');
  hk_last_error(text.data(), text.size() + 1);
  return text;
}

}  // namespace hocket::rust
