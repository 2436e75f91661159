// The kinds of layers of ordinary decoders: one way to attend and one way to transform. A model
// maps its layers to them; another kind of layer needs another table like theirs.
#pragma once

#include "compute/models/layer.h"

namespace hocket {

enum class Attending : uint8_t { gqa, mla, delta_net };
enum class Transforming : uint8_t { dense, experts, experts_and_shared };

const LayerKind& decoder_kind(Attending attending, Transforming transforming);

}  // namespace hocket
