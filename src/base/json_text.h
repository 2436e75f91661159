// Text as JSON spells it, for rooms that write a line of JSON without a library.   Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace hocket {

// Appends `text` in quotes, control characters escaped; what is no UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace hocket
