// The configuration of the Hugging Face folder that a GGUF file was made from, as far as the file
// says it: its config.json as text. Source: docs/models.md, "GGUF".   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/assumption.h"
#include "gguf/file.h"

namespace hocket {

// Errors: unsupported_model (an architecture, or a value that changes the arithmetic, by name),
// ErrorCode::bad_gguf (a missing value).
Result<std::string> gguf_config_json(const GgufFile& file);
// Returns the values that it takes though the file does not hold them; none if it refuses the file.
std::vector<GgufAssumption> gguf_config_assumptions(const GgufFile& file);

// The sampling defaults that the metadata hold, as a generation_config.json.
std::string gguf_generation_json(const GgufFile& file);

// Returns the architectures that can be read: "llama, qwen2, ...".
std::string gguf_architectures();

}  // namespace hocket
