// The keys of config.json of families in which some layers see near keys only. Errors are kept in
// `config`. Private to the room.   Source: docs/models.md, "keys".   Thread: any.
#pragma once

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

void read_mimo_v2(JsonFields& config, ModelConfig& model);
void read_gpt_oss(JsonFields& config, ModelConfig& model);
void read_llama4(JsonFields& config, ModelConfig& model);
void read_step3p5(JsonFields& config, ModelConfig& model);

}  // namespace hocket
