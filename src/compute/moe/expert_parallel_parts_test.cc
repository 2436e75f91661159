// Tests that parts are computed as they arrive and sent back as they are done, and the memory for
// parts.
#include <gtest/gtest.h>

#include "compute/comm/testing.h"
#include "compute/moe/expert_parallel_testing.h"

namespace hocket::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kParts = 4, kLate = 1;  // the part that one rank sends late
constexpr Duration kLatency = microseconds(10), kComputing = milliseconds(1),
                   kLateness = milliseconds(20);

// Plays a rank without rows: it sends empty dispatches, one of them late by `lateness`.
void send_one_part_late(LoopbackHub& hub, AllToAll& exchange, Duration lateness) {
  const MessageFormat format = {.layout = RowLayout::per_expert,
                                .dtype = DType::f32,
                                .num_experts = kHere / kParts,
                                .top_k = kTopK,
                                .row_bytes = round_up(kHidden, kBlockK) * int64_t{sizeof(float)}};
  alignas(64) std::array<std::byte, 128> message{};
  write_head(format, 0, message.data());
  const std::span<const std::byte> bytes(message.data(),
                                         static_cast<size_t>(format.dispatch_bytes(0)));
  const AllToAll::Parts piece(&bytes, 1);
  const std::array<AllToAll::Parts, kRanks> all = {piece, piece, piece};
  const auto start = [&](int part) {
    HOCKET_CHECK(exchange.start(lane_of(0, part), MessageKind::dispatch, {}, all).has_value());
  };
  for (int part = 0; part < kParts; ++part)
    if (part != kLate) start(part);
  hub.spend(exchange.rank(), lateness);
  start(kLate);
  hub.spend(exchange.rank(), 2 * kLateness);  // until all messages are read
}

// Rank 0 has the experts and computes a millisecond for each part. The part that rank 1 sends late
// is taken last, and it delays no other part.
TEST(ExpertParallelParts, AreComputedAsTheyComeAndSentBackAsTheyAreDone) {
  LoopbackHub hub(kRanks, {.latency = kLatency}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, kRanks, [&](Transport& end) {
    ExpertRank rank(end, neighbours);
    if (end.rank() > 0)
      return send_one_part_late(hub, *rank.exchange, end.rank() == 1 ? kLateness : Duration{});
    const TimePoint begin = hub.now();
    rank.dispatcher->begin_pass({.phase = Phase::decode, .parts = kParts}, kMaxRows);
    Half half = rank.start(0, 0, kMaxRows);
    std::vector<int> taken;
    std::vector<Duration> when, sent_back;
    do {
      rank.dispatcher->dispatch_wait(rank.context(), half);
      const int part = half.state.arrived.peek().first_expert;  // each part has one expert
      taken.push_back(part);
      when.push_back(hub.now() - begin);
      hub.spend(0, kComputing);
      rank.compute(half);
      const int lane = lane_of(0, part);
      sent_back.push_back(rank.exchange->times(lane, MessageKind::combine).posted - begin);
    } while (rank.dispatcher->more_waves(half));
    EXPECT_EQ(taken, (std::vector{0, 2, 3, kLate}));
    EXPECT_EQ(when, (std::vector<Duration>{kLatency, kLatency + kComputing,
                                           kLatency + 2 * kComputing, kLateness + kLatency}));
    for (size_t i = 0; i < kParts; ++i) EXPECT_EQ(sent_back[i], when[i] + kComputing);
  });
}

