#include "compute/models/decoder_kinds.h"

#include <array>
#include <vector>

#include "compute/moe/shared_experts.h"

namespace hocket {
namespace {

constexpr size_t at(Op op) {
  return static_cast<size_t>(op);
}

void compute_arrived(const LayerCall& c) {
  const ExpertRows rows = c.half.state.arrived.take();
  const int intermediate = c.model.moe.intermediate_size;
  ExpertsCall call = {
      .x = rows.x,
      .offsets = rows.offsets,
      .experts = std::span(c.weights.experts).subspan(rows.first_expert, rows.offsets.size() - 1),
      .intermediate = intermediate,
      .middle = c.work.middle_rows(0, rows.x.rows, intermediate),
      .y = rows.y,
      .activation = c.model.moe.activation_in(c.layer)};
  if (rows.gate_up_offsets.empty() && !rows.gate_up_done) {
    run_experts(c.backend, call);
  } else {
    if (!rows.gate_up_done) {
      call.offsets = rows.gate_up_offsets;
      run_gate_up(c.backend, call);
      call.offsets = rows.offsets;
    }
    run_down(c.backend, call);
  }
  c.half.state.computed.set(rows);
}

// Runs the routed experts. If rows travel in parts or waves, each is sent back before the next is
// computed.
void run_chosen_experts(const LayerCall& c) {
  compute_arrived(c);
  while (c.dispatcher.more_waves(c.half)) {
    c.dispatcher.combine_start(c.exchange_context(), c.half);
    c.dispatcher.dispatch_wait(c.exchange_context(), c.half);
    compute_arrived(c);
  }
}

void combine_normed(const LayerCall& c) {
  const View<float> shared = c.half.state.shared_y.take();
  clear_results(c.backend, c.work, c.half);
  c.dispatcher.combine_wait(c.exchange_context(), c.half);
  add_results(c.backend, {shared, c.weights.result_norms, static_cast<float>(c.model.rms_norm_eps)},
              c.work, c.half);
}

void set_feed_forward(FeedForward feed_forward, LayerKind& kind) {
  if (feed_forward == FeedForward::dense) {
    kind.graph = &dense_graph();
    kind.run[at(Op::mlp)] = [](const LayerCall& c) {
      dense_mlp(c.backend, c.weights.mlp, static_cast<float>(c.model.rms_norm_eps), c.work, c.half);
    };
    return;
  }
  kind.graph = &moe_graph();
  kind.run[at(Op::gate)] = [](const LayerCall& c) {
    gate(c.backend, c.model, c.weights.gate, c.work, c.half);
    if (!c.expert_counts.empty()) count_choices(c.half.state.routing.peek().ids, c.expert_counts);
  };
  kind.run[at(Op::dispatch_start)] = [](const LayerCall& c) {
    if (c.model.moe.weighted_inputs) weigh_inputs(c.backend, c.work, c.half);
    c.dispatcher.dispatch_start(c.exchange_context(), c.half);
  };
  kind.run[at(Op::dispatch_wait)] = [](const LayerCall& c) {
    c.dispatcher.dispatch_wait(c.exchange_context(), c.half);
  };
  kind.run[at(Op::experts)] = run_chosen_experts;
  kind.run[at(Op::combine_start)] = [](const LayerCall& c) {
    c.dispatcher.combine_start(c.exchange_context(), c.half);
  };
  kind.run[at(Op::combine_wait)] = [](const LayerCall& c) {
    if (c.model.result_norms) return combine_normed(c);
    c.dispatcher.combine_wait(c.exchange_context(), c.half);
  };
  if (feed_forward == FeedForward::experts) return;
  kind.graph = &shared_moe_graph();
  kind.run[at(Op::shared)] = [](const LayerCall& c) {
    const Activation activation = c.model.moe.shared_activation_in(c.layer);
    shared_experts(c.backend, c.model, {c.weights.shared, c.weights.shared_gate, activation},
                   c.work, c.half);
  };
}

LayerKind make_kind(const Mixer& mixer, FeedForward feed_forward) {
  LayerKind kind;
  kind.run[at(Op::attn_in)] = mixer.in;
  kind.run[at(Op::attn_core)] = mixer.core;
  set_feed_forward(feed_forward, kind);
  return kind;
}

// One kind for each mixer and each feed-forward part.
std::vector<std::array<LayerKind, 3>> make_kinds() {
  using enum FeedForward;
  std::vector<std::array<LayerKind, 3>> kinds;
  for (const Mixer& mixer : mixers())
    kinds.push_back(
        {make_kind(mixer, dense), make_kind(mixer, experts), make_kind(mixer, experts_and_shared)});
  return kinds;
}

}  // namespace

const LayerKind& decoder_kind(const Mixer& mixer, FeedForward feed_forward) {
  static const std::vector<std::array<LayerKind, 3>> kinds = make_kinds();
  const auto row = static_cast<size_t>(&mixer - mixers().data());
  return kinds[row][static_cast<size_t>(feed_forward)];
}

}  // namespace hocket
