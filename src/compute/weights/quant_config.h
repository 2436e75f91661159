// Reads quantization_config of a model folder into QuantConfig: fp8 of DeepSeek and Qwen, MXFP4 of
// gpt-oss, MXFP8, ModelOpt, compressed-tensors, AWQ, GPTQ. Any other form is refused, with its
// name.   Source: docs/models.md, "number formats". Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

// Reads quantization_config (or its older name compression_config) of `config`; returns layout none
// if there is none. Private to the room. Errors, kept in `config`: unsupported_model (method,
// format or field, by name, with an alternative), bad_config.
QuantConfig read_quant_config(JsonFields& config);

// Reads hf_quant_config.json, in which ModelOpt describes a folder whose config.json has no
// quantization_config; returns layout none if it describes nothing. Errors, kept in `file`: as
// above.
QuantConfig read_modelopt_file(JsonFields& file);

// The beginning of an entry that is a pattern, and the number of patterns that a config may have.
// Private to the room.
inline constexpr std::string_view kPattern = "re:";
inline constexpr size_t kPatterns = 64;
// Returns true if is_quantized() can match the pattern, which has no kPattern in front.
bool can_be_read(const std::string& pattern);

// Returns true if such a folder holds `module` ("model.layers.0.self_attn.q_proj", without
// ".weight") quantized according to its config; the caller knows embedding, norms, gate and head.
// An entry of `skipped` has the meaning that its tool gives it:
//   "re:P"  compressed-tensors: P matches from the beginning of the name
//   "N"     AWQ: N occurs anywhere in the name; else: N is a run of whole components of it
bool is_quantized(const QuantConfig& quant, std::string_view module);

}  // namespace hocket
