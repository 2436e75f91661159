#include "compute/overlap/unequal_ranks_testing.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "compute/overlap/executor.h"
#include "compute/overlap/served_testing.h"

namespace hocket {
namespace {

// The rows that such a rank sends away, and those that it gets, as multiples of the mean.
struct RowsOfRank {
  RowsOfRank(const AlikeRanks& alike, int num_ranks)
      : sent((num_ranks - alike.load) / (num_ranks - 1)), received(alike.load) {}
  double sent, received;
};

}  // namespace

UnequalRanks::UnequalRanks(const StageModel& even, const LayerCounts& layers,
                           std::vector<AlikeRanks> ranks)
    : even_(even), layers_(layers), ranks_(std::move(ranks)) {
  for (const AlikeRanks& alike : ranks_) num_ranks_ += alike.count;
  HOCKET_CHECK(num_ranks_ >= 2);
  for (const AlikeRanks& alike : ranks_) HOCKET_CHECK(alike.load < num_ranks_);
}

StageTimes UnequalRanks::times_of(const AlikeRanks& ranks, const Bucket& bucket) const {
  const RowsOfRank rows(ranks, num_ranks_);
  StageTimes times = even_.at(bucket);
  for (const Op op : {Op::experts, Op::dispatch_wait, Op::combine_start})
    times.of(op) *= ranks.load;
  for (double& time : times.compute) time *= ranks.slowness;
  for (double* added_us : {&times.part_us, &times.wave_us, &times.spread_us})
    *added_us *= ranks.slowness;
  times.dispatch.busy_us *= rows.sent, times.combine.busy_us *= rows.received;
  return times;
}

std::vector<double> UnequalRanks::loads() const {
  std::vector<double> loads;
  for (const AlikeRanks& alike : ranks_)
    loads.insert(loads.end(), static_cast<size_t>(alike.count), alike.load);
  return loads;
}

// All ranks play a slot before any plays the next one: a wait needs nothing that comes later.
class UnequalRanks::Playing {
 public:
  Playing(const UnequalRanks& all, const Plan& plan, const Bucket& bucket);
  double step_us();

 private:
  struct Transfer {
    double out_us = 0, in_us = 0, latency_us = 0;  // all messages of the half
  };
  struct HalfTimes {
    StageTimes stages;
    Transfer dispatch, combine;
  };
  // One of ranks that are alike: the others are in the same state.
  struct Rank {
    bool is_alone = true;
    std::array<HalfTimes, kMaxHalves> halves;
    double now = 0, out_free = 0, in_free = 0;
    double begin = 0, end = 0;  // the message that is sent
    // When a part of each half's dispatch is here, and the last of its combine.
    std::array<std::array<double, kMaxParts>, kMaxHalves> there{};
    std::array<double, kMaxHalves> back{};
  };

  void compute(int half, const Stage& stage, double share);
  void compute_wave(int half, int wave);
  template <class Note>
  void exchange(int half, Transfer HalfTimes::* kind, double share, const Note& note);
  void wait_part(int half, int part);
  void send_back(int half, int wave);
  void run_op(int layer, Op op, int half);

