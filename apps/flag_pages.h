// A command's flags as pages: the manual on the web, the man page, words for the shell. Made from
// the same table as --help, so that none can drift.
#pragma once

#include <string>
#include <string_view>

#include "apps/flags.h"
#include "base/result.h"

namespace hocket {

// "context-length": HOCKET_CONTEXT_LENGTH.
std::string variable_name(std::string_view flag);
// The default as text; a switch: "". Read before anything is parsed.
std::string default_text(const Flag& flag);

// `form`: markdown, man, words or json. Errors: bad_value.
Result<std::string> flag_page(const CommandLine& line, std::string_view form);

}  // namespace hocket
