#include "compute/moe/expert_parallel.h"

#include <algorithm>
#include <bit>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {
namespace {

int64_t row_bytes_of(const ModelConfig& model, DType dtype) {
  return round_up(model.hidden_size, kBlockK) * size_of(dtype);
}

int64_t leaving_bytes_of(const ExpertParallelDispatcher::Options& options) {
  return options.limits.int8_dispatch ? quantized_columns(options.model.hidden_size)
                                      : row_bytes_of(options.model, options.dtype);
}

int64_t result_bytes_of(const ExpertParallelDispatcher::Options& options) {
  return options.limits.int8_combine ? quantized_columns(options.model.hidden_size)
                                     : row_bytes_of(options.model, options.dtype);
}

bool is_number_of_parts(int parts) {
  return parts >= 1 && parts <= kMaxParts && std::has_single_bit(static_cast<unsigned>(parts));
}

std::vector<uint8_t> exclusive_experts(const Placement& placement, int rank) {
  std::vector<uint8_t> only;
  for (int expert = 0; expert < placement.num_experts(); ++expert)
    only.push_back(std::ranges::all_of(placement.places_of(expert),
                                       [&](int place) { return placement.rank_at(place) == rank; })
                       ? 1
                       : 0);
  return only;
}

std::vector<std::vector<uint8_t>> exclusive_experts(const Placements& placements, int rank) {
  std::vector<std::vector<uint8_t>> layers;
  for (const Placement& layer : placements.layers())
    layers.push_back(exclusive_experts(layer, rank));
  return layers;
}

int ceil_div(int n, int by) {
  return (n + by - 1) / by;
}

}  // namespace

ExchangeLimits ExpertParallelDispatcher::exchange_limits(const Placements& placement,
                                                         int max_decode_rows, int max_parts) {
  return {.num_ranks = placement.first().num_ranks(),
          .rank_experts = placement.first().max_experts(),
          .max_decode_rows = max_decode_rows,
          .max_parts = max_parts};
}

std::array<MessageSizes, kMaxLanes> ExpertParallelDispatcher::max_bytes(const Options& options) {
  const MoeConfig& moe = options.model.moe;
  const ExchangeLimits& limits = options.limits.exchange;
  const int all_experts = options.placement.first().max_experts();
  const int max_nodes = options.any_placement
                            ? all_experts
                            : CombineNodes::max_nodes(options.placement, options.combine_groups);
  std::array<MessageSizes, kMaxLanes> lanes{};
  for (int part = 0; part < limits.max_parts; ++part) {
    // A pass that has this part has at least `parts` parts.
    const int parts = static_cast<int>(std::bit_ceil(static_cast<unsigned>(part) + 1));
    const int64_t rows = ceil_div(options.limits.max_rows, parts);
    const int experts = ceil_div(all_experts, parts);
    const int64_t expert_rows = int64_t{limits.max_decode_rows} * std::min(moe.top_k, experts);
    MessageFormat format = {.layout = RowLayout::per_rank,
                            .num_experts = all_experts,
                            .top_k = moe.top_k,
                            .row_bytes = leaving_bytes_of(options)};
    int64_t dispatch = format.dispatch_bytes(rows);
    format.layout = RowLayout::per_expert;
    format.num_experts = experts;
    dispatch = std::max(dispatch, format.dispatch_bytes(expert_rows));
    // A row has one sum on a rank for each node there that has one of its experts. The sums of all
    // answers may leave in one wave.
    const int64_t summed_rows = std::max(rows, int64_t{limits.max_decode_rows});
    const int64_t sums = summed_rows * std::min(moe.top_k, max_nodes);
    format.row_bytes = result_bytes_of(options);
    const int64_t combine = format.combine_bytes(std::max(sums, expert_rows));
    for (int half = 0; half < kMaxHalves; ++half) {
      MessageSizes& sizes = lanes.at(static_cast<size_t>(lane_of(half, part)));
      sizes[static_cast<size_t>(MessageKind::dispatch)] = static_cast<size_t>(dispatch);
      sizes[static_cast<size_t>(MessageKind::combine)] = static_cast<size_t>(combine);
    }
  }
  return lanes;
}

