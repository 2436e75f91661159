#include "compute/overlap/stage_player_testing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "compute/comm/message_head.h"
#include "compute/overlap/executor.h"

namespace hocket {
namespace {

int64_t whole_ns(double us) {
  return std::llround(us * 1e3);
}

size_t bytes_of(double busy_us, double bytes_per_s, int num_messages) {
  const double bytes = busy_us * 1e-6 * bytes_per_s / num_messages;
  return static_cast<size_t>(
      std::max(std::round(bytes) - static_cast<double>(sizeof(MessageHead)), 0.0));
}

// Returns what a rank's dispatch sends to a peer, as a multiple of the mean over its peers.
double weight_of(const std::vector<double>& loads, size_t rank, size_t peer) {
  if (loads.empty()) return 1;
  const auto num_ranks = static_cast<double>(loads.size());
  return loads[peer] * (num_ranks - 1) / (num_ranks - loads[rank]);
}

double max_weight(const std::vector<double>& loads) {
  double most = 1;
  for (size_t rank = 0; rank < loads.size(); ++rank)
    for (size_t peer = 0; peer < loads.size(); ++peer)
      if (peer != rank) most = std::max(most, weight_of(loads, rank, peer));
  return most;
}

}  // namespace

Prediction predict(const PlanTimes& plan, const LayerCounts& layers) {
  return Predictor(plan.halves, plan.grain, layers).predict(plan.order);
}

struct StagePlayer::Playing {
  const PlanTimes& plan;
  const LayerKinds& kinds;
  StageWork& work;
  int layer = 0;
  Result<void> status = {};  // the first error stays

