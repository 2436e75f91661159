// The keys of config.json of Gemma 4. Errors are kept in `config`. Private to the room.
// Source: docs/models.md, "keys".   Thread: any.
#pragma once

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

void read_gemma4(JsonFields& config, ModelConfig& model);

}  // namespace hocket
