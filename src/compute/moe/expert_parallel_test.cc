// Tests rows that travel between ranks on threads: their places at the experts, the most that may
// come, and peers that send more.
#include "compute/moe/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <random>
#include <set>

#include "compute/comm/testing.h"
#include "compute/kernels/combine.h"
#include "compute/moe/expert_parallel_testing.h"

namespace hocket::testing {
namespace {

using Rank = ExpertRank;

// The worst case for rank 0: the rows of all ranks, each for as many experts as it may have here.
std::array<int, kTopK> all_to_first(int rank, int row) {
  const int missing = (rank + row) % kHere;
  return {(missing + 3) % kHere, (missing + 1) % kHere, (missing + 2) % kHere};
}

// The place at which an expert should find a row.
struct Place {
  int expert, source, row;
};

// Returns the places of one part of a half, by expert, source and row. Parts are shares of experts
// in decode, else shares of rows.
std::vector<Place> places_of(int me, const Choice& choice,
                             const std::array<RowRange, kRanks>& ranges, const PassSpec& id,
                             int part) {
  const bool decodes = id.phase == Phase::decode;
  const auto cut = [&](int n, int at) { return at * n / id.parts; };
  std::vector<Place> places;
  for (int e = decodes ? cut(kHere, part) : 0; e < (decodes ? cut(kHere, part + 1) : kHere); ++e)
    for (int source = 0; source < kRanks; ++source) {
      const RowRange rows = ranges[source];
      for (int i = decodes ? 0 : cut(rows.count, part);
           i < (decodes ? rows.count : cut(rows.count, part + 1)); ++i)
        if (std::ranges::count(choice(source, rows.begin + i), me * kHere + e) > 0)
          places.push_back({e, source, rows.begin + i});
    }
  return places;
}

bool stand_at(const Rank& rank, const ExpertRows& rows, std::span<const Place> places) {
  if (rows.x.rows != std::ssize(places) || rows.offsets.front() != 0 ||
      rows.offsets.back() != std::ssize(places))
    return false;
  for (int64_t at = 0; at < std::ssize(places); ++at) {
    const auto [expert, source, row] = places[at];
    const int e = expert - rows.first_expert;
    if (e < 0 || e + 1 >= std::ssize(rows.offsets) || at < rows.offsets[e] ||
        at >= rows.offsets[e + 1])
      return false;
    for (const int column : {0, 17, kHidden - 1})
      if (rows.x.as<float>().row(at)[column] != rank.given(source, row, column)) return false;
  }
  return true;
}

// The rows of every rank in each half of a step.
using Ranges = std::array<std::array<RowRange, kRanks>, 2>;

// Checks that each part of a half is seen once, in any sequence.
class PartsSeen {
 public:
  void note(const Rank& rank, const Half& half, const Choice& choice, const Ranges& ranges,
            const PassSpec& id) {
    for (int part = 0; part < id.parts; ++part) {
      if ((seen_ >> part & 1) != 0) continue;
      const int me = rank.exchange->rank();
      const auto places = places_of(me, choice, ranges[half.index], id, part);
      if (!stand_at(rank, half.state.arrived.peek(), places)) continue;
      if (part > 0 && (seen_ >> (part - 1) & 1) == 0) ++overtaken;
      seen_ |= 1 << part;
      return;
    }
    ADD_FAILURE() << "rows of no part of half " << half.index << ", step " << id.step;
  }
  bool all(int parts) const { return seen_ == (1 << parts) - 1; }

  static inline std::atomic<int> overtaken = 0;

