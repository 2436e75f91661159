// Text as JSON spells it, for rooms that write a line of JSON without a library; and what a JSON
// text would be as a tree, before it is one.   Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Appends `text` in quotes, control characters escaped; what is no UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// What copies, compares or prints a tree calls itself once a level.
inline constexpr int kJsonDepthMax = 64;

struct JsonShape {
  int depth = 0;           // of lists and objects in one another; kJsonDepthMax + 1: that or deeper
  int64_t tree_bytes = 0;  // at most what the tree takes in memory while it is built

  bool too_deep() const { return depth > kJsonDepthMax; }
};

// In one pass, without a parser. Of a text that is no JSON: of what a parser makes before it sees
// that.
JsonShape json_shape(std::string_view text);

}  // namespace hocket
