// Tests the copy of all that the gate knows, for /speculation.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "policy/speculation/gate_text.h"
#include "policy/speculation/served_drafts_testing.h"

namespace hocket {
namespace {

using testing::DrafterKind;
using testing::DraftServer;

TEST(Gate, ShowsAFixedNumberAndNoGain) {
  SpeculationGate gate({.drafter = std::make_unique<testing::ChanceDrafter>(std::vector<double>{1},
                                                                            DrafterKind::free, 1),
                        .fixed = 3});
  const std::vector<TokenId> tokens(10);
  gate.begin(0, 100);
  GateAnswer answer{.seat = 0, .tokens = tokens, .max_drafts = 8};
  gate.offer({.total_keys = 10, .max_rows = 8}, std::span(&answer, 1));
  gate.note_step({.num_answers = 1,
                  .num_drafts = 3,
                  .num_tokens = 4,
                  .total_keys = 10,
                  .us = 5000,
                  .is_decode_only = true});
  const GateState state = gate.state();
  ASSERT_EQ(state.buckets.size(), 1U);
  EXPECT_EQ(state.buckets[0].usual.num_drafts, 3);
  EXPECT_EQ(state.buckets[0].usual.tokens, 4);
  EXPECT_FALSE(state.knows_gain);
}

TEST(Gate, SaysWhy) {
  DraftServer good({.chances = {0.95}, .making = DrafterKind::free});
  for (int i = 0; i < 400; ++i) good.step();
  const GateState state = good.gate().state();
  ASSERT_EQ(state.buckets.size(), 1U);
  EXPECT_GT(state.buckets[0].usual.num_drafts, 0);
  EXPECT_TRUE(text_of(state.buckets[0], false).starts_with("1 answer of up to 1024 tokens: "));
  EXPECT_TRUE(state.knows_gain);
  EXPECT_GT(state.totals.gained_us, 0);
  EXPECT_NEAR(state.acceptance[0][0], 0.95, 0.03);
  EXPECT_GT(state.buckets[0].usual.tokens, 2);
  DraftServer bad({.machine = {.fixed_us = 100}, .chances = {0.1}, .making = DrafterKind::free});
  for (int i = 0; i < 400; ++i) bad.step();
  const GateState::Bucket off = bad.gate().state().buckets.at(0);
  EXPECT_EQ(off.usual.num_drafts, 0);
  EXPECT_NE(text_of(off, false).find("none, because"), std::string::npos);
}

TEST(Gate, SaysHowSureItIsWhereItHasNoDrafts) {
  GateState::Bucket bucket{.num_answers = 1, .answer_keys = 1024};
  EXPECT_EQ(text_of(bucket, false),
            "1 answer of up to 1024 tokens: none, because nothing could be drafted, or too few "
            "steps without drafts were measured");
  bucket.best = {.num_drafts = 1, .tokens = 1.3, .time_ratio = 1.5};
  const std::string loss =
      "1 answer of up to 1024 tokens: none, because 1 draft gives 1.30 tokens an answer in 1.50 "
      "times the time of a step without";
  EXPECT_EQ(text_of(bucket, false), loss + ", by an estimate that no step has confirmed");
  bucket.best.num_measured = 3;
  EXPECT_EQ(text_of(bucket, false), loss);
  bucket.best.time_ratio = 1.2;
  EXPECT_TRUE(text_of(bucket, false).ends_with("; this gain is too small, or not certain yet"));
}

}  // namespace
}  // namespace hocket
