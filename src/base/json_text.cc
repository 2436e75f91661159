#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <iterator>

namespace hocket {
namespace {

// Returns the bytes of the character that `text` begins with; 0 if it is not UTF-8 (RFC 3629).
size_t character_len(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t len = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (len == 0 || lead > 0xF4 || len > text.size()) return 0;
  for (size_t i = 1; i < len; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (len < 3) return len;
  const uint8_t next = byte(1);
  const bool too_long = (lead == 0xE0 && next < 0xA0) || (lead == 0xF0 && next < 0x90);
  const bool surrogate = lead == 0xED && next > 0x9F;
  return too_long || surrogate || (lead == 0xF4 && next > 0x8F) ? 0 : len;
}

// The bytes that a value in a list takes, and a member of an object. Each has a slot in an array
// that doubles; the old and the new array exist together while it moves. A member also has its key,
// and an index in the sorted list by which equal keys are found.
constexpr int64_t kElementBytes = 48, kMemberBytes = 224;
// True for each character that ends a number or a word.
constexpr auto kBetweenWords = [] {
  std::array<bool, 256> ends{};
  for (const char c : {' ', '\t', '\r', '\n', '"', ',', ':', '[', ']', '{', '}'})
    ends[static_cast<uint8_t>(c)] = true;
  return ends;
}();
// Bytes allocated for an array or object besides its elements, and for a string besides its
// characters.
constexpr int64_t kContainerBytes = 48, kStringBytes = 64;

}  // namespace

size_t end_of_json_string(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

JsonShape json_shape(std::string_view text) {
  JsonShape shape;
  std::bitset<kMaxJsonDepth + 1> is_object;  // by level
  int level = 0;
  const auto add_element = [&] {
    shape.tree_bytes += is_object[static_cast<size_t>(level)] ? kMemberBytes : kElementBytes;
  };
  int64_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!kBetweenWords[static_cast<uint8_t>(c)]) {
      shape.word_bytes = std::max(shape.word_bytes, ++word);
      continue;
    }
    word = 0;
    if (c == '"') {
      const size_t end = end_of_json_string(text, i);
      shape.tree_bytes += kStringBytes + static_cast<int64_t>(end - i);
      i = end - 1;
    } else if (c == '[' || c == '{') {
      shape.depth = std::max(shape.depth, ++level);
      if (shape.too_deep()) return shape;
      is_object[static_cast<size_t>(level)] = c == '{';
      shape.tree_bytes += kContainerBytes;
      add_element();
    } else if (c == ']' || c == '}') {
      level = std::max(level - 1, 0);
    } else if (c == ',') {
      add_element();
    }
  }
  return shape;
}

void append_json_escaped(std::string& out, std::string_view text, BadUtf8 bad) {
  while (!text.empty()) {
    const size_t len = bad == BadUtf8::keep ? 1 : character_len(text);
    const char c = text.front();
    if (len == 0)
      out += "\\ufffd";
    else if (c == '"' || c == '\\')
      out.append(1, '\\').append(1, c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    else
      out += text.substr(0, len);
    text.remove_prefix(len == 0 ? 1 : len);
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text, BadUtf8::replace);
  out += '"';
}

}  // namespace hocket
