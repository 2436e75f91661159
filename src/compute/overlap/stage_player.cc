#include "compute/overlap/stage_player.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compute/comm/message_head.h"
#include "compute/overlap/executor.h"

namespace hocket {
namespace {

// Returns the time of a part in whole nanoseconds; the first part also has the remainder.
Duration time_of_part(double us, int part, int parts) {
  const auto whole = std::llround(us * 1e3);
  const auto each = whole / parts;
  return Duration(part == 0 ? whole - each * (parts - 1) : each);
}

size_t bytes_of(double busy_us, double bytes_per_s, int num_messages) {
  const double bytes = busy_us * 1e-6 * bytes_per_s / num_messages;
  return static_cast<size_t>(
      std::max(std::round(bytes) - static_cast<double>(sizeof(MessageHead)), 0.0));
}

}  // namespace

Prediction predict(const PlanTimes& plan, const LayerCounts& layers) {
  return Predictor(plan.halves, plan.parts, layers).predict(plan.order);
}

struct StagePlayer::Playing {
  const PlanTimes& plan;
  StageWork& work;
  int layer = 0;
  Result<void> status = {};  // the first error stays

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
  const size_t most = bytes_of(options.longest_busy_us, options.bytes_per_s, num_peers) + 1;
  AllToAll::Options exchange;
  for (int half = 0; half < options.num_halves; ++half)
    for (int part = 0; part < kMaxParts; ++part)
      exchange.most_bytes.at(static_cast<size_t>(lane_of(half, part))) = {most, most, 0};
  exchange.watch = options.watch;
  HOCKET_TRY(auto made, AllToAll::create(transport, exchange));
  return std::unique_ptr<StagePlayer>(new StagePlayer(options, std::move(made), most));
}

StagePlayer::StagePlayer(const Options& options, std::unique_ptr<AllToAll> exchange,
                         size_t most_bytes)
    : options_(options), exchange_(std::move(exchange)), bytes_(most_bytes), pieces_(1) {
  messages_.resize(static_cast<size_t>(exchange_->num_ranks()));
  for (int half = 0; half < kMaxHalves; ++half)
    halves_[static_cast<size_t>(half)] = Half{.index = half, .rows = {half, 1}};
}

Result<void> StagePlayer::play(const PlanTimes& plan, StageWork& work) {
  HOCKET_CHECK(plan.order.num_halves <= options_.num_halves);
  HOCKET_CHECK(plan.halves.size() == static_cast<size_t>(plan.order.num_halves));
  ++step_;
  Playing playing{.plan = plan, .work = work};
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

void StagePlayer::spend_part(Playing& playing, int half, Op op, int part) {
  const Duration time = time_of_part(playing.times(half).of(op), part, playing.plan.parts);
  if (time.count() > 0) playing.work.spend(time);
}

void StagePlayer::start(Playing& playing, int half, int part, MessageKind kind) {
  const StageTimes& times = playing.times(half);
  const bool is_out = kind == MessageKind::dispatch;
  const int num_messages = playing.plan.parts * (exchange_->num_ranks() - 1);
  const double busy_us = (is_out ? times.dispatch : times.combine).busy_in(playing.plan.parts);
  const size_t num_bytes = bytes_of(busy_us, options_.bytes_per_s, num_messages);
  HOCKET_CHECK(num_bytes <= bytes_.size());
  pieces_[0] = std::span(bytes_).first(num_bytes);
  std::ranges::fill(messages_, std::span(pieces_));
  playing.note(exchange_->start(lane_of(half, part), kind, playing.stamp(step_), messages_));
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

void StagePlayer::run_op(Playing& playing, int layer, Op op, int half) {
  const int num_parts = playing.plan.parts;
  Parts& parts = parts_[static_cast<size_t>(half)];
  playing.layer = layer;
  playing.work.begin_op(layer, op, half);
  switch (op) {
    case Op::dispatch_start:
      if (const auto time = time_of_part(playing.times(half).of(op), 0, 1); time.count() > 0)
        playing.work.spend(time);
      parts = {.num_open = num_parts};
      for (int part = 0; part < num_parts; ++part) {
        parts.open[static_cast<size_t>(part)] = lane_of(half, part);
        start(playing, half, part, MessageKind::dispatch);
      }
      break;
    case Op::dispatch_wait:
      spend_part(playing, half, op, wait_part(playing, half));
      break;
    case Op::experts:
      spend_part(playing, half, op, 0);
      while (parts.num_open > 0) {
        spend_part(playing, half, Op::combine_start, parts.num_done - 1);
        start(playing, half, parts.at, MessageKind::combine);
        const int part = wait_part(playing, half);
        spend_part(playing, half, Op::dispatch_wait, part);
        playing.work.spend(time_of_part(playing.times(half).of(op), part, num_parts) +
                           time_of_part(playing.times(half).part_us, 0, 1));
      }
      break;
    case Op::combine_start:
      spend_part(playing, half, op, num_parts - 1);
      start(playing, half, parts.at, MessageKind::combine);
      break;
    case Op::combine_wait:
      for (int part = 0; part < num_parts; ++part) {
        const int lane = lane_of(half, part);
        playing.note(exchange_->wait(lane, MessageKind::combine, playing.stamp(step_)));
        exchange_->release(lane, MessageKind::combine);
      }
      [[fallthrough]];
    default:
      if (const auto time = time_of_part(playing.times(half).of(op), 0, 1); time.count() > 0)
        playing.work.spend(time);
  }
  playing.work.end_op();
}

}  // namespace hocket
