// What flags and variables of vLLM, SGLang, llama.cpp and others are called here.   Thread: any.
#pragma once

#include <optional>
#include <string_view>

namespace hocket {

// Of "--max-model-len": "--context-length (...)". Nothing for a name that means nothing to us.
std::optional<std::string_view> translation_of(std::string_view name);

}  // namespace hocket
