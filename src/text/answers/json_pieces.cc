#include "text/answers/json_pieces.h"

#include "base/json_text.h"

namespace hocket {

std::string quoted_json(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text, BadUtf8::keep);
  out += '"';
  return out;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace hocket