 private:
  int seen_ = 0;
};

void pass_there_and_back(Rank& rank, const Choice& choice, const Ranges& ranges, PassSpec id) {
  const int me = rank.exchange->rank(), rows = ranges[0][me].count + ranges[1][me].count;
  std::ranges::fill(std::span(rank.work.residual.data, kMaxRows * rank.work.residual.stride), 1.0f);
  rank.choose(choice);
  rank.dispatcher->begin_pass(id, rows);
  std::array<Half, 2> halves = {rank.start(0, ranges[0][me].begin, ranges[0][me].count),
                                rank.start(1, ranges[1][me].begin, ranges[1][me].count)};
  std::array<PartsSeen, 2> seen;
  const auto wait = [&](Half& half) {
    rank.dispatcher->dispatch_wait(rank.context(), half);
    if (id.waves == 1) seen[half.index].note(rank, half, choice, ranges, id);
  };
  for (Half& half : halves) wait(half);
  for (Half& half : halves) {
    rank.compute(half);
    while (rank.dispatcher->more_waves(half)) {
      wait(half);
      rank.compute(half);
    }
  }
  for (Half& half : halves) {
    rank.dispatcher->combine_wait(rank.context(), half);
    EXPECT_TRUE(half.state.empty());
    EXPECT_TRUE(id.waves > 1 || seen[half.index].all(id.parts));
  }
  ASSERT_TRUE(rank.dispatcher->status().has_value()) << rank.dispatcher->status().error().message;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < kHidden; ++i)  // weights sum to 1.5
      ASSERT_FLOAT_EQ(rank.work.residual.row(row)[i], 1 + 1.5f * rank.given(me, row, i));
}

// Returns halves of different lengths on every rank; the second half of rank 1 is empty.
Ranges full_ranges() {
  Ranges ranges;
  for (int of = 0; of < kRanks; ++of) {
    const int cut = of == 1 ? kMaxRows : 2 + 3 * of;
    ranges[0][of] = {0, cut};
    ranges[1][of] = {cut, kMaxRows - cut};
  }
  return ranges;
}

void expect_there_and_back(const Choice& choice, Phase phase, Wire wire) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, choice, wire);
    for (uint64_t step = 0; step < 9; ++step)
      pass_there_and_back(rank, choice, full_ranges(),
                          {.step = step,
                           .phase = phase,
                           .parts = 1 << step % 3,
                           .waves = step < 3 ? 1 : 1 << (step % 2 + 1)});
  });
}

TEST(ExpertParallelDispatch, RowsStandBySourceAndComeBackSummed) {
  for (const Phase phase : {Phase::prefill, Phase::decode})
    for (const Wire wire : {Wire::plain, Wire::int8})
      expect_there_and_back(neighbours, phase, wire);
}

// Rank 1 is absent, and the others have its experts.
TEST(ExpertParallelDispatch, RowsGoToTheRanksThatArePresent) {
  RankSet present;
  present.add(0);
  present.add(2);
  for (const Wire wire : {Wire::plain, Wire::int8}) {
    LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
    on_ranks(hub, kRanks, [&](Transport& end) {
      if (end.rank() == 1) return;
      Rank rank(end, neighbours, wire, present);
      for (uint64_t step = 0; step < 12; ++step) {
        std::ranges::fill(std::span(rank.work.residual.data, kMaxRows * rank.work.residual.stride),
                          1.0f);
        rank.choose(neighbours);
        rank.dispatcher->begin_pass({.step = step,
                                     .phase = step % 2 == 0 ? Phase::prefill : Phase::decode,
                                     .parts = 1 << step % 3,
                                     .waves = step < 6 ? 1 : 2},
                                    kMaxRows);
        Half half = rank.start(0, 0, kMaxRows);
        do {
          rank.dispatcher->dispatch_wait(rank.context(), half);
          rank.compute(half);
        } while (rank.dispatcher->more_waves(half));
        rank.dispatcher->combine_wait(rank.context(), half);
        ASSERT_TRUE(rank.dispatcher->status()) << rank.dispatcher->status().error().message;
        for (int row = 0; row < kMaxRows; ++row)
          for (int i = 0; i < kHidden; ++i)  // weights sum to 1.5
            ASSERT_FLOAT_EQ(rank.work.residual.row(row)[i],
                            1 + 1.5f * rank.given(end.rank(), row, i));
      }
    });
  }
}

TEST(ExpertParallelDispatch, AllRowsOfAllRanksMayComeToOne) {
  for (const Phase phase : {Phase::prefill, Phase::decode})
    for (const Wire wire : {Wire::plain, Wire::int8})
      expect_there_and_back(all_to_first, phase, wire);
}

// Plays steps with any number of rows (also none), any experts, and phases, parts and waves that
// change.
void expect_any_rows(Wire wire, const LinkModel& links, LoopbackHub::Time time) {
  LoopbackHub hub(kRanks, links, time);
  on_ranks(hub, kRanks, [&](Transport& end) {
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
      const bool decodes = random() % 2 == 0;
      PassSpec id = {.step = step,
                     .phase = decodes ? Phase::decode : Phase::prefill,
                     .parts = 1 << random() % 3};
      if (step % 2 == 1) id.waves = std::min(1 << random() % 4, kMaxParts / id.parts);
      pass_there_and_back(rank, choice, ranges, id);
    }
  });
}

