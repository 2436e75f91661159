#include "compute/forward/work_buffers.h"

#include <algorithm>

#include "compute/kernels/quantized_rows.h"

namespace hocket {
namespace {

View<float> floats(Layout& layout, int64_t rows, int64_t cols) {
  return layout.matrix(DType::f32, rows, cols).as<float>();
}

View<int32_t> ints(Layout& layout, int64_t rows, int64_t cols) {
  return {layout.array<int32_t>(rows * cols), rows, cols};
}

KvShape latent_shape_of(const MlaConfig& mla, DType dtype, int page_tokens) {
  return {.kind = KvShape::Kind::latent,
          .dtype = dtype,
          .num_heads = 1,
          .key_dim = mla.kv_rank + mla.rope_dim,
          .value_dim = mla.kv_rank,
          .page_tokens = page_tokens};
}

KvShape shape_of_layer(const ModelConfig& model, int layer, DType dtype, int page_tokens) {
  return model.mla.kv_rank > 0 ? latent_shape_of(model.mla, dtype, page_tokens)
                               : kv_shape_of(model.attention(layer), dtype, page_tokens);
}

// Returns the columns that the queries of one kind of attention take.
int64_t padded_query_columns(const AttentionConfig& attention) {
  return attention.num_heads * round_up(attention.key_dim, kBlockK);
}

}  // namespace

int qkv_columns(const ModelConfig& model) {
  const MlaConfig& mla = model.mla;
  const int delta = model.delta_net.channels() + model.delta_net.value_columns();
  if (mla.kv_rank == 0) {
    const auto columns = [&](const AttentionConfig& a) {
      return a.num_heads * model.query_columns(a.key_dim) +
             a.num_kv_heads * (a.key_dim + a.value_dim);
    };
    return std::max({columns(model.far_attention()), columns(model.local), delta});
  }
  const int q = mla.q_rank > 0 ? mla.q_rank : model.num_heads * model.head_dim;
  return std::max(q + mla.kv_rank + mla.rope_dim, delta);
}

int attended_columns(const ModelConfig& model) {
  if (model.mla.kv_rank > 0) return model.num_heads * model.mla.value_dim;
  const AttentionConfig far = model.far_attention();
  return std::max(far.num_heads * far.value_dim, model.local.num_heads * model.local.value_dim);
}

KvShape kv_shape_of(const AttentionConfig& attention, DType dtype, int page_tokens) {
  return {.dtype = dtype,
          .num_heads = attention.num_kv_heads,
          .key_dim = attention.key_dim,
          .value_dim = attention.value_dim,
          .page_tokens = page_tokens};
}

KvShapes kv_shapes_apart(const ModelConfig& model, DType dtype, int page_tokens) {
  KvShapes shapes;
  for (int layer = 0; layer < model.num_layers; ++layer)
    if (!model.is_linear(layer))
      (model.is_windowed(layer) ? shapes.windowed : shapes.full)
          .push_back(shape_of_layer(model, layer, dtype, page_tokens));
  if (model.num_mtp_loaded > 0)
    shapes.full.insert(shapes.full.end(), static_cast<size_t>(model.num_mtp_loaded),
                       shape_of_layer(model.mtp_module(), 0, dtype, page_tokens));
  return shapes;
}

void set_attention_need(const ModelConfig& model, DType kv_dtype, int page_tokens,
                        ScratchNeed& need) {
  need.mla = model.mla;
  need.num_heads = model.num_heads;
  need.kv = model.mla.kv_rank > 0 ? latent_shape_of(model.mla, kv_dtype, page_tokens)
                                  : kv_shape_of(model.far_attention(), kv_dtype, page_tokens);
  need.local_heads = model.local.num_heads;
  need.local_kv = kv_shape_of(model.local, kv_dtype, page_tokens);
}

DeltaShape delta_shape_of(const ModelConfig& model, DType dtype, int undone_rows) {
  return {.net = model.delta_net, .dtype = dtype, .undone_rows = undone_rows};
}

void WorkBuffers::lay_out_attention(const ModelConfig& model, DType dtype, Layout& layout) {
  const int rows = limits.max_rows;
  const int heads = model.num_heads;
  cos = floats(layout, rows, model.rope.rotary_dim / 2);
  sin = floats(layout, rows, model.rope.rotary_dim / 2);
  if (model.local.num_heads > 0) {
    local_cos = floats(layout, rows, model.local_rope.rotary_dim / 2);
    local_sin = floats(layout, rows, model.local_rope.rotary_dim / 2);
  }
  if (model.rope.query_beta > 0) query_factors = floats(layout, rows, 1);
  qkv = floats(layout, rows, qkv_columns(model));
  q = layout.matrix(
      dtype, rows,
      std::max(padded_query_columns(model.far_attention()), padded_query_columns(model.local)));
  attended = layout.operand(dtype, rows, attended_columns(model));
  if (model.head_gates)
    head_gates = floats(layout, rows, std::max(model.num_heads, model.local.num_heads));
  if (model.num_linear_layers() > 0) {
    const DeltaNetConfig& net = model.delta_net;
    delta_gates =
        floats(layout, rows, net.gate_columns() + (net.channel_decay ? 2 * net.key_dim : 0));
    if (net.channel_decay) delta_narrow = layout.operand(dtype, rows, net.key_dim);
    delta_out = layout.operand(dtype, rows, net.value_columns());
  }
  if (model.mla.q_rank > 0) {
    q_latent = layout.operand(dtype, rows, model.mla.q_rank);
    q_heads = floats(layout, rows, heads * model.head_dim);
  }
  if (model.mla.kv_rank > 0) {
    const KvShape kv = latent_shape_of(model.mla, dtype, kBlockK);
    q_absorbed = layout.matrix(dtype, rows, heads * kv.row_elements());
    y_absorbed = layout.matrix(dtype, rows, heads * kv.rope_offset());
  }
}

void WorkBuffers::lay_out(const ModelConfig& model, DType dtype, Layout& layout) {
  const int rows = limits.max_rows;
  // Rows that may travel to other ranks lie one after another.
  const auto travelling = [&](int64_t cols) {
    return limits.exchange.num_ranks > 0 ? layout.matrix(dtype, rows, cols)
                                         : layout.operand(dtype, rows, cols);
  };
  residual = floats(layout, rows, model.hidden_size);
  if (model.num_mtp_loaded > 0) joined = layout.operand(dtype, rows, 2 * model.hidden_size);
  if (model.local_mtp && model.num_mtp_loaded > 1)
    model_rows = floats(layout, rows + limits.max_kept_rows, model.hidden_size);
  normed = travelling(model.hidden_size);
  results = residual;
  if (model.result_norms) {
    results = floats(layout, rows, model.hidden_size);
    shared_normed = layout.operand(dtype, rows, model.hidden_size);
  }
  lay_out_attention(model, dtype, layout);
  const auto any = [&](bool moe) {
    const bool in_module = model.num_mtp_loaded > 0 && model.mtp_module().layer_is_moe[0] == moe;
    return in_module || std::ranges::count(model.layer_is_moe, moe) > 0;
  };
  const bool any_moe = any(true), any_dense = any(false);
  int64_t middle_elements = 0;
  if (any_dense) {
    mlp_out = floats(layout, rows, model.hidden_size);
    middle_elements = rows * operand_stride(dtype, model.intermediate_size);
  }
  if (any_moe) {
    const int top_k = model.moe.top_k;
    gate_logits = floats(layout, rows, model.moe.num_experts);
    expert_ids = ints(layout, rows, top_k);
    expert_position = ints(layout, rows, top_k);
    expert_weights = {layout.array<float>(int64_t{rows} * top_k), rows, top_k};
    if (model.moe.weighted_inputs) weighted = travelling(model.hidden_size);
    leaving = limits.int8_dispatch
                  ? layout.matrix(DType::int8, rows, quantized_columns(model.hidden_size))
              : model.moe.weighted_inputs ? weighted
                                          : normed;
    int64_t expert_rows = int64_t{rows} * top_k;
    if (limits.exchange.num_ranks > 0) {
      exchange.lay_out({.limits = limits.exchange,
                        .dtype = leaving.dtype,
                        .row_columns = leaving.cols,
                        .max_rows = rows,
                        .num_experts = model.moe.num_experts,
                        .top_k = top_k},
                       layout);
      expert_rows = exchange.shape.expert_rows();
    } else {
      sorted_rows = layout.array<int32_t>(expert_rows);
      expert_offsets = layout.array<int32_t>(2 * (model.moe.num_experts + 1));
    }
    expert_x = layout.matrix(dtype, expert_rows, model.hidden_size);
    expert_y = layout.matrix(dtype, expert_rows, model.hidden_size);
    middle_elements =
        std::max(middle_elements, expert_rows * operand_stride(dtype, model.moe.intermediate_size));
    if (const int shared = model.moe.shared_intermediate_size; shared > 0) {
      shared_out = floats(layout, rows, model.hidden_size);
      if (model.moe.shared_gate) shared_gates = floats(layout, rows, 1);
      middle_elements = std::max(middle_elements, rows * operand_stride(dtype, shared));
    }
  }
  middle = layout.matrix(dtype, 1, middle_elements);
  output_residual = floats(layout, limits.max_output_rows, model.hidden_size);
  hidden = layout.operand(dtype, limits.max_output_rows, model.hidden_size);
  logits = floats(layout, limits.max_logits_rows, model.vocab_size);
}

int64_t WorkBuffers::bytes_for(const ModelConfig& model, DType dtype, WorkLimits limits) {
  WorkBuffers measured;
  measured.limits = limits;
  Layout layout;
  measured.lay_out(model, dtype, layout);
  return layout.bytes();
}

Result<WorkBuffers> WorkBuffers::create(const ModelConfig& model, DType dtype, WorkLimits limits) {
  WorkBuffers made;
  made.limits = limits;
  HOCKET_TRY(made.memory_, Buffer::allocate(bytes_for(model, dtype, limits)));
  Layout layout(made.memory_.data());
  made.lay_out(model, dtype, layout);
  return made;
}

MatrixView WorkBuffers::middle_rows(int64_t begin, int64_t count, int intermediate) const {
  const int64_t stride = operand_stride(middle.dtype, intermediate);
  HOCKET_CHECK((begin + count) * stride <= middle.cols);
  return {static_cast<std::byte*>(middle.data) + begin * stride * size_of(middle.dtype),
          middle.dtype, count, intermediate, stride};
}

}  // namespace hocket