ExpertParallelDispatcher::LayerPlaces::LayerPlaces(Placement given, int rank)
    : placement(std::move(given)), exclusive_experts(hocket::exclusive_experts(placement, rank)) {}

void ExpertParallelDispatcher::place(int layer, LayerPlaces& places) {
  HOCKET_CHECK(places.exclusive_experts.size() ==
               config_.exclusive_experts.at(static_cast<size_t>(layer)).size());
  config_.placements.swap(layer, places.placement);
  config_.exclusive_experts[static_cast<size_t>(layer)].swap(places.exclusive_experts);
}

Result<std::unique_ptr<ExpertParallelDispatcher>> ExpertParallelDispatcher::create(
    const Options& options, AllToAll& exchange) {
  const MoeConfig& moe = options.model.moe;
  HOCKET_CHECK(moe.num_experts > 0);
  const Placement& first = options.placement.first();
  HOCKET_CHECK(first.num_experts() == moe.num_experts);
  HOCKET_CHECK(first.num_ranks() == exchange.num_ranks());
  HOCKET_CHECK(first.num_places() <= kMaxPlaces);
  HOCKET_CHECK(exchange.num_ranks() <= kMaxExpertRanks);
  HOCKET_CHECK(options.limits.exchange.num_ranks == exchange.num_ranks());
  HOCKET_CHECK(first.max_experts() <= kMaxRankExperts);
  HOCKET_CHECK(is_number_of_parts(options.limits.exchange.max_parts));
  for (int rank = 0; rank < exchange.num_ranks(); ++rank)
    HOCKET_CHECK((exchange.has(rank) || first.experts_of(rank).empty()));
  HOCKET_TRY_VOID(options.placement.check_groups(options.combine_groups));
  return std::unique_ptr<ExpertParallelDispatcher>(new ExpertParallelDispatcher(
      {.placements = options.placement,
       .leaves = combine_leaves(moe.num_experts, options.combine_groups),
       .exclusive_experts = exclusive_experts(options.placement, exchange.rank()),
       .rank = exchange.rank(),
       .num_ranks = exchange.num_ranks(),
       .top_k = moe.top_k,
       .output_scale = static_cast<float>(moe.output_scale),
       .limits = options.limits,
       .dtype = options.dtype,
       .result_row_bytes = result_bytes_of(options),
       .dispatch_row_bytes = leaving_bytes_of(options)},
      exchange));
}

ExpertParallelDispatcher::ExpertParallelDispatcher(RowExchange::Config config, AllToAll& exchange)
    : config_(std::move(config)),
      exchange_(exchange),
      per_rank_(config_),
      per_expert_(config_),
      arrived_(config_.num_ranks) {
  for (HalfState& state : halves_) state.rows_from.resize(config_.num_ranks);
}

void ExpertParallelDispatcher::begin_pass(const PassSpec& pass, int num_rows) {
  pass_ = pass;
  const int max_parts = config_.num_ranks == 1 ? 1 : config_.limits.exchange.max_parts;
  HOCKET_CHECK((is_number_of_parts(pass.parts) && is_number_of_parts(pass.waves)));
  pass_.parts = std::min(pass.parts, max_parts);
  pass_.waves = std::min(pass.waves, max_parts / pass_.parts);
  const bool has_prompts = pass.phase == Phase::prefill;
  using WavesOf = PerRankExchange::WavesOf;
  per_rank_.cut_waves_of(has_prompts ? WavesOf::rows : WavesOf::experts);
  if (has_prompts || pass_.parts == 1)
    rows_ = &per_rank_;
  else
    rows_ = &per_expert_;
  rows_->begin_pass(grain(), pass.first_layer);
  HOCKET_CHECK(num_rows <= rows_->max_rows(1));
  for (HalfState& state : halves_) std::ranges::fill(state.rows_from, 0);
}

// Keeps the first error. Returns true if there was none so far.
bool ExpertParallelDispatcher::keep(Result<void> result) {
  if (!result && !error_) error_ = std::move(result).error();
  return !error_;
}

void ExpertParallelDispatcher::await_messages(const Half& half, int num_messages) {
  HalfState& state = halves_[half.index];
  state.num_pending = num_messages;
  for (int i = 0; i < num_messages; ++i) state.pending[i] = lane_of(half.index, i);
}

