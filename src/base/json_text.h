// Writes text as a JSON string, for rooms that write a line of JSON without a library. Finds how
// deep and how large a JSON text will be as a tree before it is parsed.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Treatment of bytes that are not UTF-8. keep: they stay, so that a text may come in pieces that
// end within a character. replace: each becomes U+FFFD.
enum class BadUtf8 : uint8_t { keep, replace };
// Appends `text` as it is written inside a JSON string, without the quotes, with control characters
// escaped.
void append_json_escaped(std::string& out, std::string_view text, BadUtf8 bad);
// Appends `text` as a JSON string, with the quotes and BadUtf8::replace.
void append_json_string(std::string& out, std::string_view text);

// Returns the index behind the closing quote of the JSON string whose opening quote is at `begin`.
size_t end_of_json_string(std::string_view text, size_t begin);

// Limit of nested lists and objects. Copying, comparing and printing a tree recurse once for each.
inline constexpr int kMaxJsonDepth = 64;
// Limit of the bytes of a number or a word such as `true`. nlohmann's parser copies one that it
// cannot read into its message several times, which would take uncounted memory.
inline constexpr int64_t kMaxJsonWord = 1024;

struct JsonShape {
  int depth = 0;           // nested lists and objects; kMaxJsonDepth + 1: that or deeper
  int64_t tree_bytes = 0;  // upper bound of the tree's memory while it is built
  int64_t word_bytes = 0;  // length of the longest number or word

  bool too_deep() const { return depth > kMaxJsonDepth; }
  bool has_endless_word() const { return word_bytes > kMaxJsonWord; }
};

// Scans the text once, without a parser. For a text that is not JSON, returns the shape of the tree
// that a parser builds before it finds the mistake.
JsonShape json_shape(std::string_view text);

}  // namespace hocket
