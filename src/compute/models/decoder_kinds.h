// The kinds of layers of ordinary decoders: each has a mixer and a feed-forward part. A model maps
// its layers to them; another kind of layer needs another table like theirs.
#pragma once

#include "compute/models/layer.h"
#include "compute/models/mixers.h"

namespace hocket {

enum class FeedForward : uint8_t { dense, experts, experts_and_shared };

// Returns the kind with a mixer of mixers(). It lives as long as the program.   Thread: any.
const LayerKind& decoder_kind(const Mixer& mixer, FeedForward feed_forward);

}  // namespace hocket
