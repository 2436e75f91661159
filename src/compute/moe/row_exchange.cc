#include "compute/moe/row_exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const View<T>& rows) {
  return {reinterpret_cast<const std::byte*>(rows.data),
          static_cast<size_t>(rows.rows * rows.cols) * sizeof(T)};
}

}  // namespace

RowExchange::RowExchange(const Config& config, RowLayout layout)
    : config_(config), layout_(layout) {
  for (auto& half : returned_)
    for (Returned& part : half) part.first.resize(config.num_ranks + 1);
}

MessageFormat RowExchange::dispatch_format(int rank, const Part& part) const {
  const int num_experts = experts_of(rank, part.index).count;
  const size_t layer = std::min(static_cast<size_t>(first_layer_ + part.context.layer),
                                config_.exclusive_experts.size() - 1);
  return {.layout = layout_,
          .dtype = config_.limits.int8_dispatch ? DType::int8 : config_.dtype,
          .num_experts = num_experts,
          .top_k = config_.top_k,
          .max_rows = max_rows(num_experts),
          .row_bytes = config_.dispatch_row_bytes,
          .exclusive_experts = config_.exclusive_experts[layer]};
}

MessageFormat RowExchange::combine_format() const {
  return {.layout = layout_,
          .dtype = result_dtype(),
          .top_k = config_.top_k,
          .row_bytes = config_.result_row_bytes};
}

// Returns the memory for the head of a combine; that for a dispatch follows it.
std::byte* RowExchange::head_of(const Part& part, int message, int rank) const {
  const int number = part.half.index * config_.limits.exchange.max_parts + message;
  return part.context.work.exchange.heads.row(number * config_.num_ranks + rank);
}

std::span<uint32_t> RowExchange::counts_for(const Part& part, int rank) const {
  std::byte* const head = head_of(part, part.index, rank) + kMessageHeadBytes;
  return {reinterpret_cast<uint32_t*>(head + kMessageHeadBytes),
          static_cast<size_t>(experts_of(rank, part.index).count)};
}

// The load of a rank is the time of its products, in rows: that of the rows, and kOpenedRows for
// the weights of every expert that has any. Experts with one place are counted first; those with
// replicas then go to the rank with the least load, and equal ranks take turns by expert. If row t
// chooses A, on rank 0 alone, and B, on ranks 0 and 2, and row u chooses B:
//
//             load of rank 0   rank 1   rank 2
//   t to A          17            0        0      the only place of A
//   t to B          17            0       17      rank 0 would have 34
//   u to B          17            0       18      rank 2 reads the weights of B already
void RowExchange::choose_ranks_of_rows(const Part& part, const Range& rows) const {
  constexpr int kOpenedRows = 16;
  const Placement& placement = placement_of(part);
  const Routing& routing = part.half.state.routing.peek();
  for (int64_t t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < config_.top_k; ++s)
      places_of(part, t)[s] = placement.place_of(routing.ids.row(t)[s]);
  if (!placement.has_replicas()) return;

  std::array<int64_t, kMaxExpertRanks> load{};
  std::array<uint64_t, kMaxPlaces / 64> opened{};
  const auto cost = [&](int place) {
    return (opened[place / 64] >> (place % 64) & 1) != 0 ? 1 : 1 + kOpenedRows;
  };
  const auto compute_at = [&](int place) {
    load[placement.rank_at(place)] += cost(place);
    opened[place / 64] |= uint64_t{1} << (place % 64);
  };
  const auto each_slot = [&](bool has_choice, auto visit) {
    for (int64_t t = rows.begin; t < rows.end(); ++t)
      for (int s = 0; s < config_.top_k; ++s)
        if (const int expert = routing.ids.row(t)[s];
            (placement.places_of(expert).size() > 1) == has_choice)
          visit(expert, places_of(part, t)[s]);
  };
  each_slot(false, [&](int, int32_t place) { compute_at(place); });
  each_slot(true, [&](int expert, int32_t& chosen) {
    const std::span<const int> places = placement.places_of(expert);
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < places.size(); ++i) {
      const int place = places[(static_cast<size_t>(expert) + i) % places.size()];
      const int64_t then = load[placement.rank_at(place)] + cost(place);
      if (then < least) least = then, chosen = place;
    }
    compute_at(chosen);
  });
}

