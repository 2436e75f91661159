#include "base/json_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace hocket {
namespace {

// Bytes of the character that `text` begins with; 0 where that is no UTF-8 (RFC 3629).
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

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t len = character_len(text);
    const char c = text.front();
    if (len == 0)
      out += "\\ufffd";
    else if (c == '"' || c == '\\')
      out.append(1, '\\').append(1, c);
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    else
      out += text.substr(0, len);
    text.remove_prefix(len == 0 ? 1 : len);
  }
  out += '"';
}

}  // namespace hocket
