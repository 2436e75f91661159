// config.json: whatever the bytes, an answer; and what is accepted is a model whose sizes can be
// multiplied.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "compute/weights/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model =
      hocket::parse_hf_config(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!model) {
    HOCKET_CHECK(!model.error().message.empty());
    return 0;
  }
  HOCKET_CHECK(model->vocab_size > 0);
  HOCKET_CHECK(model->num_heads % model->num_kv_heads == 0);
  HOCKET_CHECK(model->rope.rotary_dim >= 2);
  HOCKET_CHECK(model->rope.rotary_dim <= model->head_dim);
  HOCKET_CHECK(static_cast<int>(model->layer_is_moe.size()) == model->num_layers);
  HOCKET_CHECK(model->moe.top_k <= model->moe.num_experts);
  for (const hocket::TokenId id : model->eos_ids) HOCKET_CHECK(value(id) < model->vocab_size);
  int64_t bytes = 4;
  for (const int64_t factor :
       {model->num_layers, 3 * model->hidden_size, model->moe.num_experts + 1,
        std::max(model->intermediate_size, model->moe.intermediate_size) + 1})
    HOCKET_CHECK(!__builtin_mul_overflow(bytes, factor, &bytes));
  return 0;
}
