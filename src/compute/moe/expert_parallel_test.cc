// Rows that travel between ranks on threads: how they stand at their experts, the most that may
// come, and peers that send more.
#include "compute/moe/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <random>

#include "compute/comm/testing.h"
#include "compute/moe/testing.h"

namespace hocket {
namespace {

constexpr int kRanks = 3, kExperts = 12, kHere = kExperts / kRanks, kTopK = 3, kHidden = 40;
constexpr int kMaxRows = 9, kGroups = 6;

ModelConfig config() {
  return one_moe_layer(kExperts, kTopK, kHidden);
}

enum class Wire : uint8_t { plain, int8 };

// Which experts a row wants.
using Choice = std::function<std::array<int, kTopK>(int rank, int row)>;

// One rank with rows of known numbers: 1000 * rank + row, and the column behind the comma.
struct Rank {
  Rank(Transport& end, const Choice& choice, Wire wire = Wire::plain)
      : placement(*Placement::contiguous(kExperts, kRanks)),
        limits{.max_rows = kMaxRows,
               .max_output_rows = 1,
               .max_logits_rows = 1,
               .exchange = ExpertParallelDispatcher::exchange_limits(placement, kMaxRows),
               .int8_dispatch = wire == Wire::int8},
        backend(*Backend::create(Isa::ref, workers, 1 << 16)),
        work(*WorkBuffers::create(model, DType::f32, limits)) {
    exchange = *AllToAll::create(
        end, {.most_bytes = on_lanes(2, ExpertParallelDispatcher::most_bytes(options()))});
    dispatcher = *ExpertParallelDispatcher::create(options(), *exchange);
    choose(choice);
  }
  void choose(const Choice& choice) {
    for (int row = 0; row < kMaxRows; ++row) {
      for (int i = 0; i < kHidden; ++i)
        work.normed.as<float>().row(row)[i] = number(exchange->rank(), row, i);
      const std::array<int, kTopK> experts = choice(exchange->rank(), row);
      for (int s = 0; s < kTopK; ++s) {
        work.expert_ids.row(row)[s] = experts[s];
        work.expert_weights.row(row)[s] = 0.25f * static_cast<float>(s + 1);
      }
    }
  }
  static float number(int rank, int row, int column) {
    return static_cast<float>(1000 * rank + row) + static_cast<float>(column) / 64;
  }
  // The same as experts get it. A row's last number is its largest.
  float given(int rank, int row, int column) const {
    const float x = number(rank, row, column), amax = number(rank, row, kHidden - 1);
    return limits.int8_dispatch ? std::nearbyint(x * (127 / amax)) * (amax / 127) : x;
  }
  ExpertParallelDispatcher::Options options() const {
    return {.model = model,
            .dtype = DType::f32,
            .placement = placement,
            .combine_groups = kGroups,
            .limits = limits};
  }
  Half start(int index, int begin, int count) {
    Half half{.index = index, .rows = {begin, count}};
    half.state.normed.set(work.normed.slice_rows(begin, count));
    half.state.routing.set({.ids = work.expert_ids.slice_rows(begin, count),
                            .weights = work.expert_weights.slice_rows(begin, count)});
    dispatcher->dispatch_start(site(), half);
    return half;
  }
  // Experts that give back what they get.
  void compute(Half& half) {
    const ExpertRows rows = half.state.arrived.take();
    for (int64_t r = 0; r < rows.x.rows; ++r)
      std::copy_n(rows.x.as<float>().row(r), kHidden, rows.y.as<float>().row(r));
    half.state.computed.set(rows);
    dispatcher->combine_start(site(), half);
  }
  ExchangeSite site() { return {backend, work}; }