void RowExchange::quantize_dispatch(const Part& part, const MatrixView& normed,
                                    const Range& rows) const {
  if (!config_.limits.int8_dispatch) return;
  quantize_rows(
      part.context.backend, normed.slice_rows(rows.begin, rows.count),
      part.context.work.leaving.slice_rows(part.half.rows.begin + rows.begin, rows.count));
}

void RowExchange::gather_dispatch(const Part& part) const {
  const WorkBuffers& work = part.context.work;
  const ExchangeBuffers& lists = work.exchange;
  const int64_t begin = leaving(part, (config_.rank + 1) % config_.num_ranks).begin;
  const int64_t end = leaving(part, config_.rank).begin;
  gather_rows(
      part.context.backend, work.leaving.slice_rows(part.half.rows.begin, part.half.rows.count),
      {lists.sent_from + begin, lists.sent_from + end}, lists.sent.slice_rows(begin, end - begin));
}

RowExchange::Pieces RowExchange::dispatch_to(const Part& part, int rank) const {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const Range rows = leaving(part, rank);
  const MessageFormat format = dispatch_format(rank, part);
  std::byte* const head = head_of(part, part.index, rank) + kMessageHeadBytes;
  write_head(format, rows.count, head);
  const SlotLists slots = slots_of(part.context.work, rows);
  const auto* const sent = static_cast<const std::byte*>(lists.sent.data);
  return {std::span<const std::byte>(head,
                                     static_cast<size_t>(dispatch_head_bytes(format.num_experts))),
          bytes_of(slots.ids), bytes_of(slots.weights),
          std::span(sent + rows.begin * config_.dispatch_row_bytes,
                    static_cast<size_t>(rows.count * config_.dispatch_row_bytes))};
}

ArrivedRows RowExchange::own_rows(const Part& part) const {
  const WorkBuffers& work = part.context.work;
  const Range rows = leaving(part, config_.rank);
  const SlotLists slots = slots_of(work, rows);
  return {.num_rows = rows.count,
          .counts = counts_for(part, config_.rank),
          .ids = slots.ids,
          .weights = slots.weights,
          .rows = static_cast<const std::byte*>(
              work.leaving.slice_rows(part.half.rows.begin, part.half.rows.count).data),
          .row_bytes = config_.dispatch_row_bytes,
          .index = work.exchange.sent_from + rows.begin};
}

// The begins of the arrived rows, in each wave:
//
//   segments    e0: r0 | r1 | r2   e1: r0 | r1 | r2   ...   begin of each source's rows
//   offsets     ^ e0               ^ e1                     begin of each expert's rows
ExpertRows RowExchange::arrange(const Part& part, std::span<const ArrivedRows> arrived) {
  const WorkBuffers& work = part.context.work;
  const ExchangeBuffers& lists = work.exchange;
  const int half = part.half.index, experts = experts_of(config_.rank, part.index).count;
  const int waves = waves_have_rows() ? grain_.waves : 1;
  const std::span<int32_t> segments(lists.segments.row(half),
                                    waves * experts * config_.num_ranks + 1);
  std::ranges::fill(segments, 0);
  if (waves > 1) {
    count_by_wave(arrived, experts, segments);
  } else if (!arrived.empty()) {
    for (int peer = 0; peer < config_.num_ranks; ++peer) {
      if (arrived[peer].num_rows == 0) continue;  // an absent rank has no counts
      for (int e = 0; e < experts; ++e)
        segments[e * config_.num_ranks + peer] = static_cast<int32_t>(arrived[peer].counts[e]);
    }
  }
  int32_t at = 0;
  for (int32_t& segment : segments) at += std::exchange(segment, at);
  for (int wave = 0; wave < waves; ++wave) {
    int32_t* const offsets = lists.expert_offsets.row(half) + wave * (experts + 1);
    for (int e = 0; e <= experts; ++e)
      offsets[e] = segments[(wave * experts + e) * config_.num_ranks];
  }
  if (!arrived.empty()) list_arrived(part, arrived, segments);

  // Results of earlier parts are still being sent from x, so each part has its own region of it. y
  // is read before the next part arrives, so parts share it.
  int64_t& taken = num_arrived_[half];
  const auto region = [&](MatrixView all, int64_t used) {
    const int64_t capacity = lists.shape.expert_rows();
    return all.slice_rows(ExchangeBuffers::region_begin(half, capacity, used, at), at);
  };
  arranged_[half] = {region(work.expert_x, taken), region(work.expert_y, 0)};
  taken += at;
  const std::span<const std::byte* const> sources(lists.sources, at);
  if (config_.limits.int8_dispatch) {
    dequantize_rows(part.context.backend, sources, arranged_[half].x);
  } else {
    gather_rows(part.context.backend, sources, arranged_[half].x);
  }
  return next_wave(part);
}

