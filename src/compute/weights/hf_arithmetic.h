// Refuses a config.json whose keys would change the arithmetic of a model and were not read: such a
// model would load and answer wrongly. Private to the room.   Thread: any.
#pragma once

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

// Precondition: the function of the model's family has read its keys. Errors are kept in `config`.
void refuse_other_arithmetic(JsonFields& config, const ModelConfig& model);

}  // namespace hocket
