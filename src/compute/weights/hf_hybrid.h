// The keys of config.json of families that have delta nets beside attention. Errors are kept in
// `config`. Private to the room.   Source: docs/models.md, "keys".   Thread: any.
#pragma once

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

void read_kimi_linear(JsonFields& config, ModelConfig& model);
void read_qwen3_next(JsonFields& config, ModelConfig& model);
void read_qwen3_5(JsonFields& config, ModelConfig& model);
void read_qwen3_5_moe(JsonFields& config, ModelConfig& model);

}  // namespace hocket
