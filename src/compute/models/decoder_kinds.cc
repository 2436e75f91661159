#include "compute/models/decoder_kinds.h"

#include "compute/moe/shared_experts.h"

namespace hocket {
namespace {

constexpr size_t at(Op op) {
  return static_cast<size_t>(op);
}

void set_mixer(Mixer mixer, LayerKind& kind) {
  if (mixer == Mixer::delta_net) {
    kind.run[at(Op::attn_in)] = [](const LayerCall& c) {
      gated_delta_in(c.delta_context(), c.weights.delta, c.half);
    };
    kind.run[at(Op::attn_core)] = [](const LayerCall& c) {
      gated_delta_core(c.delta_context(), c.weights.delta, c.half);
    };
  } else if (mixer == Mixer::gqa) {
    kind.run[at(Op::attn_in)] = [](const LayerCall& c) {
      gqa_in(c.attention_context(), c.weights.gqa, c.half);
    };
    kind.run[at(Op::attn_core)] = [](const LayerCall& c) {
      gqa_core(c.attention_context(), c.weights.gqa, c.half);
    };
  } else {
    kind.run[at(Op::attn_in)] = [](const LayerCall& c) {
      mla_in(c.attention_context(), c.weights.mla, c.half);
    };
    kind.run[at(Op::attn_core)] = [](const LayerCall& c) {
      mla_core(c.attention_context(), c.weights.mla, c.half);
    };
  }
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

LayerKind make_kind(std::string_view name, Mixer mixer, FeedForward feed_forward) {
  LayerKind kind{name, nullptr, {}};
  set_mixer(mixer, kind);
  set_feed_forward(feed_forward, kind);
  return kind;
}

}  // namespace

const LayerKind& decoder_kind(Mixer mixer, FeedForward feed_forward) {
  using enum Mixer;
  using enum FeedForward;
  static const LayerKind kinds[3][3] = {
      {make_kind("gqa, dense", gqa, dense), make_kind("gqa, experts", gqa, experts),
       make_kind("gqa, shared", gqa, experts_and_shared)},
      {make_kind("mla, dense", mla, dense), make_kind("mla, experts", mla, experts),
       make_kind("mla, shared", mla, experts_and_shared)},
      {make_kind("delta net, dense", delta_net, dense),
       make_kind("delta net, experts", delta_net, experts),
       make_kind("delta net, shared", delta_net, experts_and_shared)}};
  return kinds[static_cast<size_t>(mixer)][static_cast<size_t>(feed_forward)];
}

}  // namespace hocket
