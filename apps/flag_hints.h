// Flags and variables of vLLM, SGLang, llama.cpp and others, with hocket's names for them.
// Thread: any.
#pragma once

#include <optional>
#include <string_view>

namespace hocket {

// Returns "--context-length (...)" for "--max-model-len", and nullopt for a name not in the table.
std::optional<std::string_view> flag_hint(std::string_view name);

}  // namespace hocket
