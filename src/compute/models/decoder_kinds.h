// The kinds of layers of ordinary decoders: each has a mixer and a feed-forward part. A model maps
// its layers to them; another kind of layer needs another table like theirs.
#pragma once

#include "compute/models/layer.h"

namespace hocket {

enum class Mixer : uint8_t { gqa, mla, delta_net };
enum class FeedForward : uint8_t { dense, experts, experts_and_shared };

const LayerKind& decoder_kind(Mixer mixer, FeedForward feed_forward);

}  // namespace hocket