// Waits for the first of the pending messages to arrive and removes it from them. Returns its lane;
// -1 after an error. With four parts, of which part 2 arrives first:
//
//   await_messages   pending  | 0 | 1 | 2 | 3 |   num_pending 4
//   take_first: 2    pending  | 0 | 1 | 3 |       num_pending 3; the order of the rest stays
//   take_first: 0    pending  | 1 | 3 |           num_pending 2
//
// So experts compute what is there while other parts are on their way. The last one is waited for
// without a choice.
int ExpertParallelDispatcher::take_first(HalfState& state, MessageKind kind, int layer) {
  if (error_) return -1;
  const Stamp stamp = stamp_of(layer);
  const std::span<int> pending(state.pending.data(), static_cast<size_t>(state.num_pending));
  HOCKET_CHECK(!pending.empty());
  Result<int> lane = pending.size() > 1 ? exchange_.wait_any(pending, kind, stamp) : pending[0];
  if (lane)
    if (auto here = exchange_.wait(*lane, kind, stamp); !here) lane = fail(std::move(here).error());
  if (!lane) {
    keep(fail(std::move(lane).error()));
    return -1;
  }
  state.num_pending -= static_cast<int>(std::ranges::remove(pending, *lane).size());
  return *lane;
}

void ExpertParallelDispatcher::progress() {
  if (!error_) exchange_.progress();
}

void ExpertParallelDispatcher::progress_inside() {
  if (!error_) exchange_.progress_inside();
}

Result<void> ExpertParallelDispatcher::status() const {
  if (error_) return fail(*error_);
  return {};
}

// Sends every other rank its message.
void ExpertParallelDispatcher::send(const Part& part, MessageKind kind, MessageTo message_to) {
  std::array<Pieces, kMaxExpertRanks> pieces;
  std::array<AllToAll::Parts, kMaxExpertRanks> messages;
  for (int peer = 0; peer < config_.num_ranks; ++peer) {
    if (peer != config_.rank && exchange_.has(peer))
      pieces[peer] = (rows_->*message_to)(part, peer);
    messages[peer] = pieces[peer];
  }
  const int message = kind == MessageKind::dispatch ? part.index : rows_->back_message(part);
  keep(exchange_.start(lane_of(part.half.index, message), kind, stamp_of(part.context.layer),
                       std::span(messages.data(), config_.num_ranks)));
}

void ExpertParallelDispatcher::dispatch_start(const ExchangeContext& context, Half& half) {
  const MatrixView normed = half.state.normed.take();
  half.state.dispatched.set({});
  halves_[half.index].part = 0;
  halves_[half.index].wave = pass_.waves;
  await_messages(half, pass_.parts);
  if (error_) return;
  for (int index = 0; index < pass_.parts; ++index) {
    const Part part = {context, half, index};
    rows_->list_dispatch(part, normed);
    rows_->gather_dispatch(part);
    send(part, MessageKind::dispatch, &RowExchange::dispatch_to);
  }
}

bool ExpertParallelDispatcher::more_waves(const Half& half) const {
  const HalfState& state = halves_[half.index];
  return !error_ && (state.num_pending > 0 || state.wave + 1 < pass_.waves);
}

void ExpertParallelDispatcher::dispatch_wait(const ExchangeContext& context, Half& half) {
  HalfState& state = halves_[half.index];
  if (!half.state.dispatched.empty()) {  // only for the first part
    half.state.dispatched.take();
    std::ranges::fill(state.rows_from, 0);
    rows_->begin_layer(half);
  }
  if (state.wave + 1 < pass_.waves && !error_) {
    ++state.wave;
    exchange_.progress();  // the wave before travels while this one is computed
    half.state.arrived.set(rows_->next_wave({context, half, state.part, state.wave}));
    return;
  }
  state.wave = 0;
  const int lane = take_first(state, MessageKind::dispatch, context.layer);
  const bool here = lane >= 0;
  if (here) state.part = lane - lane_of(half.index, 0);
  const Part part = {context, half, state.part};
  const bool whole = here && keep(read_rows(part));
  half.state.arrived.set(
      rows_->arrange(part, whole ? std::span(arrived_) : std::span<ArrivedRows>()));
  if (here) exchange_.release(lane, MessageKind::dispatch);
}

