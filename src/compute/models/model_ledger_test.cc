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

class ModelLedger : public ::testing::Test {
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
      LoadedModel::load(kGolden / "qwen3_moe", DType::bf16,
                        {all_experts(testing::value_of(read_hf_config(kGolden / "qwen3_moe")))});
  RankMachine machine_{loaded_.model.config(),
                       DType::bf16,
                       {.max_rows = Script::kMaxRows,
                        .max_output_rows = Script::kMaxRows,
                        .max_logits_rows = Script::kMaxRows},
                       Script::kSequences* Script::kPagesEach};
  LocalDispatcher dispatcher_{loaded_.model.config(), 1};
};

TEST_F(ModelLedger, EveryOperationIsBookedAndAllOfTheStep) {
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
      const OpGraph& graph = ops.contains(Op::mlp) ? dense_graph() : moe_graph();
      EXPECT_EQ(ops, std::set<Op>(graph.ops.begin(), graph.ops.end())) << where.first;
    }
    EXPECT_EQ(a.half_rows[0] + a.half_rows[1], machine_.batch.num_rows());
    EXPECT_EQ(a.half_rows[1] > 0, order->num_halves == 2);
    EXPECT_EQ(a.half_compute[0] + a.half_compute[1], a.computed());
  }
}

}  // namespace
}  // namespace hocket
