// Fuzzes the JSON files of a model folder: config.json, hf_quant_config.json,
// generation_config.json. Any bytes give a model or an error message. The sizes of an accepted
// model agree with each other, and their products do not overflow.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "base/check.h"
#include "compute/kernels/combine.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/quant_config.h"

namespace {

void check_modelopt(std::string_view json) {
  const auto quant = hocket::parse_modelopt_config(json);
  if (!quant) {
    HOCKET_CHECK(!quant.error().message.empty());
    return;
  }
  using Layout = hocket::QuantConfig::Layout;
  HOCKET_CHECK((quant->layout == Layout::none || quant->layout == Layout::nvfp4));
  hocket::is_quantized(*quant, "model.layers.1.mlp.experts.7.gate_proj");
}

void check_generation(std::string_view json) {
  const auto file = hocket::parse_generation_config(json);
  if (!file) {
    HOCKET_CHECK(!file.error().message.empty());
    return;
  }
  for (const int64_t id : file->eos_ids) HOCKET_CHECK(id >= 0);
  const hocket::GenerationDefaults& defaults = file->defaults;
  for (const auto& number :
       {defaults.temperature, defaults.top_p, defaults.min_p, defaults.repetition_penalty})
    HOCKET_CHECK((!number || (std::isfinite(*number) && *number >= 0)));
  HOCKET_CHECK((!defaults.top_k || *defaults.top_k >= -1));
}

// Checks the layers that see near keys only, which have heads of their own. A module for
// multi-token prediction may be such a layer where no other is.
void check_windows(const hocket::ModelConfig& model) {
  const hocket::AttentionConfig& local = model.local;
  const hocket::VisibleKeys& visible = local.visible;
  HOCKET_CHECK((visible.window >= 0 && visible.chunk >= 0));
  HOCKET_CHECK((visible.window == 0 || visible.chunk == 0));
  const int last = model.max_position_embeddings - 1;
  const int first = visible.first_key(last);
  HOCKET_CHECK((first >= 0 && first <= last));
  HOCKET_CHECK((!visible.bounded() || last - first < visible.max_keys()));
  if (std::ranges::count(model.layer_is_local, true) == 0 && !model.local_mtp) return;
  HOCKET_CHECK(local.num_kv_heads > 0);
  HOCKET_CHECK(local.num_heads % local.num_kv_heads == 0);
  HOCKET_CHECK((local.key_dim > 0 && local.value_dim > 0));
}

// Checks the limits of activations: none, or one for each layer.
void check_limits(const hocket::ModelConfig& model) {
  using Kind = hocket::Activation::Kind;
  for (const auto* limits : {&model.moe.limits, &model.moe.shared_limits}) {
    HOCKET_CHECK((limits->empty() || std::ssize(*limits) >= model.num_layers));
    for (const float limit : *limits) HOCKET_CHECK((std::isfinite(limit) && limit >= 0));
  }
  for (const hocket::Activation& of : {model.moe.activation, model.moe.shared_activation})
    if (of.kind == Kind::limited_silu || of.kind == Kind::limited_gate) HOCKET_CHECK(of.limit > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  check_modelopt(json);
  check_generation(json);
  const auto model = hocket::parse_hf_config(json);
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
  HOCKET_CHECK(moe.top_k <= hocket::kMaxSlots);
  HOCKET_CHECK(moe.num_groups >= 1);
  HOCKET_CHECK(moe.num_experts % moe.num_groups == 0);
  HOCKET_CHECK(moe.num_experts / moe.num_groups * moe.top_groups >= moe.top_k);
  if (std::ranges::count(model->layer_is_moe, true) > 0) {
    HOCKET_CHECK(moe.top_k > 0);
    HOCKET_CHECK(moe.intermediate_size > 0);
  }
  check_windows(*model);
  check_limits(*model);
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
  for (const auto& ids : {model->eos_ids, model->placeholder_ids})
    for (const hocket::TokenId id : ids)
      HOCKET_CHECK((value(id) >= 0 && value(id) < model->vocab_size));
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
