#include "compute/models/model.h"

#include <optional>

#include "compute/kernels/embedding.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/row_kernels.h"
#include "compute/models/decoder_weights.h"
#include "compute/models/family.h"

namespace hocket {

namespace {

// Refuses a layer whose experts have different formats, since run_experts() takes one for all.
Result<void> check_experts(const Layer& layer, int index, std::span<const int> ids) {
  const auto same = [](const PackedWeight& a, const PackedWeight& b) {
    return a.format == b.format && a.group == b.group;
  };
  const std::vector<ExpertWeights>& experts = layer.weights.experts;
  for (size_t e = 1; e < experts.size(); ++e)
    if (!same(experts[e].gate_up, experts[0].gate_up) || !same(experts[e].down, experts[0].down))
      return fail(error(ErrorCode::unsupported_model,
                        "experts {} and {} of layer {} are stored in different formats: {} and {}",
                        ids[0], ids[e], index, weight_format_name(experts[0].down.format),
                        weight_format_name(experts[e].down.format))
                      .with_fix("a copy of the model whose experts are all quantized alike, or the "
                                "unquantized one with --quantization int8 or int4"));
  return {};
}

int max_shared_layer(const ModelConfig& config) {
  const auto shared = [&](int layer) {
    const AttentionConfig heads = config.attention(layer);
    return config.is_linear(layer) ? 0 : heads.num_heads / heads.num_kv_heads;
  };
  int most = 0;
  for (int layer = 1; layer < config.num_layers; ++layer)
    if (shared(layer) > shared(most)) most = layer;
  return most;
}

std::span<uint32_t> counts_of(View<uint32_t> counts, int layer) {
  if (counts.rows == 0) return {};
  return {counts.row(layer), static_cast<size_t>(counts.cols)};
}

}  // namespace

Result<Model> Model::load(const ModelConfig& config, WeightLoader& loader) {
  return load(config, HeldExperts{all_experts(config)}, loader);
}

Result<Model> Model::load(const ModelConfig& config, const HeldExperts& experts,
                          WeightLoader& loader) {
  HOCKET_TRY(const ModelFamily* family, find_family(config.architecture));
  Model model;
  model.config_ = config;
  model.rope_ = rope_frequencies(config.rope);
  model.local_rope_ = rope_frequencies(config.local_rope);
  model.embedding_ = loader.embedding(family->embedding_name(), config);
  for (int i = 0, num_linear = 0, num_local = 0; i < config.num_layers; ++i) {
    model.layers_.push_back(
        family->load_layer(config, family->names, i, held_in(experts, i), loader));
    model.index_apart_.push_back(config.is_local(i) ? num_local++ : i - num_local - num_linear);
    model.index_of_kind_.push_back(config.is_linear(i) ? num_linear++ : i - num_linear);
  }
  model.planned_layer_ = max_shared_layer(config);
  HOCKET_TRY_VOID(loader.status());
  for (int i = 0; i < config.num_layers; ++i)
    HOCKET_TRY_VOID(check_experts(model.layers_[i], i, held_in(experts, i)));
  model.final_norm_ = loader.vector(family->final_norm_name(), config.hidden_size,
                                    config.centred_norms ? 1.0f : 0.0f);
  model.head_ = config.tie_word_embeddings
                    ? model.embedding_
                    : loader.head(family->head_name(), config.vocab_size, config.hidden_size);
  for (int i = 0; i < config.num_mtp_loaded; ++i)
    model.modules_.push_back(model.module(*family, i, experts, loader));
  HOCKET_TRY_VOID(loader.status());
  for (int i = 0; i < config.num_mtp_loaded; ++i)
    HOCKET_TRY_VOID(check_experts(model.modules_[i].layers_[0], config.num_layers + i,
                                  held_in(experts, config.num_layers + i)));
  return model;
}

ExpertWeights Model::load_expert(const ModelConfig& config, int layer, int expert,
                                 WeightLoader& loader) {
  const Result<const ModelFamily*> family = find_family(config.architecture);
  HOCKET_CHECK(family.has_value());  // the model itself was loaded
  if (layer >= config.num_layers)
    return load_mtp_expert(config, **family, layer - config.num_layers, expert, loader);
  return load_decoder_expert(config, (*family)->names, layer, expert, loader);
}

std::span<const ExpertWeights> Model::experts(int layer) const {
  const auto of = static_cast<size_t>(layer), own = layers_.size();
  return (of < own ? layers_[of] : modules_.at(of - own).layers_.front()).weights.experts;
}

void Model::swap_experts(int layer, std::vector<ExpertWeights>& others) {
  const auto of = static_cast<size_t>(layer), own = layers_.size();
  Layer& mine = of < own ? layers_[of] : modules_.at(of - own).layers_.front();
  HOCKET_CHECK(mine.weights.experts.size() == others.size());
  mine.weights.experts.swap(others);
}

// Its pages are those of the layers that have no window, so it is numbered behind them.
Model Model::module(const ModelFamily& family, int index, const HeldExperts& experts,
                    WeightLoader& loader) const {
  Model module;
  module.config_ = config_.mtp_module();
  module.rope_ = rope_;
  module.local_rope_ = local_rope_;
  module.embedding_ = embedding_;
  module.head_ = head_;
  MtpModule loaded =
      load_mtp_module(config_, family, index, held_in(experts, config_.num_layers + index), loader);
  module.join_ = loaded.join;
  module.layers_.push_back(std::move(loaded.layer));
  module.final_norm_ = loaded.final_norm;
  int number = index;
  for (int i = 0; i < config_.num_layers; ++i)
    number += config_.is_linear(i) || config_.is_windowed(i) ? 0 : 1;
  module.index_of_kind_ = module.index_apart_ = {number};
  return module;
}

Result<void> Model::forward(const ForwardBatch& batch, const Pass& pass) const {
  begin_rows(batch, pass);
  const EmptyHalves empty =
      pass.dispatcher.exchanges() ? EmptyHalves::played : EmptyHalves::passed_over;
  // The thread that drives transfers is worker 0: it moves what arrived while the others compute.
  const auto move = [&] { pass.dispatcher.progress_inside(); };
  std::optional<WorkerPool::LoopCallback> moving;
  if (pass.dispatcher.exchanges()) moving.emplace(pass.backend.workers(), move);
  play({pass.order, config_.num_layers, empty}, pass.halves, [&](int index, Op op, Half& half) {
    const Layer& layer = layers_[index];
    const OpFn run = layer.kind->run[static_cast<size_t>(op)];
    if (run == nullptr) return;
    const bool linear = config_.is_linear(index);
    if (pass.ledger != nullptr)
      pass.ledger->begin_op(index, linear && op == Op::attn_core ? Op::delta_core : op, half.index);
    const int number = index_of_kind_[index];
    run({pass.backend, config_, layer.weights, pass.work,
         linear ? KvLayer() : kv_layer(pass, index),
         linear ? pass.states->layer(number) : DeltaLayer(), pass.dispatcher, index, half,
         counts_of(pass.expert_counts, index), is_apart(pass, index), pass.probe});
    pass.dispatcher.progress();
    if (pass.probe != nullptr) pass.probe->after(index, op, half);
    if (pass.ledger != nullptr) pass.ledger->end_op();
    if (op == layer.kind->graph->ops.back()) HOCKET_CHECK(half.state.empty());
  });
  moving.reset();
  finish_rows(batch, pass);
  return pass.dispatcher.status();
}

void Model::begin_rows(const ForwardBatch& batch, const Pass& pass) const {
  const Ledger::OtherWork other(pass.ledger, "embedding");
  const int rows = batch.num_rows();
  HOCKET_CHECK(rows <= pass.work.limits.max_rows);
  pass.pages.clear_pages(pass.backend.workers(), batch.fresh_pages);
  pass.pages.copy_pages(pass.backend.workers(), batch.copies);
  if (pass.window_pages != nullptr) {
    const bool apart = !batch.window_slots.empty();
    pass.window_pages->clear_pages(pass.backend.workers(),
                                   apart ? batch.fresh_window_pages : batch.fresh_pages);
    pass.window_pages->copy_pages(pass.backend.workers(),
                                  apart ? batch.window_copies : batch.copies);
  }

  if (join_.projection.n > 0) {
    join_rows(batch, pass);
  } else {
    embed_rows(batch, pass);
  }
  rope_angles(pass.backend, rope_, batch.positions, pass.work.cos.slice_rows(0, rows),
              pass.work.sin.slice_rows(0, rows));
  if (config_.local.num_heads > 0)
    rope_angles(pass.backend, local_rope_, batch.positions, pass.work.local_cos.slice_rows(0, rows),
                pass.work.local_sin.slice_rows(0, rows));
  if (config_.rope.query_beta > 0)
    query_factors(config_.rope, batch.positions, pass.work.query_factors.slice_rows(0, rows));
  split_rows(batch, pass);
  pass.dispatcher.begin_pass(pass.id, rows);
  if (pass.ledger == nullptr) return;
  std::array<int, kMaxHalves> half_rows{};
  for (size_t i = 0; i < pass.halves.size(); ++i) half_rows.at(i) = pass.halves[i].rows.count;
  pass.ledger->cut_into(std::span(half_rows).first(pass.halves.size()));
}

void Model::embed_rows(const ForwardBatch& batch, const Pass& pass) const {
  const int rows = batch.num_rows();
  const View<float> residual = pass.work.residual.slice_rows(0, rows);
  embed(pass.backend, batch.ids, embedding_, residual);
  if (config_.embedding_scale != 1)
    pass.backend.workers().run(rows, [&](int row, int) {
      pass.backend.rows().scale(static_cast<float>(config_.embedding_scale), residual.cols,
                                residual.row(row));
    });
}

// The hidden rows are copied first, because they may be in the residual rows that the embedding
// overwrites.
void Model::join_rows(const ForwardBatch& batch, const Pass& pass) const {
  const int rows = batch.num_rows(), width = config_.hidden_size;
  const HiddenRows& from = pass.hidden;
  HOCKET_CHECK((from.of != nullptr && std::ssize(from.rows) == rows));
  WorkBuffers& work = pass.work;
  const float eps = static_cast<float>(config_.rms_norm_eps);
  const View<float> hidden = work.output_residual.slice_rows(0, rows);
  pass.backend.workers().run(rows, [&](int row, int) {
    std::copy_n(from.residual.row(from.rows[row]), width, hidden.row(row));
  });
  if (!config_.local_mtp) rms_norm_in_place(pass.backend, hidden, from.of->final_norm_, eps);
  embed_rows(batch, pass);
  const View<float> residual = work.residual.slice_rows(0, rows);
  const MatrixView joined = work.joined.slice_rows(0, rows);
  with_dtype(joined.dtype, [&](auto t) {
    const auto columns = joined.as<decltype(t)>();
    rms_norm(pass.backend, residual, join_.embedding_norm, eps,
             MatrixView::of(columns.slice_cols(0, width)));
    rms_norm(pass.backend, hidden, join_.hidden_norm, eps,
             MatrixView::of(columns.slice_cols(width, width)));
  });
  linear(pass.backend, joined, join_.projection, residual);
}

KvLayer Model::kv_layer(const Pass& pass, int layer) const {
  if (pass.window_pages == nullptr) return pass.pages.layer(index_of_kind_[layer]);
  const bool local = config_.is_local(layer);
  return (local ? *pass.window_pages : pass.pages).layer(index_apart_[layer]);
}

void Model::split_rows(const ForwardBatch& batch, const Pass& pass) const {
  const PlannedLayers layers{config_.attention(planned_layer_).num_heads,
                             kv_layer(pass, planned_layer_).shape};
  if (pass.window_pages == nullptr)
    return split_batch(batch, pass.split, layers, nullptr, pass.halves);
  const PlannedLayers windows{config_.local.num_heads, pass.window_pages->layer(0).shape};
  split_batch(batch, pass.split, layers, &windows, pass.halves);
}

void Model::finish_rows(const ForwardBatch& batch, const Pass& pass) const {
  const Ledger::OtherWork other(pass.ledger, "final norm");
  const WorkBuffers& work = pass.work;
  HOCKET_CHECK(std::ssize(batch.output_rows) <= work.limits.max_output_rows);
  const float eps = static_cast<float>(config_.rms_norm_eps);
  pass.backend.workers().run(static_cast<int>(batch.output_rows.size()), [&](int i, int) {
    const float* from = work.residual.row(batch.output_rows[i]);
    float* to = work.output_residual.row(i);
    std::copy(from, from + config_.hidden_size, to);
  });
  const auto count = std::ssize(batch.output_rows);
  rms_norm(pass.backend, work.output_residual.slice_rows(0, count), final_norm_, eps,
           work.hidden.slice_rows(0, count));
}

View<float> Model::logits(Backend& backend, WorkBuffers& work, int begin, int count) const {
  const View<float> out = work.logits.slice_rows(0, count);
  linear(backend, work.hidden.slice_rows(begin, count), head_, out);
  if (config_.logit_cap > 0)
    backend.workers().run(count, [&](int row, int) {
      backend.rows().soft_cap(1, static_cast<float>(config_.logit_cap), out.cols, out.row(row));
    });
  return out;
}

}  // namespace hocket