  // Spends the time of one of several equal shares of an operation.
  void spend(int half, Op op, int share, int shares) {
    spend(Duration(time_of_piece(whole_ns(times(half).of(op, kinds.of(layer))), share, shares)));
  }
  void spend_wave(int half, int wave) {
    const StageTimes& of = times(half);
    spend(Duration(time_of_wave(whole_ns(of.of(Op::experts)), plan.grain, wave, of.up_first) +
                   whole_ns(of.added_us(plan.grain, wave))));
  }
  void spend(Duration time) {
    if (time.count() > 0) work.spend(time);
  }
  const StageTimes& times(int half) const { return plan.halves[static_cast<size_t>(half)]; }
  Stamp stamp(uint64_t step) const { return {.step = step, .layer = static_cast<uint16_t>(layer)}; }
  void note(Result<void> result) {
    if (status && !result) status = std::move(result);
  }
};

Result<std::unique_ptr<StagePlayer>> StagePlayer::create(Transport& transport,
                                                         const Options& options) {
  HOCKET_CHECK(options.num_halves >= 1 && options.num_halves <= kMaxHalves);
  const int num_peers = transport.num_ranks() - 1;
  HOCKET_CHECK(num_peers >= 1);
  if (!options.loads.empty()) HOCKET_CHECK(std::ssize(options.loads) == transport.num_ranks());
  const double longest_us = max_weight(options.loads) * options.longest_busy_us;
  const size_t most = bytes_of(longest_us, options.bytes_per_s, num_peers) + 1;
  AllToAll::Options exchange;
  for (int half = 0; half < options.num_halves; ++half)
    for (int part = 0; part < kMaxParts; ++part)
      exchange.max_bytes.at(static_cast<size_t>(lane_of(half, part))) = {most, most, 0};
  exchange.watch = options.watch;
  HOCKET_TRY(auto made, AllToAll::create(transport, exchange));
  return std::unique_ptr<StagePlayer>(new StagePlayer(options, std::move(made), most));
}

StagePlayer::StagePlayer(Options options, std::unique_ptr<AllToAll> exchange, size_t max_bytes)
    : options_(std::move(options)),
      exchange_(std::move(exchange)),
      bytes_(max_bytes),
      pieces_(static_cast<size_t>(exchange_->num_ranks())) {
  for (size_t rank = 0; rank < pieces_.size(); ++rank)
    messages_.push_back(std::span(pieces_).subspan(rank, 1));
  for (int half = 0; half < kMaxHalves; ++half)
    halves_[static_cast<size_t>(half)] = Half{.index = half, .rows = {half, 1}};
}

Result<void> StagePlayer::play(const PlanTimes& plan, StageWork& work) {
  HOCKET_CHECK(plan.order.num_halves <= options_.num_halves);
  HOCKET_CHECK(plan.halves.size() == static_cast<size_t>(plan.order.num_halves));
  ++step_;
  Playing playing{.plan = plan, .kinds = options_.layers.kinds, .work = work};
  const PlayedPass pass{plan.order, options_.layers.num_layers(), EmptyHalves::played};
  hocket::play(pass, std::span(halves_).first(plan.halves.size()),
               [&](int layer, Op op, const Half& half) {
                 const bool is_dense = layer < options_.layers.num_dense;
                 const OpGraph& graph = is_dense                     ? dense_graph()
                                        : options_.layers.has_shared ? shared_moe_graph()
                                                                     : moe_graph();
                 if (graph.has(op)) run_op(playing, layer, op, half.index);
               });
  return playing.status;
}

void StagePlayer::start(Playing& playing, int half, int message, MessageKind kind) {
  const StageTimes& times = playing.times(half);
  const bool is_out = kind == MessageKind::dispatch;
  const Grain& grain = playing.plan.grain;
  const int num_peers = exchange_->num_ranks() - 1;
  const TransferTime& transfer = is_out ? times.dispatch : times.combine;
  const double share = is_out ? 1.0 / grain.parts
                              : transfer.share_of_waves(message + 1, grain) -
                                    transfer.share_of_waves(message, grain);
  const double busy_us = share * transfer.busy_in(grain);
  const auto own = static_cast<size_t>(exchange_->rank());
  for (size_t peer = 0; peer < pieces_.size(); ++peer) {
    if (peer == own) continue;
    const double weight = is_out ? weight_of(options_.loads, own, peer) : 1;
    const size_t num_bytes = bytes_of(weight * busy_us, options_.bytes_per_s, num_peers);
    HOCKET_CHECK(num_bytes <= bytes_.size());
    pieces_[peer] = std::span(bytes_).first(num_bytes);
  }
  playing.note(exchange_->start(lane_of(half, message), kind, playing.stamp(step_), messages_));
}

// Waits for a part of the dispatch. Returns how many parts of the half had come before it.
int StagePlayer::wait_part(Playing& playing, int half) {
  Parts& parts = parts_[static_cast<size_t>(half)];
  const auto open = std::span<const int>(parts.open).first(static_cast<size_t>(parts.num_open));
  const Stamp stamp = playing.stamp(step_);
  int lane = open.front();
  if (open.size() > 1) {
    const Result<int> first = exchange_->wait_any(open, MessageKind::dispatch, stamp);
    if (first) lane = *first;
  }
  playing.note(exchange_->wait(lane, MessageKind::dispatch, stamp));
  exchange_->release(lane, MessageKind::dispatch);
  const auto end = std::remove(parts.open.begin(), parts.open.begin() + parts.num_open, lane);
  parts.num_open = static_cast<int>(end - parts.open.begin());
  parts.at = lane - lane_of(half, 0);
  return parts.num_done++;
}

// Sends the wave that was computed last.
void StagePlayer::send_back(Playing& playing, int half) {
  const Parts& parts = parts_[static_cast<size_t>(half)];
  const Grain& grain = playing.plan.grain;
  const int wave = parts.num_waves - 1;
  playing.spend(half, Op::combine_start, wave, grain.num_waves());
  start(playing, half, wave % grain.waves * grain.parts + parts.at, MessageKind::combine);
}

void StagePlayer::run_op(Playing& playing, int layer, Op op, int half) {
  const Grain& grain = playing.plan.grain;
  const int num_waves = grain.num_waves();
  Parts& parts = parts_[static_cast<size_t>(half)];
  playing.layer = layer;
  playing.work.begin_op(layer, op, half);
  switch (op) {
    case Op::dispatch_start:
      playing.spend(half, op, 0, 1);
      parts = {.num_open = grain.parts};
      for (int part = 0; part < grain.parts; ++part) {
        parts.open[static_cast<size_t>(part)] = lane_of(half, part);
        start(playing, half, part, MessageKind::dispatch);
      }
      break;
    case Op::dispatch_wait:
      playing.spend(half, op, wait_part(playing, half), grain.parts);
      break;
    case Op::experts:
      playing.spend_wave(half, parts.num_waves++);
      while (parts.num_waves < num_waves) {
        send_back(playing, half);
        if (parts.num_waves % grain.waves == 0)
          playing.spend(half, Op::dispatch_wait, wait_part(playing, half), grain.parts);
        playing.spend_wave(half, parts.num_waves++);
      }
      break;
    case Op::combine_start:
      send_back(playing, half);
      break;
    case Op::combine_wait:
      for (int wave = 0; wave < num_waves; ++wave) {
        const int lane = lane_of(half, wave);
        playing.note(exchange_->wait(lane, MessageKind::combine, playing.stamp(step_)));
        exchange_->release(lane, MessageKind::combine);
      }
      [[fallthrough]];
    default:
      playing.spend(half, op, 0, 1);
  }
  playing.work.end_op();
}

}  // namespace hocket
