#include "engine/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compute/kernels/delta_net.h"

namespace hocket {
namespace {

// Number of prompt rows for which a latent's keys are expanded once
// (compute/kernels/attention_run.h).
constexpr double kRowsOfAnExpansion = 1024;

}  // namespace

std::string_view weight_part_name(WeightPart part) {
  static constexpr std::array<std::string_view, kNumWeightParts> kNames = {
      "embedding", "attention", "dense_mlp", "experts", "shared_experts", "gate", "head", "norms"};
  return kNames[static_cast<size_t>(part)];
}

LayerKinds layer_kinds(const ModelConfig& model) {
  std::vector<AttentionKind> kinds(static_cast<size_t>(model.num_layers), AttentionKind::full);
  for (int i = 0; i < model.num_layers; ++i) {
    AttentionKind& kind = kinds[static_cast<size_t>(i)];
    if (model.is_linear(i)) {
      kind = AttentionKind::linear;
    } else if (model.is_local(i)) {
      kind = AttentionKind::window;
    } else if (model.mla.kv_rank > 0) {
      kind = AttentionKind::latent;
    }
  }
  return LayerKinds(kinds);
}

Result<ModelCost> ModelCost::measure(const ModelChoice& choice) {
  const ModelConfig& model = choice.model;
  HOCKET_TRY(const ModelFamily* family, find_family(model.architecture));
  ModelCost cost;
  cost.model_ = model;
  cost.kinds_ = layer_kinds(model);
  cost.prompt_form_ = choice.prompt_form;
  cost.num_moe_layers_ = static_cast<int>(std::ranges::count(model.layer_is_moe, true));
  constexpr int kTokens = 32;
  cost.kv_bytes_per_token_ =
      (choice.kv_full_page_bytes(kTokens) + choice.kv_window_page_bytes(kTokens)) / kTokens;
  cost.local_kv_bytes_ = kv_shape_of(model.local, choice.kv_dtype, kTokens).page_bytes() / kTokens *
                         std::ranges::count(model.layer_is_local, true);
  if (choice.kv_dtype == DType::int8) cost.kv_widening_ = 1;

  cost.add_states(choice.dtype);
  WeightLoader loader = WeightLoader::measuring(choice.loader_options());
  const int rows = model.vocab_size, cols = model.hidden_size;
  cost.add_matrix(WeightPart::embedding, loader.embedding(family->embedding_name(), model));
  for (int i = 0; i < model.num_layers; ++i)
    cost.add_layer(family->load_layer(model, family->names, i, all_experts(model), loader),
                   cost.kinds_.kind(cost.kinds_.of(i)));
  loader.vector(family->final_norm_name(), model.hidden_size);
  if (!model.tie_word_embeddings)
    cost.add_matrix(WeightPart::head, loader.head(family->head_name(), rows, cols));
  HOCKET_TRY_VOID(loader.status());
  cost.add_vectors(loader.bytes());
  if (model.num_mtp_layers > 0 && family->mtp != nullptr) {
    HOCKET_TRY(cost.mtp_, measure_mtp(choice, *family));
  }
  return cost;
}

Result<PartSize> ModelCost::measure_mtp(const ModelChoice& choice, const ModelFamily& family) {
  const ModelConfig& model = choice.model;
  const int modules = model.num_mtp_loaded > 0 ? model.num_mtp_loaded : model.num_mtp_layers;
  ModelCost cost;
  cost.model_ = model.mtp_module();
  cost.kinds_ = layer_kinds(cost.model_);
  WeightLoader loader = WeightLoader::measuring(choice.loader_options());
  for (int i = 0; i < modules; ++i) {
    const MtpModule module = load_mtp_module(model, family, i, all_experts(model), loader);
    cost.add_layer(module.layer, cost.kinds_.kind(0));
    cost.add_matrix(WeightPart::attention, module.join.projection);
  }
  HOCKET_TRY_VOID(loader.status());
  cost.add_vectors(loader.bytes());
  const bool routed = cost.model_.layer_is_moe[0];
  return PartSize{cost.weight_bytes(), cost.parameters(),
                  cost.part(routed ? WeightPart::experts : WeightPart::dense_mlp).format};
}

void ModelCost::add(WeightPart part, const PackedWeight& weight, int64_t parameters) {
  if (weight.n == 0) return;
  PartSize& size = at(part);
  if (size.bytes == 0)
    size.format = weight.format;
  else if (size.format != weight.format)
    size.format.reset();
  size.bytes += weight.bytes();
  size.parameters += parameters;
}

void ModelCost::add_row_operations(Operations& of_row, const PackedWeight& weight,
                                   double parameters) {
  if (weight.n == 0) return;
  switch (weight.format) {
    case WeightFormat::bf16:
    case WeightFormat::f32:
      of_row.floats += 2 * parameters;
      break;
    case WeightFormat::fp8:
    case WeightFormat::mxfp4:
    case WeightFormat::mxfp8:
    case WeightFormat::nvfp4:
      of_row.fp8 += 2 * parameters;
      break;
    default:
      HOCKET_CHECK(is_integer(weight.format));
      of_row.integers += 2 * parameters;
      break;
  }
}

void ModelCost::add_states(DType dtype) {
  const double layers = model_.num_linear_layers();
  if (layers == 0) return;
  const DeltaNetWork work = delta_net_work(delta_shape_of(model_, dtype));
  block_bytes_ = layers * work.block_bytes;
  state_bytes_of_row_ = layers * work.state_bytes_of_row;
  state_operations_of_row_ = layers * work.operations_of_row;
}

void ModelCost::add_matrix(WeightPart part, const PackedWeight& weight) {
  add(part, weight, int64_t{weight.n} * weight.k);
}

void ModelCost::add_stage_matrix(WeightPart part, Op op, const PackedWeight& weight) {
  add_matrix(part, weight);
  add_to(stage_at(op), weight);
}

void ModelCost::add_to(StageSize& stage, const PackedWeight& weight) {
  add_row_operations(stage.of_row, weight, static_cast<double>(weight.n) * weight.k);
  stage.bytes += static_cast<double>(weight.bytes());
}

void ModelCost::add_mlp(WeightPart part, Op op, const ExpertWeights& mlp, int intermediate) {
  const int64_t matrix = int64_t{model_.hidden_size} * intermediate;
  add(part, mlp.gate_up, 2 * matrix);
  add(part, mlp.down, matrix);
  // A row visits top_k of the experts.
  const double visits = part == WeightPart::experts
                            ? static_cast<double>(model_.moe.top_k) / model_.moe.num_experts
                            : 1;
  Operations& of_row = stage_at(op).of_row;
  add_row_operations(of_row, mlp.gate_up, visits * static_cast<double>(2 * matrix));
  add_row_operations(of_row, mlp.down, visits * static_cast<double>(matrix));
  stage_at(op).bytes += static_cast<double>(mlp.gate_up.bytes() + mlp.down.bytes());
}

void ModelCost::add_attention(const LayerWeights& weights, AttentionKind kind) {
  auto& [in, core] = attention_[static_cast<size_t>(kind)];
  const auto add_matrix_of = [&](Op op, const PackedWeight& matrix) {
    add_stage_matrix(WeightPart::attention, op, matrix);
    add_to(op == Op::attn_core ? core : in, matrix);
  };
  for (const PackedWeight& matrix : weights.gqa.qkv) add_matrix_of(Op::attn_in, matrix);
  for (const PackedWeight* matrix :
       {&weights.mla.down, &weights.mla.q_up, &weights.delta.in, &weights.delta.gates,
        &weights.delta.decay_up, &weights.delta.z_up})
    add_matrix_of(Op::attn_in, *matrix);
  for (const PackedWeight* matrix :
       {&weights.gqa.output, &weights.mla.output, &weights.delta.output})
    add_matrix_of(Op::attn_core, *matrix);
  const LatentHeadWeights& heads = weights.mla.heads;
  const int64_t before = part(WeightPart::attention).parameters;
  for (const auto* matrices : {&heads.key_up, &heads.value_up})
    for (const PackedWeight& matrix : *matrices) {
      add_matrix(WeightPart::attention, matrix);
      for (StageSize* size : {&stage_at(Op::attn_core), &core})
        size->bytes += static_cast<double>(matrix.bytes());
    }
  latent_parameters_ += part(WeightPart::attention).parameters - before;
  for (const PackedWeight& matrix : heads.key_absorb) {
    add(WeightPart::attention, matrix, 0);  // key_up again, transposed: a pass reads one of them
    unread_bytes_ += matrix.bytes();
  }
}

void ModelCost::add_layer(const Layer& layer, AttentionKind kind) {
  const LayerWeights& weights = layer.weights;
  add_attention(weights, kind);
  add_mlp(WeightPart::dense_mlp, Op::mlp, weights.mlp.mlp, model_.intermediate_size);
  add_stage_matrix(WeightPart::gate, Op::gate, weights.gate.gate);
  for (const ExpertWeights& expert : weights.experts)
    add_mlp(WeightPart::experts, Op::experts, expert, model_.moe.intermediate_size);
  add_mlp(WeightPart::shared_experts, Op::shared, weights.shared,
          model_.moe.shared_intermediate_size);
  add_stage_matrix(WeightPart::shared_experts, Op::shared, weights.shared_gate);
}

void ModelCost::add_vectors(int64_t all_bytes) {
  PartSize& norms = at(WeightPart::norms);
  norms = {.bytes = all_bytes - weight_bytes(), .format = WeightFormat::f32};
  norms.parameters = norms.bytes / size_of(DType::f32);
}

int64_t ModelCost::weight_bytes() const {
  return std::accumulate(parts_.begin(), parts_.end(), int64_t{0},
                         [](int64_t sum, const PartSize& size) { return sum + size.bytes; });
}

int64_t ModelCost::parameters() const {
  return std::accumulate(parts_.begin(), parts_.end(), int64_t{0},
                         [](int64_t sum, const PartSize& size) { return sum + size.parameters; });
}

int64_t ModelCost::active_parameters() const {
  const int64_t experts = part(WeightPart::experts).parameters;
  int64_t active = parameters() - experts;
  if (experts > 0) active += experts / model_.moe.num_experts * model_.moe.top_k;
  if (!model_.tie_word_embeddings) active -= part(WeightPart::embedding).parameters;
  return active;
}

double ModelCost::expected_experts(double rows) const {
  if (num_moe_layers_ == 0) return 0;
  const double experts = model_.moe.num_experts;
  return num_moe_layers_ * experts * (1 - std::pow(1 - model_.moe.top_k / experts, rows));
}

double ModelCost::bytes(const PassShape& pass) const {
  const PartSize& experts = part(WeightPart::experts);
  const PartSize& embedding = part(WeightPart::embedding);
  const int64_t head = model_.tie_word_embeddings ? embedding.bytes : part(WeightPart::head).bytes;
  const int64_t layers =
      weight_bytes() - embedding.bytes - part(WeightPart::head).bytes - experts.bytes;
  double all = static_cast<double>(layers - unread_bytes_ + (pass.outputs > 0 ? head : 0)) +
               key_bytes_read(pass) + state_bytes(pass);
  if (num_moe_layers_ > 0)
    all += pass.experts_hit * static_cast<double>(experts.bytes) /
           (double{1} * num_moe_layers_ * model_.moe.num_experts);
  return all;
}

double ModelCost::max_local_keys() const {
  return model_.local.visible.max_keys();
}

// A local layer reads the keys of the rows, and those that the first row of each sequence sees.
double ModelCost::local_key_bytes_read(const PassShape& pass) const {
  return std::min(pass.kv_tokens, pass.rows + pass.outputs * max_local_keys()) *
         static_cast<double>(local_kv_bytes_);
}

double ModelCost::key_bytes_read(const PassShape& pass) const {
  return pass.kv_tokens * static_cast<double>(kv_bytes_per_token_ - local_kv_bytes_) +
         local_key_bytes_read(pass);
}

double ModelCost::kv_bytes(const PassShape& pass, AttentionKind kind) const {
  if (kind == AttentionKind::linear) return state_bytes(pass);
  const double local = local_key_bytes_read(pass);
  return (kind == AttentionKind::window ? local : key_bytes_read(pass) - local) *
         (1 + kv_widening_);
}

Operations ModelCost::attention_operations(const PassShape& pass, AttentionKind kind) const {
  // Multiplications of all heads for a query and one of its keys.
  const auto of_heads = [](const AttentionConfig& heads) {
    return double{1} * heads.num_heads * (heads.key_dim + heads.value_dim);
  };
  const auto num_local = static_cast<double>(std::ranges::count(model_.layer_is_local, true));
  const AttentionConfig far = model_.far_attention();
  const double far_pairs = (model_.num_kv_layers() - num_local) * pass.pairs;
  const double near_pairs = num_local * std::min(pass.pairs, pass.rows * max_local_keys());
  const MlaConfig& mla = model_.mla;
  const bool expanded = pass.form == MlaForm::expanded;
  switch (kind) {
    case AttentionKind::full:
      return {.floats = 2 * of_heads(far) * far_pairs, .probabilities = far.num_heads * far_pairs};
    case AttentionKind::window:
      return {.floats = 2 * of_heads(model_.local) * near_pairs,
              .probabilities = model_.local.num_heads * near_pairs};
    case AttentionKind::latent: {
      const double score =
          model_.num_heads * (expanded ? mla.nope_dim + mla.rope_dim + mla.value_dim
                                       : 2.0 * mla.kv_rank + mla.rope_dim);
      const double latent_rows =
          expanded ? std::max(pass.kv_tokens, pass.pairs / kRowsOfAnExpansion) : pass.rows;
      return {
          .floats = 2 * (latent_rows * static_cast<double>(latent_parameters_) + score * far_pairs),
          .probabilities = far.num_heads * far_pairs};
    }
    case AttentionKind::linear:
      break;
  }
  return {.floats = pass.rows * state_operations_of_row_};
}

Operations ModelCost::attention_operations(const PassShape& pass) const {
  Operations all;
  for (int number = 0; number < kinds_.num(); ++number)
    all += attention_operations(pass, kinds_.kind(number));
  return all;
}

Operations ModelCost::head_operations(const PassShape& pass) const {
  const double count =
      2 * pass.outputs * static_cast<double>(part(WeightPart::embedding).parameters);
  if (part(WeightPart::head).format == WeightFormat::int8) return {.integers = count};
  return {.floats = count};
}

Operations ModelCost::operations(const PassShape& pass) const {
  Operations all = head_operations(pass);
  all += attention_operations(pass);
  for (const StageSize& stage : stages_) {
    all.floats += pass.rows * stage.of_row.floats;
    all.fp8 += pass.rows * stage.of_row.fp8;
    all.integers += pass.rows * stage.of_row.integers;
  }
  return all;
}

PassShape ModelCost::decode(double batch, double context) const {
  return {.rows = batch,
          .sequences = batch,
          .experts_hit = expected_experts(batch),
          .kv_tokens = batch * context,
          .pairs = batch * context,
          .outputs = batch,
          .form = MlaForm::absorbed};
}

PassShape ModelCost::prefill(double rows, double context) const {
  return {.rows = rows,
          .sequences = 1,
          .experts_hit = expected_experts(rows),
          .kv_tokens = context + rows,
          .pairs = rows * (context + 0.5 * (rows + 1)),
          .outputs = 1,
          .form = prompt_form_};
}

double ModelCost::seconds(double bytes, const Operations& operations, const MachineSpeed& speed) {
  const double floats = operations.floats + operations.fp8 / kFp8Efficiency +
                        operations.probabilities * kProbabilityOperations;
  double seconds = bytes / speed.read_bytes_per_s + floats / speed.operations_per_s;
  if (operations.integers > 0) seconds += operations.integers / speed.integer_operations_per_s;
  return seconds / kPassEfficiency;
}

}  // namespace hocket
