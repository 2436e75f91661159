// Settings of an engine by the names of the program's flags ("context-length"), given as text, and
// what a program that embeds one adds to them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

struct EmbeddedSettings : ServerSettings {
  // The program `hocket`, whose processes try grammars with limits of time and memory before they
  // are compiled here (engine/grammar/grammar_trials.h). Empty: they are compiled untried.
  std::string grammar_trials;
};

// Errors: bad_value, with the nearest name where there is no such option. A failed call changes
// nothing.
Result<void> set_option(EmbeddedSettings& settings, std::string_view name, std::string_view value);
// By index, from 0 on; null after the last. Ends with 0.
const char* option_name(size_t index);

}  // namespace hocket
