// Tests what a pass reports to the ledger.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "compute/models/family.h"
#include "compute/models/rank_model_testing.h"
#include "compute/moe/local_dispatcher.h"
#include "compute/overlap/testing.h"
#include "compute/weights/golden_folder_testing.h"

namespace hocket {
namespace {

using testing::LoadedModel;
using testing::RankMachine;
using testing::Script;

class ModelLedger : public ::testing::TestWithParam<const char*> {
 protected:
  // Plays the first step of the script, all of it on one rank.
  const StepAccount& play(const Order& order, Ledger& ledger) {
    std::vector<int> all(Script::kSequences);
    for (int i = 0; i < Script::kSequences; ++i) all[static_cast<size_t>(i)] = i;
    Script::fill(0, all, loaded_.model.config().vocab_size, machine_.batch);
    ledger.begin_step(clock_.now());
    ledger.begin_pass(1, {}, {.rows = machine_.batch.num_rows()}, false);
    EXPECT_TRUE(
        loaded_.model
            .forward(machine_.batch, {.backend = machine_.backend,
                                      .work = machine_.work,
                                      .pages = machine_.pages,
                                      .states = machine_.states ? &*machine_.states : nullptr,
                                      .dispatcher = dispatcher_,
                                      .order = order,
                                      .halves = std::span(machine_.halves).first(order.num_halves),
                                      .split = split_for(machine_.batch, {}),
                                      .ledger = &ledger})
            .has_value());
    return ledger.end_step(clock_.now());
  }

  RealClock clock_;
  LoadedModel loaded_ =
      LoadedModel::load(kGolden / GetParam(), DType::bf16,
                        {all_experts(testing::value_of(read_hf_config(kGolden / GetParam())))});
  RankMachine machine_{loaded_.model.config(),
                       DType::bf16,
                       {.max_rows = Script::kMaxRows,
                        .max_output_rows = Script::kMaxRows,
                        .max_logits_rows = Script::kMaxRows},
                       Script::kSequences* Script::kPagesEach};
  LocalDispatcher dispatcher_{loaded_.model.config(), 1};
};

TEST_P(ModelLedger, EveryOperationIsBookedAndAllOfTheStep) {
  const int layers = loaded_.model.config().num_layers;
  Ledger ledger({.num_layers = layers}, clock_);
  ledger.keep_spans(true);
  for (const Order* order : {&serial_order(), &testing::order_named("four-phase")}) {
    const StepAccount& a = play(*order, ledger);
    EXPECT_EQ(a.computed() + a.other + a.idle, a.took);
    EXPECT_GT(a.other.count(), 0);
    EXPECT_EQ(a.exposed + a.waiting + a.hidden, Duration{});
    std::map<std::pair<int, int>, std::set<Op>> booked;  // key: layer and half
    for (const LedgerSpan& span : ledger.spans()) {
      if (span.kind != LedgerSpan::Kind::op) continue;
      EXPECT_TRUE((booked[{span.layer, span.half}].insert(span.op).second)) << op_name(span.op);
      EXPECT_GT(a.compute[static_cast<size_t>(span.op)].count(), 0) << op_name(span.op);
    }
    EXPECT_EQ(std::ssize(booked), layers * order->num_halves);
    for (const auto& [where, ops] : booked) {
      const ModelConfig& model = loaded_.model.config();
      const bool has_shared = model.moe.shared_intermediate_size > 0;
      const OpGraph& graph = ops.contains(Op::mlp) ? dense_graph()
                             : has_shared          ? shared_moe_graph()
                                                   : moe_graph();
      std::set<Op> want(graph.ops.begin(), graph.ops.end());
      if (model.is_linear(where.first)) want.erase(Op::attn_core), want.insert(Op::delta_core);
      EXPECT_EQ(ops, want) << where.first;
    }
    EXPECT_EQ(a.half_rows[0] + a.half_rows[1], machine_.batch.num_rows());
    EXPECT_EQ(a.half_rows[1] > 0, order->num_halves == 2);
    EXPECT_EQ(a.half_compute[0] + a.half_compute[1], a.computed());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelLedger, ::testing::Values("qwen3_moe", "qwen3_5_moe"));

}  // namespace
}  // namespace hocket
