// Writes pieces of JSON by hand, where building a tree would cost too much.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// Appends `text` as it stands inside a JSON string, without the quotes.
void append_escaped(std::string& out, std::string_view text);
// Returns `text` as a JSON string, with the quotes.
std::string quoted_json(std::string_view text);
// Appends a code point; halves of surrogate pairs become U+FFFD.
void append_utf8(std::string& out, uint32_t code);

}  // namespace hocket
