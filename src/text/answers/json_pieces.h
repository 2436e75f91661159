// Writes pieces of JSON by hand, where building a tree would cost too much.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Returns `text` as a JSON string, with the quotes. Bytes that are not UTF-8 stay.
std::string quoted_json(std::string_view text);
// Appends a code point; halves of surrogate pairs become U+FFFD.
void append_utf8(std::string& out, uint32_t code);

}  // namespace hocket