  ModelConfig model = config();
  Placement placement;
  WorkLimits limits;
  WorkerPool workers{{}};
  Backend backend;
  WorkBuffers work;
  std::unique_ptr<AllToAll> exchange;  // before the memory that it sends from
  std::unique_ptr<ExpertParallelDispatcher> dispatcher;
};

// Three neighbours, so that tokens have several experts on a rank and some on others.
std::array<int, kTopK> neighbours(int rank, int row) {
  const int first = (5 * rank + 7 * row) % kExperts;
  return {(first + 2) % kExperts, first, (first + 1) % kExperts};
}
// The worst for rank 0: everybody's rows, for as many experts as a row may have.
std::array<int, kTopK> all_to_first(int rank, int row) {
  const int missing = (rank + row) % kHere;
  return {(missing + 3) % kHere, (missing + 1) % kHere, (missing + 2) % kHere};
}

void expect_in_order(const Rank& rank, const Choice& choice, const ExpertRows& rows,
                     const std::array<RowRange, kRanks>& ranges) {
  ASSERT_EQ(rows.offsets.size(), kHere + 1u);
  int64_t at = 0;
  for (int e = 0; e < kHere; ++e) {
    ASSERT_EQ(rows.offsets[e], at);
    const int expert = rank.exchange->rank() * kHere + e;
    for (int source = 0; source < kRanks; ++source)
      for (int i = 0; i < ranges[source].count; ++i) {
        const int row = ranges[source].begin + i;
        if (std::ranges::count(choice(source, row), expert) == 0) continue;
        for (int column : {0, 17, kHidden - 1})
          ASSERT_EQ(rows.x.as<float>().row(at)[column], rank.given(source, row, column));
        ++at;
      }
  }
  ASSERT_EQ(rows.offsets[kHere], at);
  ASSERT_EQ(rows.x.rows, at);
}

// Rows of every rank in each half of a step.
using Ranges = std::array<std::array<RowRange, kRanks>, 2>;

void pass_there_and_back(Rank& rank, const Choice& choice, const Ranges& ranges, PassId id) {
  const int me = rank.exchange->rank(), rows = ranges[0][me].count + ranges[1][me].count;
  std::ranges::fill(std::span(rank.work.residual.data, kMaxRows * rank.work.residual.stride), 1.0f);
  rank.choose(choice);
  rank.dispatcher->begin_pass(id, rows);
  std::array<Half, 2> halves = {rank.start(0, ranges[0][me].begin, ranges[0][me].count),
                                rank.start(1, ranges[1][me].begin, ranges[1][me].count)};
  for (Half& half : halves) rank.dispatcher->dispatch_wait(rank.site(), half);
  for (Half& half : halves)
    expect_in_order(rank, choice, half.state.arrived.peek(), ranges[half.index]);
  for (Half& half : halves) rank.compute(half);
  for (Half& half : halves) {
    rank.dispatcher->combine_wait(rank.site(), half);
    EXPECT_TRUE(half.state.empty());
  }
  ASSERT_TRUE(rank.dispatcher->status().has_value()) << rank.dispatcher->status().error().message;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < kHidden; ++i)  // weights sum to 1.5
      ASSERT_FLOAT_EQ(rank.work.residual.row(row)[i], 1 + 1.5f * rank.given(me, row, i));
}

// Halves of different lengths on every rank; rank 1 has nothing in its second.
Ranges full_ranges() {
  Ranges ranges;
  for (int of = 0; of < kRanks; ++of) {
    const int cut = of == 1 ? kMaxRows : 2 + 3 * of;
    ranges[0][of] = {0, cut};
    ranges[1][of] = {cut, kMaxRows - cut};
  }
  return ranges;
}

void expect_there_and_back(const Choice& choice, ExchangeMode mode, Wire wire) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  testing::on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, choice, wire);
    for (uint64_t step = 0; step < 3; ++step)
      pass_there_and_back(rank, choice, full_ranges(), {step, mode});
  });
}

TEST(ExpertParallelDispatch, RowsStandBySourceAndComeBackSummed) {
  for (const ExchangeMode mode : {ExchangeMode::counted, ExchangeMode::slotted})
    for (const Wire wire : {Wire::plain, Wire::int8}) expect_there_and_back(neighbours, mode, wire);
}

TEST(ExpertParallelDispatch, AllRowsOfAllRanksMayComeToOne) {
  for (const ExchangeMode mode : {ExchangeMode::counted, ExchangeMode::slotted})
    for (const Wire wire : {Wire::plain, Wire::int8})
      expect_there_and_back(all_to_first, mode, wire);
}

// Any lengths, none too, any experts; modes that change from step to step.
void expect_any_rows(Wire wire) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  testing::on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, neighbours, wire);
    for (uint64_t step = 0; step < 200 && !::testing::Test::HasFatalFailure(); ++step) {
      std::mt19937 random(static_cast<uint32_t>(step));  // the same on all ranks
      Ranges ranges;
      for (int of = 0; of < kRanks; ++of) {
        const int rows = random() % 3 == 0 ? 0 : static_cast<int>(random() % (kMaxRows + 1));
        const int cut = static_cast<int>(random() % (rows + 1));
        ranges[0][of] = {0, cut};
        ranges[1][of] = {cut, rows - cut};
      }
      const auto choice = [&](int of, int row) {
        std::mt19937 draw(static_cast<uint32_t>((step * kRanks + of) * kMaxRows + row));
        std::array<int, kExperts> experts{};
        for (int e = 0; e < kExperts; ++e) experts[e] = e;
        std::ranges::shuffle(experts, draw);
        return std::array{experts[0], experts[1], experts[2]};
      };
      const bool slotted = random() % 2 == 0;
      pass_there_and_back(rank, choice, ranges,
                          {step, slotted ? ExchangeMode::slotted : ExchangeMode::counted});
    }
  });
}

