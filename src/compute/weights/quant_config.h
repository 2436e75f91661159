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

// The beginnings of an entry that is a regular expression, one of which a module must match, or a
// glob; and how many of the first two a config may have: some name each layer's modules as targets.
// Private to the room.
inline constexpr std::string_view kPattern = "re:", kTarget = "target:", kGlob = "glob:";
inline constexpr size_t kPatterns = 64, kTargets = 256;
// Returns true if is_quantized() can match an entry that has one of these beginnings.
bool can_be_read(const std::string& entry);

// Returns true if such a folder holds `module` ("model.layers.0.self_attn.q_proj", without
// ".weight") quantized according to its config; the caller knows embedding, norms, gate and head.
// An entry of `skipped` has the meaning that its tool gives it:
//   "re:P"  compressed-tensors: P matches from the beginning of the name
//   "target:P"  the same: modules that match none of these are not quantized
//   "glob:G"  ModelOpt, mxfp4: G, in which a star is any text, matches the name, or whole
//           components at its beginning
//   "N"     AWQ: N occurs anywhere in the name; else: N is a run of whole components of it
bool is_quantized(const QuantConfig& quant, std::string_view module);

}  // namespace hocket
