// The mixers of decoders: the part of a layer that mixes a token with those before it. Each kind is
// one row of a table, with the same functions.
//
// Two more things differ among kinds, in rooms that know no layer. Their memory follows from the
// config: kv_shapes_apart() (forward/work_buffers.h) for keys and values, of layers with a window
// apart, and delta_shape_of() for states. Their cost follows from their weights
// (engine/plan/cost.h). A window is no kind of its own: grouped-query attention reads
// LayerCall::windowed.
#pragma once

#include <span>
#include <string>

#include "compute/models/family.h"
#include "compute/models/layer.h"

namespace hocket {

// The layer whose weights are loaded. `prefix` is before the names of its tensors.
struct LayerSource {
  const ModelConfig& model;
  const TensorNames& names;
  int layer;
  const std::string& prefix;
  WeightLoader& loader;
};

struct Mixer {
  // Returns true if the layer is of this kind. Rows are asked from the first on, so it may also
  // return true for layers of the rows above it.
  bool (*matches)(const ModelConfig& model, int layer);
  // Asks the loader for the layer's weights, its first norm included. Errors stay in the loader.
  void (*load)(const LayerSource& from, LayerWeights& out);
  OpFn in;    // Op::attn_in: the norm, and the projections
  OpFn core;  // Op::attn_core: the mixing, the projection of its result, and the residual
};

// Returns the table.   Thread: any.
std::span<const Mixer> mixers();
// Returns the row of a layer.   Thread: any.
const Mixer& mixer_of(const ModelConfig& model, int layer);

}  // namespace hocket
