// Writes text as a JSON string, for rooms that write a line of JSON without a library, and finds
// how deep and how large a JSON text will be as a tree before it is parsed.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Appends `text` in quotes, control characters escaped; what is no UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// The index behind the closing quote of the JSON string whose opening quote is at `begin`.
size_t end_of_json_string(std::string_view text, size_t begin);

// Levels of nested lists and objects. Copying, comparing and printing a tree recurse once for each.
inline constexpr int kJsonDepthMax = 64;
// Bytes of a number or a word such as `true`. nlohmann's parser copies the whole of one that it
// cannot read into its message several times, which would take memory that nobody counts.
inline constexpr int64_t kJsonWordMax = 1024;

struct JsonShape {
  int depth = 0;           // of nested lists and objects; kJsonDepthMax + 1: that or deeper
  int64_t tree_bytes = 0;  // upper bound of the tree's memory while it is built
  int64_t word_bytes = 0;  // of the longest number or word

  bool too_deep() const { return depth > kJsonDepthMax; }
  bool has_endless_word() const { return word_bytes > kJsonWordMax; }
};

// In one pass, without a parser. For a text that is no JSON: the shape of the tree that a parser
// builds before it finds the mistake.
JsonShape json_shape(std::string_view text);

}  // namespace hocket
