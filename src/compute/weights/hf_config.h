// A Hugging Face model folder's config.json and generation_config.json as core/model_config.h.
// Both generations of keys (rope_theta + rope_scaling, rope_parameters; torch_dtype, dtype;
// num_experts, num_local_experts). Source: docs/models.md.   Thread: any.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model_config.h"

namespace hocket {

// Errors: model_not_found (folder or config.json missing, naming the path); bad_config (not JSON,
// wrong type or impossible value, naming the key); unsupported_model (architecture, or a field
// whose value changes the arithmetic, by name, with what is supported).
Result<ModelConfig> read_hf_config(const std::filesystem::path& folder);
Result<ModelConfig> parse_hf_config(
    std::string_view config_json);  // without generation_config.json
// Missing file: all unset. Errors: bad_config.
Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder);

// The architectures that can run: "LlamaForCausalLM", ... (hf_families.h).
std::vector<std::string_view> supported_architectures();

}  // namespace hocket
