// Flags and variables of vLLM, SGLang, llama.cpp and others, with hocket's names for them.
// Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace hocket {

// Returns all names of others, each with the hint.
std::span<const std::pair<std::string_view, std::string_view>> flag_hints();
// Returns "--context-length (...)" for "--max-model-len", and nullopt for a name not in the table.
std::optional<std::string_view> flag_hint(std::string_view name);

}  // namespace hocket
