#include "engine/plan/stage_estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"
#include "compute/moe/combine_nodes.h"

namespace hocket {
namespace {

// Returns the time of a layer: of its operations, attention as in the mean layer, and of the link.
double sum(const StageTimes& times, const LayerCounts& layers) {
  double all = times.dispatch.busy_us + times.combine.busy_us + times.mean_attention(layers);
  for (size_t op = 0; op < kNumOps; ++op)
    if (!is_attention(static_cast<Op>(op))) all += times.compute[op];
  return all;
}

// Returns the mean number of sums that are returned for a row, over rows that choose their experts
// by chance: the same rows for every call. Each node that a rank can send of a row is one sum.
double mean_sums(const Placement& placement, int num_groups, int top_k) {
  constexpr int kSampledRows = 2048;
  const std::vector<int32_t> leaves = combine_leaves(placement.num_experts(), num_groups);
  std::minstd_rand random(1);
  std::vector<int> experts(static_cast<size_t>(placement.num_experts()));
  std::iota(experts.begin(), experts.end(), 0);
  std::set<int32_t> nodes;
  int64_t sums = 0;
  for (int row = 0; row < kSampledRows; ++row) {
    for (size_t s = 0; s < static_cast<size_t>(top_k); ++s)
      std::swap(experts[s], experts[s + random() % (experts.size() - s)]);
    nodes.clear();
    for (int s = 0; s < top_k; ++s) {
      const int rank = placement.rank_of(experts[s]);
      nodes.insert(sent_node(leaves[experts[s]], top_k, [&](int other) {
        return placement.rank_of(experts[other]) != rank ? leaves[experts[other]] : -1;
      }));
    }
    sums += std::ssize(nodes);
  }
  return static_cast<double>(sums) / kSampledRows;
}

}  // namespace

StageEstimate::StageEstimate(const ModelChoice& choice, const ModelCost& cost,
                             const StageEstimateInput& input)
    : cost_(cost), model_(choice.model), input_(input), prompt_form_(choice.prompt_form) {
  layers_.num_moe = static_cast<int>(std::ranges::count(model_.layer_is_moe, true));
  layers_.num_dense = model_.num_layers - layers_.num_moe;
  layers_.has_shared = model_.moe.shared_intermediate_size > 0;
  layers_.kinds = layer_kinds(model_);
  if (const int experts = model_.moe.num_experts; experts > 0) {
    // Groups that are too few for the ranks count as one an expert, as choose_model_form()
    // would have it.
    const int ranks = std::min(input.num_ranks, experts);
    const int groups = choice.combine_groups >= ranks ? choice.combine_groups : experts;
    const Placement placement = *Placement::contiguous(experts, ranks, groups);
    results_a_row_ = mean_sums(placement, groups, model_.moe.top_k);
    fullest_share_ = static_cast<double>(placement.max_experts()) / experts;
  }
  const WeightPart head = model_.tie_word_embeddings ? WeightPart::embedding : WeightPart::head;
  head_bytes_ = static_cast<double>(cost_.part(head).bytes);
  const int64_t row = round_up(model_.hidden_size, kBlockK) * size_of(choice.dtype);
  const auto bytes_of = [&](DType dtype) {
    return static_cast<double>(dtype == DType::int8 ? quantized_columns(model_.hidden_size) : row);
  };
  sent_row_ = bytes_of(choice.dispatch_dtype);
  result_row_ = bytes_of(choice.combine_dtype);
  lists_ = model_.moe.top_k * static_cast<double>(sizeof(int32_t) + sizeof(float));
}

PassShape StageEstimate::pass_of(const Bucket& bucket) const {
  const double rows = bucket.rows;
  const auto pairs = static_cast<double>(bucket.kv_tokens);
  if (bucket.phase == Phase::decode)
    return {.rows = rows,
            .sequences = rows,
            .kv_tokens = pairs,
            .pairs = pairs,
            .outputs = rows,
            .form = MlaForm::absorbed};
  // Rows of a chunk after c others attend to c + 1, ... c + rows keys.
  const double context = std::max(0.0, pairs / std::max(1.0, rows) - 0.5 * (rows + 1));
  return {.rows = rows,
          .sequences = rows > 0 ? 1.0 : 0.0,
          .kv_tokens = context + rows,
          .pairs = pairs,
          .outputs = rows > 0 ? 1.0 : 0.0,
          .form = prompt_form_};
}

double StageEstimate::us(double bytes, const Operations& operations) const {
  return 1e6 * ModelCost::seconds(bytes, operations, input_.speed);
}

double StageEstimate::stage_us(const StageSize& size, double rows, int layers, double hit) const {
  if (layers == 0 || size.bytes == 0) return 0;
  return kLaunchUs +
         us(hit * size.bytes / layers, {.floats = rows * size.of_row.floats / layers,
                                        .fp8 = rows * size.of_row.fp8 / layers,
                                        .integers = rows * size.of_row.integers / layers});
}

double StageEstimate::probability_of_part(double size) const {
  const double experts = model_.moe.num_experts;
  double none = 1;
  for (int i = 0; i < model_.moe.top_k; ++i)
    none *= std::max(0.0, experts - size - i) / (experts - i);
  return 1 - none;
}

StageBytes StageEstimate::bytes(const Bucket& bucket) const {
  const int ranks = input_.num_ranks;
  if (ranks < 2 || layers_.num_moe == 0) return {};
  const double away = static_cast<double>(ranks - 1) / ranks * bucket.rows;
  const double copies =
      ranks * probability_of_part(static_cast<double>(model_.moe.num_experts) / ranks);
  return {.dispatch = away * copies * (sent_row_ + lists_),
          .combine = away * results_a_row_ * result_row_};
}

StageBytes StageEstimate::bytes_in_parts(const Bucket& bucket) const {
  const int ranks = input_.num_ranks;
  if (bucket.phase == Phase::prefill || ranks < 2 || layers_.num_moe == 0) return bytes(bucket);
  const double copies = static_cast<double>(ranks - 1) / ranks * bucket.rows * model_.moe.top_k;
  return {.dispatch = copies * sent_row_, .combine = copies * result_row_};
}

// core_s_per_gb is for a GB out and a GB in, so one direction takes half.
double StageEstimate::moving_us(double bytes) const {
  return bytes * input_.link.core_s_per_gb * 1e-9 * 1e6 / 2;
}

TransferTime StageEstimate::transfer(double bytes) const {
  const StageLink& link = input_.link;
  const double busy = link.gbit_per_s > 0 ? bytes * 8e-3 / link.gbit_per_s : copy_us(bytes);
  return {.busy_us = busy, .latency_us = link.latency_us};
}

// The two starts pack rows that leave; the waits put rows into their experts' places and add up
// results.
void StageEstimate::add_exchange(const Bucket& bucket, StageTimes& times) const {
  const double rows = bucket.rows;
  const double expert_rows = rows * model_.moe.top_k;  // rows that arrive from all ranks
  const StageBytes sent = bytes(bucket);
  const int others = input_.num_ranks - 1;
  const StageBytes in_parts = bytes_in_parts(bucket);
  const double messages = kMessageUs * others;
  times.of(Op::dispatch_start) = messages + copy_us(sent.dispatch) + moving_us(sent.dispatch);
  times.of(Op::dispatch_wait) =
      messages + kLaunchUs + copy_us(expert_rows * sent_row_) + moving_us(sent.dispatch);
  times.of(Op::combine_start) =
      messages + kLaunchUs + moving_us(sent.combine) + copy_us(expert_rows * result_row_);
  times.of(Op::combine_wait) =
      messages + kLaunchUs + copy_us(rows * results_a_row_ * result_row_) + moving_us(sent.combine);
  if (others == 0) return;
  times.dispatch = transfer(sent.dispatch);
  times.combine = transfer(sent.combine);
  times.dispatch.spread = sent.dispatch > 0 ? in_parts.dispatch / sent.dispatch : 1;
  times.combine.spread = sent.combine > 0 ? in_parts.combine / sent.combine : 1;
  // The cores move the bytes that several parts add out and in.
  const double more_us =
      2 * moving_us(in_parts.dispatch + in_parts.combine - sent.dispatch - sent.combine);
  times.spread_us = std::max(more_us, 0.0);
  times.part_us = 4 * messages + 2 * kLaunchUs;
  times.wave_us = 2 * messages + 2 * kLaunchUs;
}

void StageEstimate::add_attention(const PassShape& pass, int number, StageTimes& times) const {
  const AttentionKind kind = layers_.kinds.kind(number);
  const int layers = layers_.count({Op::attn_core, number});
  Operations keys = cost_.attention_operations(pass, kind);
  keys.floats /= layers, keys.probabilities /= layers;
  const auto stage = [&](Op op) { return stage_us(cost_.attention(op, kind), pass.rows, layers); };
  times.of(Op::attn_in, number) = stage(Op::attn_in);
  times.of(Op::attn_core, number) =
      stage(Op::attn_core) + us(cost_.kv_bytes(pass, kind) / layers, keys);
}

StageTimes StageEstimate::at(const Bucket& bucket) const {
  StageTimes times;
  if (bucket.rows <= 0) return times;
  const double rows = bucket.rows;
  const PassShape pass = pass_of(bucket);
  for (int number = 0; number < layers_.kinds.num(); ++number) add_attention(pass, number, times);
  const auto stage = [&](Op op, int layers) { return stage_us(cost_.stage(op), rows, layers); };
  times.of(Op::mlp) = stage(Op::mlp, layers_.num_dense);
  if (layers_.num_moe == 0) return times;
  times.of(Op::gate) = stage(Op::gate, layers_.num_moe);
  times.of(Op::shared) = stage(Op::shared, layers_.num_moe);
  times.of(Op::experts) = experts_us(rows);
  add_exchange(bucket, times);
  times.up_first = bucket.phase == Phase::prefill;
  // A part of a prefill is a part of its rows, and each part reads the experts that it hits. Each
  // wave reads their down projections, a third of them.
  if (bucket.phase == Phase::prefill && times.part_us > 0) {
    const double again_us = std::max(2 * experts_us(rows / 2) - times.of(Op::experts), 0.0);
    times.part_us += again_us, times.wave_us += again_us / 3;
  }
  return times;
}

// The rows of all ranks hit the experts of one rank. The step waits for the rank with most experts.
double StageEstimate::experts_us(double rows) const {
  const double chosen = static_cast<double>(model_.moe.top_k) / model_.moe.num_experts;
  const double hit = 1 - std::pow(1 - chosen, rows * input_.num_ranks);
  return stage_us(cost_.stage(Op::experts), rows * input_.num_ranks * fullest_share_,
                  layers_.num_moe, hit * fullest_share_);
}

double StageEstimate::other_us(const Bucket& bucket) const {
  const PassShape pass = pass_of(bucket);
  if (pass.outputs == 0) return 0;
  return us(head_bytes_, cost_.head_operations(pass));
}

LayerCounts StageEstimate::layers(const Bucket& bucket) const {
  LayerCounts layers = layers_;
  layers.other_us = other_us(bucket);
  return layers;
}

double keys_per_row(const StageModel& model, const Bucket& bucket, const LayerCounts& layers) {
  constexpr double kMax = 1e6;
  if (bucket.rows < 2 || bucket.kv_tokens < 2) return kMax;
  Bucket fewer_rows = bucket, fewer_keys = bucket;
  fewer_rows.rows /= 2;
  fewer_keys.kv_tokens /= 2;
  const double all = sum(model.at(bucket), layers);
  const double a_row = (all - sum(model.at(fewer_rows), layers)) / (bucket.rows - fewer_rows.rows);
  const double a_key = (all - sum(model.at(fewer_keys), layers)) /
                       static_cast<double>(bucket.kv_tokens - fewer_keys.kv_tokens);
  if (a_key <= 0 || a_row >= kMax * a_key) return kMax;
  return std::max(1.0, a_row / a_key);
}

}  // namespace hocket