TEST(ExpertParallelDispatch, WhateverTheRowsOfAStep) {
  for (const Wire wire : {Wire::plain, Wire::int8}) expect_any_rows(wire);
}

// Rows of bf16 there, and half of that there where they are of int8; back they are the same.
TEST(ExpertParallelDispatch, MessagesOfInt8AreHalfAsLong) {
  const ModelConfig model = one_moe_layer(kExperts, kTopK, 2048);
  const Placement placement = *Placement::contiguous(kExperts, kRanks);
  const auto bytes = [&](bool int8) {
    return ExpertParallelDispatcher::most_bytes(
        {.model = model,
         .placement = placement,
         .combine_groups = kGroups,
         .limits = {.max_rows = 512,
                    .exchange = ExpertParallelDispatcher::exchange_limits(placement, 128),
                    .int8_dispatch = int8}});
  };
  const auto dispatch = static_cast<size_t>(MessageKind::dispatch),
             combine = static_cast<size_t>(MessageKind::combine);
  EXPECT_LT(static_cast<double>(bytes(true)[dispatch]),
            0.52 * static_cast<double>(bytes(false)[dispatch]));
  EXPECT_EQ(bytes(true)[combine], bytes(false)[combine]);
}

// Rank 2 sends another kind of rows than the others.
TEST(ExpertParallelDispatch, ARankOfAnotherFormatIsNamed) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  std::barrier all_there(kRanks);
  testing::on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, neighbours, end.rank() == 2 ? Wire::int8 : Wire::plain);
    rank.dispatcher->begin_pass({0, ExchangeMode::slotted}, kMaxRows);
    Half half = rank.start(0, 0, kMaxRows);
    rank.dispatcher->dispatch_wait(rank.site(), half);
    const Result<void> seen = rank.dispatcher->status();
    all_there.arrive_and_wait();
    ASSERT_FALSE(seen.has_value());
    EXPECT_EQ(seen.error().code, ErrorCode::lost_rank);
    const auto blames = [&](int peer) {
      return seen.error().message.contains(fmt::format("rank {} sent", peer));
    };
    EXPECT_TRUE(end.rank() == 2 ? blames(0) || blames(1) : blames(2)) << seen.error().message;
    rank.compute(half);
    rank.dispatcher->combine_wait(rank.site(), half);
    EXPECT_TRUE(half.state.empty());
  });
}

TEST(ExpertParallelDispatch, GroupsOnSeveralRanksAreRefused) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  testing::on_ranks(hub, kRanks, [](Transport& end) {
    const Rank rank(end, neighbours);
    ExpertParallelDispatcher::Options options = rank.options();
    options.combine_groups = 4;
    const auto refused = ExpertParallelDispatcher::create(options, *rank.exchange);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
  });
}

// Rank 2 sends what fits its slots, but more rows than a pass can have, to rank 0.
void expect_named(ExchangeMode mode) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  std::barrier all_there(kRanks);
  testing::on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, all_to_first);
    const bool lies = end.rank() == 2;
    rank.dispatcher->begin_pass({0, mode}, kMaxRows);
    std::array<Half, 2> halves = {rank.start(0, 0, kMaxRows - (lies ? 0 : 4)),
                                  rank.start(1, lies ? 0 : kMaxRows - 4, lies ? kMaxRows : 4)};
    if (!lies)
      for (Half& half : halves) rank.dispatcher->dispatch_wait(rank.site(), half);
    const Result<void> seen = rank.dispatcher->status();
    all_there.arrive_and_wait();
    if (lies) return;
    EXPECT_EQ(seen.has_value(), end.rank() == 1);
    if (!seen) {
      EXPECT_NE(seen.error().message.find("rank 2 sent"), std::string::npos);
    }
    for (Half& half : halves) rank.compute(half);
    for (Half& half : halves) rank.dispatcher->combine_wait(rank.site(), half);
    EXPECT_TRUE(halves[0].state.empty() && halves[1].state.empty());
    const Result<void> status = rank.dispatcher->status();
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::lost_rank);
  });
}

TEST(ExpertParallelDispatch, ARankThatSendsTooMuchIsNamed) {
  expect_named(ExchangeMode::counted);
  expect_named(ExchangeMode::slotted);
}

}  // namespace
}  // namespace hocket