// Sets arrived_ from the messages of the part in hand and from this rank's own rows. Errors:
// lost_rank (a message cannot be read, or a rank has sent more rows than a pass can have).
Result<void> ExpertParallelDispatcher::read_rows(const Part& part) {
  HalfState& state = halves_[part.half.index];
  const int here = static_cast<int>(config_.placements.first().experts_of(config_.rank).size());
  const int max_rows = rows_->max_rows(here);
  for (int peer = 0; peer < config_.num_ranks; ++peer) {
    if (peer == config_.rank) {
      arrived_[peer] = rows_->own_rows(part);
    } else if (!exchange_.has(peer)) {
      arrived_[peer] = {};
    } else {
      HOCKET_TRY(arrived_[peer], read_dispatch(exchange_.from(lane_of(part.half.index, part.index),
                                                              MessageKind::dispatch, peer),
                                               rows_->dispatch_format(config_.rank, part), peer));
    }
    state.rows_from[peer] += arrived_[peer].num_rows;
    int64_t rows = 0;
    for (const HalfState& any : halves_) rows += any.rows_from[peer];
    if (rows > max_rows)
      return fail(ErrorCode::lost_rank, "rank {} sent {} rows in a pass, more than {}", peer, rows,
                  max_rows);
  }
  return {};
}

void ExpertParallelDispatcher::combine_start(const ExchangeContext& context, Half& half) {
  const ExpertRows rows = half.state.computed.take();
  if (!more_waves(half)) half.state.combining.set(rows);
  if (error_) return;
  const Part part = {context, half, halves_[half.index].part, halves_[half.index].wave};
  rows_->make_results(part, rows);
  send(part, MessageKind::combine, &RowExchange::combine_to);
}

// Waits for all waves and adds their results to the residual as soon as they make whole sums.
void ExpertParallelDispatcher::combine_wait(const ExchangeContext& context, Half& half) {
  half.state.combining.take();
  const Routing routing = half.state.routing.take();
  const View<float> shared =
      half.state.shared_y.empty() ? View<float>() : half.state.shared_y.take();
  std::array<const std::byte*, size_t{kMaxParts} * kMaxExpertRanks> results;
  std::array<int, kMaxParts> lanes{};  // their messages are still to be added up
  int num_lanes = 0;
  HalfState& state = halves_[half.index];
  await_messages(half, grain().num_waves());
  while (state.num_pending > 0) {
    const int lane = take_first(state, MessageKind::combine, context.layer);
    if (lane < 0) return;
    const int message = lane - lane_of(half.index, 0);
    const Part part = {context, half, message % pass_.parts, message / pass_.parts};
    if (!keep(read_results(part, routing, results))) return;
    lanes[num_lanes++] = lane;
    if (!rows_->can_sum(state.num_pending)) continue;
    rows_->sum_results(part, {.routing = routing, .shared = shared, .results = results});
    for (; num_lanes > 0; --num_lanes)
      exchange_.release(lanes[num_lanes - 1], MessageKind::combine);
  }
}

// Sets the begin of the results of a wave from each rank, as in RowExchange::CombineInputs. Errors:
// lost_rank (a message cannot be read).
Result<void> ExpertParallelDispatcher::read_results(const Part& part, const Routing& routing,
                                                    std::span<const std::byte*> results) {
  std::array<int, kMaxExpertRanks> counts;
  const int back = rows_->back_message(part), lane = lane_of(part.half.index, back);
  rows_->expect_results(part, routing, std::span(counts.data(), config_.num_ranks));
  for (int peer = 0; peer < config_.num_ranks; ++peer) {
    const std::byte*& first = results[back * config_.num_ranks + peer];
    if (peer == config_.rank) {
      first = rows_->own_results(part);
      continue;
    }
    if (!exchange_.has(peer)) continue;  // it has no places, so nothing is looked for there
    HOCKET_TRY(first, read_combine(exchange_.from(lane, MessageKind::combine, peer),
                                   rows_->combine_format(), counts[peer], peer));
  }
  return {};
}

}  // namespace hocket
