#include "compute/moe/per_expert_exchange.h"

#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {

PerExpertExchange::PerExpertExchange(const Config& config)
    : RowExchange(config, RowLayout::per_expert),
      leaving_(config.placements.first().num_places()),
      message_first_(config.limits.exchange.max_parts * config.num_ranks),
      back_first_(message_first_.size()) {}

void PerExpertExchange::begin_pass(const Grain& grain, int first_layer) {
  RowExchange::begin_pass(grain, first_layer);
  if (grain != placed_) place_experts();
}

int PerExpertExchange::max_rows(int num_experts) const {
  return config_.limits.exchange.max_decode_rows * std::min(config_.top_k, num_experts);
}

RowExchange::Range PerExpertExchange::experts_of(int rank, int part) const {
  return cut({0, static_cast<int>(config_.placements.first().experts_of(rank).size())}, part,
             grain_.parts);
}

// Gives the places of all ranks their turns in the sequence in which rows leave. These are the same
// in all layers, since a rank has as many places in each.
void PerExpertExchange::place_experts() {
  const Placement& any = config_.placements.first();
  int32_t turn = 0;
  for (int part = 0; part < grain_.parts; ++part)
    for (int order = 1; order <= config_.num_ranks; ++order) {
      const int rank = (config_.rank + order) % config_.num_ranks;
      message_first_[part * config_.num_ranks + rank] = turn;
      for (int wave = 0; wave < grain_.waves; ++wave) {
        const Range experts = cut(experts_of(rank, part), wave, grain_.waves);
        const int back = (wave * grain_.parts + part) * config_.num_ranks + rank;
        back_first_[back] = turn;
        for (int64_t local = experts.begin; local < experts.end(); ++local)
          leaving_[any.place_at(rank, static_cast<int>(local))] = {turn++, back};
      }
    }
  placed_ = grain_;
}

// Returns the begins of the half's leaving rows in all parts: [places by their turn + 1].
int32_t* PerExpertExchange::offsets_of(const Part& part) const {
  return part.context.work.exchange.sent_offsets.row(part.half.index *
                                                     config_.limits.exchange.max_parts);
}

RowExchange::Range PerExpertExchange::leaving(const Part& part, int rank) const {
  const int32_t* const offsets =
      offsets_of(part) + message_first_[part.index * config_.num_ranks + rank];
  return {int64_t{part.half.rows.begin} * config_.top_k + offsets[0],
          offsets[experts_of(rank, part.index).count] - offsets[0]};
}

// Lists the leaving rows of all parts at once: by part, rank and expert, one row for every slot.
// Sets work.expert_position to the number of a slot's row in the message in which it is sent back.
// Rank 1 of 3, with two experts a rank and one part:
//
//   sent_from   | e4: t0 t2 | e5: t1 | e0: t0 | e1: t2 | e2: | e3: t1 |
//   offsets       0           2        3        4        5     5        6
//   message     | to rank 2          | to rank 0       | own rows       |
void PerExpertExchange::list_dispatch(const Part& part, const MatrixView& normed) {
  if (part.index > 0) return;
  const WorkBuffers& work = part.context.work;
  const ExchangeBuffers& lists = work.exchange;
  const RowRange rows = part.half.rows;
  const int64_t first = int64_t{rows.begin} * config_.top_k;
  const int num_places = config_.placements.first().num_places();
  const std::span<int32_t> offsets(offsets_of(part), num_places + 1);
  const View<int32_t> position = work.expert_position.slice_rows(rows.begin, rows.count);
  quantize_dispatch(part, normed, {0, rows.count});
  choose_ranks_of_rows(part, {0, rows.count});

  std::ranges::fill(offsets, 0);
  for (int t = 0; t < rows.count; ++t)
    for (int s = 0; s < config_.top_k; ++s) ++offsets[leaving_[places_of(part, t)[s]].turn + 1];
  for (int i = 0; i < num_places; ++i) offsets[i + 1] += offsets[i];
  for (int p = 0; p < grain_.parts; ++p)
    for (int rank = 0; rank < config_.num_ranks; ++rank) {
      const int32_t* const starts = offsets.data() + message_first_[p * config_.num_ranks + rank];
      const std::span<uint32_t> counts = counts_for({part.context, part.half, p}, rank);
      for (size_t e = 0; e < counts.size(); ++e) counts[e] = starts[e + 1] - starts[e];
    }
  std::array<int32_t, size_t{kMaxParts} * kMaxExpertRanks> begins;  // one for each message back
  for (int back = 0; back < grain_.num_waves() * config_.num_ranks; ++back)
    begins[back] = offsets[back_first_[back]];
  for (int t = 0; t < rows.count; ++t)
    for (int s = 0; s < config_.top_k; ++s) {
      const Leaving& to = leaving_[places_of(part, t)[s]];
      const int32_t row = offsets[to.turn]++;
      lists.sent_from[first + row] = t;
      position.row(t)[s] = row - begins[to.message];
    }
  move_back(offsets);
}

void PerExpertExchange::list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                                     std::span<int32_t> segments) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const int experts = experts_of(config_.rank, part.index).count;
  for (int peer = 0; peer < config_.num_ranks; ++peer)
    for (int e = 0, row = 0; e < experts; ++e) {
      const int32_t* const segment = segments.data() + e * config_.num_ranks + peer;
      for (int32_t i = segment[0]; i < segment[1]; ++i) lists.sources[i] = arrived[peer].row(row++);
    }
}

// Copies the result rows, rank by rank, in the sequence in which their rows arrived.
void PerExpertExchange::write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                                      Returned& returned) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const int first =
      rows.first_expert - static_cast<int>(experts_of(config_.rank, part.index).begin);
  const int32_t* const segments = lists.segments.row(part.half.index) + first * config_.num_ranks;
  const int experts = static_cast<int>(rows.offsets.size()) - 1;
  const int32_t begin = rows.offsets.front();
  const int64_t row_bytes = rows.y.stride * size_of(rows.y.dtype);
  int32_t at = 0;
  for (int peer = 0; peer < config_.num_ranks; ++peer) {
    returned.first[peer] = begin + at;
    for (int e = 0; e < experts; ++e) {
      const int32_t* const segment = segments + e * config_.num_ranks + peer;
      for (int32_t row = segment[0]; row < segment[1]; ++row)
        lists.sources[at++] = static_cast<const std::byte*>(rows.y.data) + row * row_bytes;
    }
  }
  returned.first[config_.num_ranks] = begin + at;
  const std::span<const std::byte* const> sources(lists.sources, at);
  const MatrixView to = out.slice_rows(begin, at);
  if (config_.limits.int8_combine)
    quantize_rows(part.context.backend, sources, rows.y.dtype, rows.y.cols, to);
  else
    gather_rows(part.context.backend, sources, to);
}

void PerExpertExchange::expect_results(const Part& part, const Routing&, std::span<int> counts) {
  const int32_t* const offsets = offsets_of(part);
  for (int rank = 0; rank < config_.num_ranks; ++rank) {
    const int experts = cut(experts_of(rank, part.index), part.wave, grain_.waves).count;
    const int32_t* const begin =
        offsets + back_first_[back_message(part) * config_.num_ranks + rank];
    counts[rank] = begin[experts] - begin[0];
  }
}

void PerExpertExchange::sum_results(const Part& part, const CombineInputs& in) {
  const Range rows = {0, part.half.rows.count};
  find_results(part, rows, in, [&](int place, int32_t position) {
    return ResultLocation{leaving_[place].message, position};
  });
  sum_located(part, rows, in, in.routing.weights);
}

}  // namespace hocket
