// Fuzzes config.json. Any bytes give a model or an error message. The sizes of an accepted model
// agree with each other, and their products do not overflow.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/check.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/quant_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model =
      hocket::parse_hf_config(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!model) {
    HOCKET_CHECK(!model.error().message.empty());
    return 0;
  }
  HOCKET_CHECK(model->vocab_size > 0);
  HOCKET_CHECK(model->num_heads % model->num_kv_heads == 0);
  for (const hocket::RopeConfig* rope : {&model->rope, &model->local_rope}) {
    HOCKET_CHECK((rope->rotary_dim >= 0 && rope->rotary_dim % 2 == 0));
    HOCKET_CHECK(rope->turning_dim <= rope->rotary_dim);
  }
  HOCKET_CHECK(model->rope.rotary_dim <= model->head_dim);
  HOCKET_CHECK(model->local_rope.rotary_dim <= model->local.key_dim);
  HOCKET_CHECK(static_cast<int>(model->layer_is_moe.size()) == model->num_layers);
  const hocket::MoeConfig& moe = model->moe;
  HOCKET_CHECK(moe.top_k <= moe.num_experts);
  HOCKET_CHECK(moe.num_groups >= 1);
  HOCKET_CHECK(moe.num_experts % moe.num_groups == 0);
  HOCKET_CHECK(moe.num_experts / moe.num_groups * moe.top_groups >= moe.top_k);
  if (std::ranges::count(model->layer_is_moe, true) > 0) {
    HOCKET_CHECK(moe.top_k > 0);
    HOCKET_CHECK(moe.intermediate_size > 0);
  }
  const hocket::MlaConfig& mla = model->mla;
  if (mla.kv_rank > 0) {
    HOCKET_CHECK(mla.nope_dim + mla.rope_dim == model->head_dim);
    HOCKET_CHECK(mla.value_dim > 0);
  }
  for (const auto& of_layers : {model->layer_is_local, model->layer_is_linear})
    HOCKET_CHECK((of_layers.empty() || static_cast<int>(of_layers.size()) == model->num_layers));
  HOCKET_CHECK(model->num_kv_layers() > 0);
  const hocket::DeltaNetConfig& net = model->delta_net;
  if (model->num_linear_layers() > 0) {
    HOCKET_CHECK(net.num_key_heads > 0);
    HOCKET_CHECK(net.num_value_heads % net.num_key_heads == 0);
    HOCKET_CHECK((net.key_dim > 0 && net.value_dim > 0));
  }
  HOCKET_CHECK(model->softmax_scale > 0);
  HOCKET_CHECK(std::isfinite(model->softmax_scale));
  hocket::is_quantized(model->quant, "model.layers.1.mlp.experts.7.gate_proj");
  for (const hocket::TokenId id : model->eos_ids) HOCKET_CHECK(value(id) < model->vocab_size);
  const auto check_product = [](std::initializer_list<int64_t> factors) {
    int64_t bytes = 4;
    for (const int64_t factor : factors)
      HOCKET_CHECK(!__builtin_mul_overflow(bytes, factor, &bytes));
  };
  const int widest =
      std::max({model->intermediate_size, moe.intermediate_size, moe.shared_intermediate_size}) + 1;
  check_product({model->num_layers, 3 * model->hidden_size, moe.num_experts + 1, widest});
  check_product({model->num_layers, model->num_heads, model->head_dim + mla.value_dim,
                 model->hidden_size + mla.q_rank + mla.kv_rank});
  return 0;
}