TEST(ExpertParallelDispatch, WhateverTheRowsOfAStep) {
  for (const Wire wire : {Wire::plain, Wire::int8})
    expect_any_rows(wire, {}, LoopbackHub::Time::real);
}

TEST(ExpertParallelDispatch, PartsComeInAnyOrder) {
  PartsSeen::overtaken = 0;
  const LinkModel jittery = {.bytes_per_s = 1e7,
                             .latency = std::chrono::microseconds(20),
                             .jitter = std::chrono::milliseconds(1),
                             .seed = 3};
  for (const Wire wire : {Wire::plain, Wire::int8})
    expect_any_rows(wire, jittery, LoopbackHub::Time::virtual_time);
  EXPECT_GT(PartsSeen::overtaken, 100);
}

// Counts bytes: however many experts of a rank a row meets, it travels there once. It comes back as
// one sum from rank 0, which has an aligned part of the tree of groups, and as one for each node of
// the others, also in waves of experts. Decode in several parts sends it once for each expert.
TEST(ExpertParallelDispatch, ARowTravelsToARankOnceAndComesBackAsOne) {
  constexpr auto kRowBytes = static_cast<size_t>(round_up(kHidden, 32)) * sizeof(float);
  constexpr size_t kSlotBytes = kTopK * (sizeof(int32_t) + sizeof(float));
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, neighbours);
    const int me = end.rank();
    const auto bytes_of = [&](const PassSpec& id, MessageKind kind) {
      pass_there_and_back(rank, neighbours, full_ranges(), id);
      size_t all = 0;
      for (int half = 0; half < kMaxHalves; ++half)
        for (int i = 0; i < id.parts * (kind == MessageKind::combine ? id.waves : 1); ++i)
          all += rank.exchange->times(lane_of(half, i), kind).out_bytes;
      return all;
    };
    // Pairs of a row and an expert, a rank and a node, where one of the row's experts is.
    const std::vector<int32_t> leaves = combine_leaves(kExperts, kGroups);
    size_t out_pairs = 0, out_rows = 0, back_pairs = 0, back_rows = 0, back_sums = 0;
    for (int from = 0; from < kRanks; ++from)
      for (int row = 0; row < kMaxRows; ++row) {
        std::array<std::set<int>, kRanks> met, sums;
        const std::array<int, kTopK> experts = neighbours(from, row);
        for (const int expert : experts) {
          met[expert / kHere].insert(expert);
          sums[expert / kHere].insert(sent_node(leaves[expert], kTopK, [&](int other) {
            return experts[other] / kHere == expert / kHere ? -1 : leaves[experts[other]];
          }));
        }
        for (int at = 0; at < kRanks && from == me; ++at) {
          if (at == me) continue;
          out_pairs += met[at].size(), out_rows += met[at].empty() ? 0 : 1;
        }
        if (from == me) continue;
        back_pairs += met[me].size(), back_rows += met[me].empty() ? 0 : 1;
        back_sums += sums[me].size();
      }
    ASSERT_GT(out_pairs, out_rows);
    ASSERT_GT(back_pairs, back_sums);
    EXPECT_EQ(back_sums, back_rows);  // neighbours are in one part of the tree, or in its two ends
    uint64_t step = 0;
    for (const Phase phase : {Phase::prefill, Phase::decode})
      for (const int waves : {1, 2, 8}) {
        const size_t messages = kMaxHalves * (kRanks - 1);
        EXPECT_EQ(bytes_of({step++, phase, 1, waves}, MessageKind::dispatch),
                  messages * dispatch_head_bytes(kHere) + out_rows * (kRowBytes + kSlotBytes));
        EXPECT_EQ(bytes_of({step++, phase, 1, waves}, MessageKind::combine),
                  waves * messages * kMessageHeadBytes + back_sums * kRowBytes);
      }
    const size_t messages = 2 * kMaxHalves * (kRanks - 1);
    EXPECT_EQ(bytes_of({step++, Phase::decode, 2}, MessageKind::combine),
              messages * kMessageHeadBytes + back_pairs * kRowBytes);
  });
}

