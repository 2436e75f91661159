// Prints a command's flags as a page of the web manual, a man page, words for the shell or JSON.
// All are made from the same table as --help, so that they always agree with it.
#pragma once

#include <string>
#include <string_view>

#include "apps/flags.h"
#include "base/result.h"

namespace hocket {

// Returns HOCKET_CONTEXT_LENGTH for "context-length".
std::string variable_name(std::string_view flag);
// Returns the flag's value as text, which is the default before anything is parsed. A switch that
// is off gives "".
std::string default_text(const Flag& flag);

// Returns the page in `form`: markdown, man, words or json. Errors: bad_value.
Result<std::string> flag_docs(const CommandLine& line, std::string_view form);

}  // namespace hocket