// Every rank computes a millisecond for each wave, and each wave leaves then; only the last one
// still travels when all is computed.
TEST(ExpertParallelParts, WavesAreSentBackWhileTheRestIsComputed) {
  LoopbackHub hub(kRanks, {.latency = kLatency}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, kRanks, [&](Transport& end) {
    ExpertRank rank(end, neighbours);
    uint64_t step = 0;
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      rank.dispatcher->begin_pass({.step = ++step, .phase = phase, .waves = kParts}, kMaxRows);
      Half half = rank.start(0, 0, kMaxRows);
      int num_waves = 0;
      TimePoint here{};
      do {
        rank.dispatcher->dispatch_wait(rank.context(), half);
        if (num_waves == 0) here = hub.now();
        hub.spend(end.rank(), kComputing);
        rank.compute(half);
        const int lane = lane_of(0, num_waves++);
        EXPECT_EQ(rank.exchange->times(lane, MessageKind::combine).posted - here,
                  num_waves * kComputing);
      } while (rank.dispatcher->more_waves(half));
      EXPECT_EQ(num_waves, kParts);
      rank.dispatcher->combine_wait(rank.context(), half);
      EXPECT_EQ(hub.now() - here, kParts * kComputing + kLatency);
    }
  });
}

ExpertParallelDispatcher::Options options_of(const ModelConfig& model, const Placement& placement,
                                             int combine_groups, int max_parts) {
  return {
      .model = model,
      .placement = placement,
      .combine_groups = combine_groups,
      .limits = {.max_rows = 512,
                 .max_output_rows = 1,
                 .max_logits_rows = 1,
                 .exchange = ExpertParallelDispatcher::exchange_limits(placement, 64, max_parts)}};
}

TEST(ExpertParallelParts, SlotsAreAsLongAsAPartCanBe) {
  constexpr auto kDispatch = static_cast<size_t>(MessageKind::dispatch),
                 kCombine = static_cast<size_t>(MessageKind::combine);
  const ModelConfig model = one_moe_layer(32, 8, 2048);
  const Placement placement = *Placement::contiguous(32, 4);
  const auto lanes = ExpertParallelDispatcher::max_bytes(options_of(model, placement, 4, 8));
  for (const int half : {0, 1})
    for (const size_t kind : {kDispatch, kCombine}) {
      const auto bytes = [&](int part) {
        return static_cast<double>(lanes.at(static_cast<size_t>(lane_of(half, part)))[kind]);
      };
      EXPECT_NEAR(bytes(1), bytes(0) / 2, 0.01 * bytes(0));
      for (const int part : {2, 3}) EXPECT_NEAR(bytes(part), bytes(0) / 4, 0.01 * bytes(0));
      for (const int part : {4, 5, 6, 7}) EXPECT_NEAR(bytes(part), bytes(0) / 8, 0.01 * bytes(0));
    }
  // A row has as many sums on a rank as that has nodes of the tree, however many groups there are:
  // rank 1 of 3 has experts 10 11, 12 to 15, 16 to 19, and 20.
  const auto groups = ExpertParallelDispatcher::max_bytes(options_of(model, placement, 16, 4));
  EXPECT_EQ(groups[0][kCombine], lanes[0][kCombine]);
  const Placement of_three = *Placement::contiguous(32, 3);
  const auto nodes = ExpertParallelDispatcher::max_bytes(options_of(model, of_three, 32, 4));
  EXPECT_NEAR(static_cast<double>(nodes[0][kCombine]), 4.0 * lanes[0][kCombine],
              0.01 * static_cast<double>(nodes[0][kCombine]));
  // A rank without parts has no lanes for them; the other memory hardly grows with parts.
  const auto one = options_of(model, placement, 4, 1), eight = options_of(model, placement, 4, 8);
  const auto single = ExpertParallelDispatcher::max_bytes(one);
  for (size_t lane = 0; lane < kMaxLanes; ++lane)
    EXPECT_EQ(single[lane][kDispatch], lane % kMaxParts == 0 ? lanes[0][kDispatch] : 0);
  const auto memory = [&](const ExpertParallelDispatcher::Options& of) {
    return static_cast<double>(WorkBuffers::bytes_for(model, DType::bf16, of.limits));
  };
  EXPECT_LT(memory(eight), 1.01 * memory(one));
}

}  // namespace
}  // namespace hocket::testing
