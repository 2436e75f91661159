// Reads config.json and generation_config.json of a Hugging Face model folder into
// core/model_config.h; of a GGUF file, the config.json of the folder that it was made from
// (gguf/config.h). Both generations of keys are known (rope_theta + rope_scaling,
// rope_parameters; torch_dtype, dtype; num_experts, num_local_experts). Source: docs/models.md.
// Thread: any.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model_config.h"

namespace hocket {

// Errors: model_not_found (folder or config.json missing, with the path); bad_config (not JSON,
// wrong type or impossible value, with the key); unsupported_model (an architecture, or a field
// whose value changes the arithmetic, with its name and the supported values).
Result<ModelConfig> read_hf_config(const std::filesystem::path& folder);
Result<ModelConfig> parse_hf_config(
    std::string_view config_json);  // reads no generation_config.json
// Reads hf_quant_config.json of ModelOpt. Errors: bad_config, unsupported_model.
Result<QuantConfig> parse_modelopt_config(std::string_view json);
struct GenerationFile {
  GenerationDefaults defaults;
  std::vector<int64_t> eos_ids;  // not negative, and not compared with a vocabulary
};
// Reads generation_config.json. Errors: bad_config.
Result<GenerationFile> parse_generation_config(std::string_view json);
// If the file is missing, all fields are unset. Errors: bad_config.
Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder);

// Returns the supported architectures: "LlamaForCausalLM", ... (hf_families.h).
std::vector<std::string_view> supported_architectures();

}  // namespace hocket