// A dispatch of int8 has half the bytes of one of bf16; a combine has the same.
TEST(ExpertParallelDispatch, MessagesOfInt8AreHalfAsLong) {
  const ModelConfig model = one_moe_layer(kExperts, kTopK, 2048);
  const Placement placement = *Placement::contiguous(kExperts, kRanks);
  const auto bytes = [&](bool int8) {
    return ExpertParallelDispatcher::max_bytes(
        {.model = model,
         .placement = placement,
         .combine_groups = kGroups,
         .limits = {.max_rows = 512,
                    .exchange = ExpertParallelDispatcher::exchange_limits(placement, 128),
                    .int8_dispatch = int8}})[0];
  };
  const auto dispatch = static_cast<size_t>(MessageKind::dispatch),
             combine = static_cast<size_t>(MessageKind::combine);
  EXPECT_LT(static_cast<double>(bytes(true)[dispatch]),
            0.52 * static_cast<double>(bytes(false)[dispatch]));
  EXPECT_EQ(bytes(true)[combine], bytes(false)[combine]);
}

// Rank 2 sends rows of another type than the others.
TEST(ExpertParallelDispatch, ARankOfAnotherFormatIsNamed) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  std::barrier all_there(kRanks);
  on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, neighbours, end.rank() == 2 ? Wire::int8 : Wire::plain);
    rank.dispatcher->begin_pass({.phase = Phase::decode}, kMaxRows);
    Half half = rank.start(0, 0, kMaxRows);
    rank.dispatcher->dispatch_wait(rank.context(), half);
    const Result<void> seen = rank.dispatcher->status();
    all_there.arrive_and_wait();
    ASSERT_FALSE(seen.has_value());
    EXPECT_EQ(seen.error().code, ErrorCode::lost_rank);
    const auto blames = [&](int peer) {
      return seen.error().message.contains(fmt::format("rank {} sent", peer));
    };
    EXPECT_TRUE(end.rank() == 2 ? blames(0) || blames(1) : blames(2)) << seen.error().message;
    rank.compute(half);
    rank.dispatcher->combine_wait(rank.context(), half);
    EXPECT_TRUE(half.state.empty());
  });
}

TEST(ExpertParallelDispatch, GroupsOnSeveralRanksAreRefused) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  on_ranks(hub, kRanks, [](Transport& end) {
    const Rank rank(end, neighbours);
    ExpertParallelDispatcher::Options options = rank.options();
    options.combine_groups = 4;
    const auto refused = ExpertParallelDispatcher::create(options, *rank.exchange);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
  });
}

// Rank 2 sends rank 0 messages that fit its slots, but more rows than a pass can have.
void expect_named(Phase phase, int parts) {
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  std::barrier all_there(kRanks);
  on_ranks(hub, kRanks, [&](Transport& end) {
    Rank rank(end, all_to_first);
    const bool lies = end.rank() == 2;
    rank.dispatcher->begin_pass({.phase = phase, .parts = parts}, kMaxRows);
    std::array<Half, 2> halves = {rank.start(0, 0, kMaxRows - (lies ? 0 : 4)),
                                  rank.start(1, lies ? 0 : kMaxRows - 4, lies ? kMaxRows : 4)};
    if (!lies) {
      for (Half& half : halves) rank.dispatcher->dispatch_wait(rank.context(), half);
      for (Half& half : halves) {
        rank.compute(half);
        while (rank.dispatcher->more_waves(half)) {
          rank.dispatcher->dispatch_wait(rank.context(), half);
          rank.compute(half);
        }
      }
    }
    const Result<void> seen = rank.dispatcher->status();
    all_there.arrive_and_wait();
    if (lies) return;
    EXPECT_EQ(seen.has_value(), end.rank() == 1);
    if (!seen) {
      EXPECT_NE(seen.error().message.find("rank 2 sent"), std::string::npos);
    }
    for (Half& half : halves) rank.dispatcher->combine_wait(rank.context(), half);
    EXPECT_TRUE(halves[0].state.empty() && halves[1].state.empty());
    const Result<void> status = rank.dispatcher->status();
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::lost_rank);
  });
}

TEST(ExpertParallelDispatch, ARankThatSendsTooMuchIsNamed) {
  for (const int parts : {1, 2, 4}) {
    expect_named(Phase::prefill, parts);
    expect_named(Phase::decode, parts);
  }
}

}  // namespace
}  // namespace hocket::testing
