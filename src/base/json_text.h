// Text as JSON spells it, for rooms that write a line of JSON without a library; and how deep and
// how large a JSON text will be as a tree, told before it is parsed.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Appends `text` in quotes, control characters escaped; what is no UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// The index behind the string of a JSON text that begins, with its quote, at `begin`.
size_t end_of_json_string(std::string_view text, size_t begin);

// Copying, comparing and printing a tree recurse once for each level.
inline constexpr int kJsonDepthMax = 64;
// Bytes of a number or a word: a parser quotes the whole of one that it cannot read, several times.
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
