// Models for tests of dispatchers.
#pragma once

#include "core/model_config.h"

namespace hocket {

// Returns a model of one MoE layer; everything else is as small as possible.
inline ModelConfig one_moe_layer(int num_experts, int top_k, int hidden_size) {
  ModelConfig model;
  model.vocab_size = 16;
  model.hidden_size = hidden_size;
  model.num_layers = 1;
  model.num_heads = model.num_kv_heads = 1;
  model.head_dim = model.rope.rotary_dim = 32;
  model.moe = {.num_experts = num_experts, .top_k = top_k, .intermediate_size = 32};
  model.layer_is_moe = {true};
  return model;
}

}  // namespace hocket