  const LayerCounts& layers_;
  const Order& order_;
  const Grain grain_;
  std::vector<Rank> ranks_;
};

UnequalRanks::Playing::Playing(const UnequalRanks& all, const Plan& plan, const Bucket& bucket)
    : layers_(all.layers_), order_(OrderTable::builtin().at(plan.order)), grain_(plan.grain()) {
  std::vector<Bucket> halves = {bucket};
  if (order_.num_halves == 2) {
    const auto cut = halves_of(bucket, plan.share, 1);
    HOCKET_CHECK(cut.has_value());
    halves.assign(cut->begin(), cut->end());
  }
  for (const AlikeRanks& alike : all.ranks_) {
    const RowsOfRank rows(alike, all.num_ranks_);
    Rank& rank = ranks_.emplace_back();
    rank.is_alone = alike.count == 1;
    for (size_t half = 0; half < halves.size(); ++half) {
      const StageTimes even = all.even_.at(halves[half]);
      const double there_us = even.dispatch.busy_in(grain_);
      const double back_us = even.combine.busy_in(grain_);
      rank.halves[half] = {
          .stages = all.times_of(alike, halves[half]),
          .dispatch = {rows.sent * there_us, rows.received * there_us, even.dispatch.latency_us},
          .combine = {rows.received * back_us, rows.sent * back_us, even.combine.latency_us}};
    }
  }
}

// Spends a share of an operation on every rank.
void UnequalRanks::Playing::compute(int half, const Stage& stage, double share) {
  for (Rank& rank : ranks_)
    rank.now += share * rank.halves[static_cast<size_t>(half)].stages.compute[index_of(stage)];
}

void UnequalRanks::Playing::compute_wave(int half, int wave) {
  const bool is_first = wave % grain_.waves == 0;
  for (Rank& rank : ranks_) {
    const StageTimes& stages = rank.halves[static_cast<size_t>(half)].stages;
    const double part_us = stages.of(Op::experts) / grain_.parts;
    const double first_us = stages.up_first && grain_.waves > 1 ? part_us * 2 / 3 : 0;
    rank.now += (part_us - first_us) / grain_.waves + (is_first ? first_us : 0);
    rank.now += stages.added_us(grain_, wave);
  }
}

// Every rank sends a message to each other rank: a share of all that its half sends. Calls
// note(rank, at) with the time at which the rank has those of all others.
template <class Note>
void UnequalRanks::Playing::exchange(int half, Transfer HalfTimes::* kind, double share,
                                     const Note& note) {
  const auto at = static_cast<size_t>(half);
  for (Rank& rank : ranks_) {
    rank.begin = std::max(rank.now, rank.out_free);
    rank.end = rank.out_free = rank.begin + share * (rank.halves[at].*kind).out_us;
  }
  for (Rank& rank : ranks_) {
    double first = std::numeric_limits<double>::infinity(), last = 0;
    for (const Rank& peer : ranks_) {
      if (&peer == &rank && rank.is_alone) continue;
      first = std::min(first, peer.begin), last = std::max(last, peer.end);
    }
    const Transfer& transfer = rank.halves[at].*kind;
    rank.in_free = std::max(rank.in_free, first) + share * transfer.in_us;
    note(rank, transfer.latency_us + std::max(last, rank.in_free));
  }
}

void UnequalRanks::Playing::wait_part(int half, int part) {
  for (Rank& rank : ranks_)
    rank.now = std::max(rank.now, rank.there[static_cast<size_t>(half)][static_cast<size_t>(part)]);
  compute(half, {Op::dispatch_wait}, 1.0 / grain_.parts);
}

// Waves are counted over all parts.
void UnequalRanks::Playing::send_back(int half, int wave) {
  const TransferTime& combine = ranks_[0].halves[static_cast<size_t>(half)].stages.combine;
  compute(half, {Op::combine_start}, 1.0 / grain_.num_waves());
  exchange(half, &HalfTimes::combine,
           combine.share_of_waves(wave + 1, grain_) - combine.share_of_waves(wave, grain_),
           [&](Rank& rank, double at) {
             double& back = rank.back[static_cast<size_t>(half)];
             back = std::max(back, at);
           });
}

void UnequalRanks::Playing::run_op(int layer, Op op, int half) {
  const Stage stage{op, is_attention(op) ? layers_.kinds.of(layer) : 0};
  switch (op) {
    case Op::dispatch_start:
      compute(half, stage, 1);
      for (int part = 0; part < grain_.parts; ++part)
        exchange(half, &HalfTimes::dispatch, 1.0 / grain_.parts, [&](Rank& rank, double at) {
          rank.there[static_cast<size_t>(half)][static_cast<size_t>(part)] = at;
        });
      break;
    case Op::dispatch_wait:
      wait_part(half, 0);
      break;
    case Op::experts:
      compute_wave(half, 0);
      for (int wave = 1; wave < grain_.num_waves(); ++wave) {
        send_back(half, wave - 1);
        if (wave % grain_.waves == 0) wait_part(half, wave / grain_.waves);
        compute_wave(half, wave);
      }
      break;
    case Op::combine_start:
      send_back(half, grain_.num_waves() - 1);
      break;
    case Op::combine_wait:
      for (Rank& rank : ranks_) rank.now = std::max(rank.now, rank.back[static_cast<size_t>(half)]);
      [[fallthrough]];
    default:
      compute(half, stage, 1);
  }
}

double UnequalRanks::Playing::step_us() {
  std::array<Half, kMaxHalves> halves;
  for (int half = 0; half < kMaxHalves; ++half)
    halves[static_cast<size_t>(half)] = Half{.index = half, .rows = {half, 1}};
  const PlayedPass pass{order_, layers_.num_layers(), EmptyHalves::played};
  play(pass, std::span(halves).first(static_cast<size_t>(order_.num_halves)),
       [&](int layer, Op op, const Half& half) {
         const OpGraph& graph = layer < layers_.num_dense ? dense_graph()
                                : layers_.has_shared      ? shared_moe_graph()
                                                          : moe_graph();
         if (graph.has(op)) run_op(layer, op, half.index);
       });
  double slowest_us = 0;
  for (const Rank& rank : ranks_) slowest_us = std::max(slowest_us, rank.now);
  return slowest_us + layers_.other_us;
}

double UnequalRanks::step_us(const Plan& plan, const Bucket& bucket) const {
  return Playing(*this, plan, bucket).step_us();
}

// A ledger books a transfer until its last byte, whether that waits for this rank's in link or for
// a peer's out link.
std::vector<StepReport> UnequalRanks::reports(const Plan& plan, const Bucket& bucket,
                                              double step_us) const {
  double most_sent = 0, most_received = 0;
  for (const AlikeRanks& alike : ranks_) {
    const RowsOfRank rows(alike, num_ranks_);
    most_sent = std::max(most_sent, rows.sent);
    most_received = std::max(most_received, rows.received);
  }
  struct BookedTimes final : StageModel {
    StageTimes at(const Bucket& of) const override {
      StageTimes times = all->times_of(*alike, of);
      const StageTimes even = all->even_.at(of);
      times.dispatch.busy_us = dispatch * even.dispatch.busy_us;
      times.combine.busy_us = combine * even.combine.busy_us;
      return times;
    }
    const UnequalRanks* all = nullptr;
    const AlikeRanks* alike = nullptr;
    double dispatch = 1, combine = 1;
  };
  std::vector<StepReport> reports;
  for (const AlikeRanks& alike : ranks_) {
    const RowsOfRank rows(alike, num_ranks_);
    BookedTimes booked;
    booked.all = this, booked.alike = &alike;
    booked.dispatch = std::max(rows.received, most_sent);
    booked.combine = std::max(rows.sent, most_received);
    const SearchInput step{
        .model = booked, .orders = OrderTable::builtin(), .layers = layers_, .bucket = bucket};
    reports.push_back(testing::report_of(step, plan, [](double us) { return us; }));
    reports.back().step_us = static_cast<float>(step_us);
  }
  return reports;
}

}  // namespace hocket