ExpertRows RowExchange::next_wave(const Part& part) const {
  const int half = part.half.index;
  const Range experts = experts_of(config_.rank, part.index);
  const int32_t* const offsets = part.context.work.exchange.expert_offsets.row(half);
  ExpertRows rows = {.x = arranged_[half].x, .y = arranged_[half].y};
  if (waves_have_rows()) {
    const size_t each = experts.count + 1;
    rows.offsets = {offsets + part.wave * each, each};
    rows.first_expert = static_cast<int>(experts.begin);
    rows.gate_up_done = part.wave > 0;
    if (part.wave == 0 && grain_.waves > 1) rows.gate_up_offsets = {offsets, each * grain_.waves};
  } else {
    const Range here = cut({0, experts.count}, part.wave, grain_.waves);
    rows.offsets = {offsets + here.begin, static_cast<size_t>(here.count + 1)};
    rows.first_expert = static_cast<int>(experts.begin + here.begin);
  }
  return rows;
}

void RowExchange::make_results(const Part& part, const ExpertRows& rows) {
  Returned& back = returned_of(part);
  back.rows = static_cast<const std::byte*>(rows.x.data);
  // A row in int8 is no longer than one of activations, so it overwrites none behind it.
  const int64_t columns = quantized_columns(rows.x.cols);
  write_results(part, rows,
                config_.limits.int8_combine
                    ? MatrixView{rows.x.data, DType::int8, rows.x.rows, columns, columns}
                    : rows.x,
                back);
}

RowExchange::Pieces RowExchange::combine_to(const Part& part, int rank) const {
  const Returned& back = returned_[part.half.index][back_message(part)];
  const int first = back.first[rank], count = back.first[rank + 1] - first;
  std::byte* const head = head_of(part, back_message(part), rank);
  write_head(combine_format(), count, head);
  return {std::span<const std::byte>(head, kMessageHeadBytes),
          std::span(back.rows + first * config_.result_row_bytes,
                    static_cast<size_t>(count * config_.result_row_bytes))};
}

const std::byte* RowExchange::own_results(const Part& part) const {
  const Returned& back = returned_[part.half.index][back_message(part)];
  return back.rows + back.first[config_.rank] * config_.result_row_bytes;
}

void RowExchange::sum_located(const Part& part, const Range& rows, const CombineInputs& in,
                              View<const float> weights) const {
  const WorkBuffers& work = part.context.work;
  const auto of_rows = [&](auto view) {
    return view.rows > 0 ? view.slice_rows(rows.begin, rows.count) : view;
  };
  combine_placed(part.context.backend, {.dtype = result_dtype(),
                                        .rows = {work.exchange.results, rows.count, config_.top_k},
                                        .ids = of_rows(in.routing.ids),
                                        .weights = of_rows(weights),
                                        .leaves = config_.leaves,
                                        .output_scale = config_.output_scale,
                                        .shared = of_rows(in.shared),
                                        .residual = work.results.slice_rows(
                                            part.half.rows.begin + rows.begin, rows.count)});
}

void RowExchange::move_back(std::span<int32_t> starts) {
  std::shift_right(starts.begin(), starts.end(), 1);
  starts[0] = 0;
}

}  // namespace hocket
