// Rotary embedding of a config.json: rope_parameters, or rope_theta and rope_scaling beside the
// other keys. Private to the room.   Source: docs/models.md, "rope".   Thread: any.
#pragma once

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

struct RopeQuestion {
  int dims = 0;      // of a head, or of its rotary part in latent attention
  double share = 1;  // of them that turn, where the file does not say
  int positions = 0;
};
// Errors, kept in `config`: unsupported_model (kind of scaling), bad_config.
RopeConfig read_rope(JsonFields& config, const RopeQuestion& question);

}  // namespace hocket
