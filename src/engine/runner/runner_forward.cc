// The passes of a Runner.
#include "engine/runner/runner.h"

namespace hocket {
namespace {

// Returns this rank's work as the planner counts it. A step of several ranks counts as prefill if
// one of them has prompts.
Bucket bucket_of(const ForwardBatch& batch, std::optional<Phase> phase) {
  const bool answers = phase ? *phase == Phase::decode : batch.mode == ForwardMode::decode;
  Bucket bucket{.phase = answers ? Phase::decode : Phase::prefill,
                .rows = batch.num_rows(),
                .kv_tokens = batch.num_rows()};
  for (const int32_t position : batch.positions) bucket.kv_tokens += position;
  return bucket;
}

}  // namespace

void Runner::forward(const ForwardBatch& batch, const Plan& plan, ForwardProbe* probe) {
  HOCKET_CHECK(!placement_);
  const Result<void> done = forward_together(batch, {.plan = plan, .probe = probe});
  HOCKET_CHECK(done.has_value());  // a single rank can lose no other
}

Placements Runner::placement() const {
  return placement_ ? *placement_
                    : Placements(*Placement::contiguous(choice_.model.moe.num_experts, 1));
}

Result<void> Runner::forward_together(const ForwardBatch& batch, const PassOptions& pass) {
  HOCKET_CHECK(dispatcher_ != nullptr);
  const Order& order = overlap_.orders->at(pass.plan.order);
  if (pass.ledger != nullptr)
    pass.ledger->begin_pass(
        pass.id.step, pass.plan,
        bucket_of(batch, placement_ ? std::optional(pass.id.phase) : std::nullopt), pass.is_trial);
  const SplitRule split = split_for(
      batch, {.share = pass.plan.share, .row_tile = row_tile(), .cut_threshold = cut_threshold_});
  return model_->forward(batch, {.backend = *backend_,
                                 .work = work_,
                                 .pages = *pages_,
                                 .window_pages = window_pages_ ? &*window_pages_ : nullptr,
                                 .states = states_ ? &*states_ : nullptr,
                                 .dispatcher = *dispatcher_,
                                 .order = order,
                                 .halves = std::span(halves_).first(order.num_halves),
                                 .split = split,
                                 .id = pass.id,
                                 .probe = pass.probe,
                                 .expert_counts = pass.expert_counts,
                                 .ledger = pass.ledger});
}

// Its layer's number in messages comes after those of the model's layers, so that an exchange of
// the one is never taken for one of the other.
Result<void> Runner::forward_module(int module, const ForwardBatch& batch,
                                    const Model::HiddenRows& hidden, const PassSpec& pass) {
  HOCKET_CHECK(dispatcher_ != nullptr);
  PassSpec id = pass;
  id.first_layer += choice_.model.num_layers;
  const Order& order = overlap_.orders->at(Plan().order);
  return model_->modules()[static_cast<size_t>(module)].forward(
      batch, {.backend = *backend_,
              .work = work_,
              .pages = *pages_,
              .window_pages = nullptr,
              .states = nullptr,
              .dispatcher = *dispatcher_,
              .order = order,
              .halves = std::span(halves_).first(order.num_halves),
              .split = {batch.num_rows()},
              .id = id,
              .hidden = hidden});
}

View<float> Runner::logits(int begin, int count) {
  return model_->logits(*backend_, work_, begin, count);
}

}  // namespace hocket
