// Writes GGUF files for tests, sound ones and broken ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class GgufText {
 public:
  explicit GgufText(uint32_t version = 3) : text_("GGUF") { add(version); }

  GgufText& counts(uint64_t tensors, uint64_t values) { return add(tensors).add(values); }
  GgufText& text_value(std::string_view key, std::string_view value) {
    return text(key).add(uint32_t{8}).text(value);
  }
  GgufText& u32_value(std::string_view key, uint32_t value) {
    return text(key).add(uint32_t{4}).add(value);
  }
  GgufText& f32_value(std::string_view key, float value) {
    return text(key).add(uint32_t{6}).add(value);
  }
  GgufText& flag_value(std::string_view key, bool value) {
    return text(key).add(uint32_t{7}).add(static_cast<uint8_t>(value));
  }
  // A list without its entries.
  GgufText& list_value(std::string_view key, uint32_t type, uint64_t count) {
    return text(key).add(uint32_t{9}).add(type).add(count);
  }
  GgufText& texts_value(std::string_view key, const std::vector<std::string_view>& values) {
    list_value(key, 8, values.size());
    for (const std::string_view value : values) text(value);
    return *this;
  }
  GgufText& i32s_value(std::string_view key, const std::vector<int32_t>& values) {
    list_value(key, 5, values.size());
    for (const int32_t value : values) add(value);
    return *this;
  }
  GgufText& flags_value(std::string_view key, const std::vector<bool>& values) {
    list_value(key, 7, values.size());
    for (const bool value : values) add(static_cast<uint8_t>(value));
    return *this;
  }
  // `axes` as files have them: the length of a row first.
  GgufText& tensor(std::string_view name, const std::vector<int64_t>& axes, uint32_t type,
                   int64_t begin) {
    text(name).add(static_cast<uint32_t>(axes.size()));
    for (const int64_t axis : axes) add(axis);
    return add(type).add(begin);
  }
  // Pads to the alignment and adds `bytes` bytes of data.
  GgufText& data(int64_t bytes, int alignment = 32) {
    while (text_.size() % alignment != 0) text_ += '\0';
    text_.append(static_cast<size_t>(bytes), '\0');
    return *this;
  }

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(text_)); }
  const std::string& bytes_as_text() const { return text_; }

 private:
  template <class T>
  GgufText& add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  GgufText& text(std::string_view value) {
    add(uint64_t{value.size()});
    text_ += value;
    return *this;
  }

  std::string text_;
};

}  // namespace hocket
