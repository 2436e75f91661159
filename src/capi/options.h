// Settings of an engine, set as text by the names of the program's flags ("context-length"), and
// further ones for programs that embed the engine.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

struct EmbeddedSettings : ServerSettings {
  // Path of the program `hocket`, whose processes try grammars with limits of time and memory
  // before they are compiled here (engine/grammar/grammar_trials.h). Empty: grammars are compiled
  // untried.
  std::string grammar_trials;
};

// Errors: bad_value, with the nearest name if the option is unknown. A failed call changes nothing.
Result<void> set_option(EmbeddedSettings& settings, std::string_view name, std::string_view value);
// Returns the name of an option by index, from 0 on; null after the last.
const char* option_name(size_t index);

}  // namespace hocket
