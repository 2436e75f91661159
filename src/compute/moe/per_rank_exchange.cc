#include "compute/moe/per_rank_exchange.h"

#include <algorithm>
#include <utility>

#include "compute/kernels/combine.h"

namespace hocket {

RowExchange::Range PerRankExchange::experts_of(int rank, int /*part*/) const {
  return {0, static_cast<int>(config_.placements.first().experts_of(rank).size())};
}

// Returns the rows of a part, as places in the half.
RowExchange::Range PerRankExchange::rows_of(const Part& part) const {
  return cut({0, part.half.rows.count}, part.index, grain_.parts);
}

// Returns where the rows of a part begin in the lists of leaving rows.
int64_t PerRankExchange::first_sent(const Part& part) const {
  return (int64_t{part.half.rows.begin} + rows_of(part).begin) *
         std::min(config_.num_ranks, config_.top_k);
}

// Returns the begins of a part's leaving rows for each rank, the next rank first, from
// first_sent().
std::span<int32_t> PerRankExchange::offsets_of(const Part& part) const {
  const int number = part.half.index * config_.limits.exchange.max_parts + part.index;
  return {part.context.work.exchange.sent_offsets.row(number),
          static_cast<size_t>(config_.num_ranks + 1)};
}

RowExchange::Range PerRankExchange::leaving(const Part& part, int rank) const {
  const std::span<const int32_t> offsets = offsets_of(part);
  const int order = leaving_order(rank);
  return {first_sent(part) + offsets[order], offsets[order + 1] - offsets[order]};
}

RowExchange::SlotLists PerRankExchange::slots_of(const WorkBuffers& work, const Range& rows) const {
  return {work.exchange.sent_ids.slice_rows(rows.begin, rows.count),
          work.exchange.sent_weights.slice_rows(rows.begin, rows.count)};
}

// Lists the leaving rows rank by rank, each row once, with its slots there:
//
//   sent_from     | rank 2: t0 t3 t4 | rank 0: t1 t3 | own: t0 t2 ...      of rank 1 of 3
//   sent_offsets  0                  3               5
void PerRankExchange::list_dispatch(const Part& part, const MatrixView& normed) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const Routing& routing = part.half.state.routing.peek();
  const Placement& placement = placement_of(part);
  const Range rows = rows_of(part);
  const int64_t first = first_sent(part);
  const std::span<int32_t> offsets = offsets_of(part);
  quantize_dispatch(part, normed, rows);
  choose_ranks_of_rows(part, rows);
  std::array<uint32_t*, kMaxExpertRanks> counts;  // the rows of each rank's experts
  for (int rank = 0; rank < config_.num_ranks; ++rank) {
    const std::span<uint32_t> here = counts_for(part, rank);
    std::ranges::fill(here, 0u);
    counts[rank] = here.data();
  }

  std::array<int64_t, kMaxExpertRanks> last_listed;  // last row, by leaving order of its rank
  last_listed.fill(-1);
  std::ranges::fill(offsets, 0);
  for (int64_t t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < config_.top_k; ++s) {
      const int order = leaving_order(placement.rank_at(places_of(part, t)[s]));
      offsets[order + 1] += std::exchange(last_listed[order], t) == t ? 0 : 1;
    }
  for (int order = 0; order < config_.num_ranks; ++order) offsets[order + 1] += offsets[order];

  last_listed.fill(-1);
  for (int64_t t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < config_.top_k; ++s) {
      const int32_t* const ids = routing.ids.row(t);
      const int place = places_of(part, t)[s], rank = placement.rank_at(place);
      const int order = leaving_order(rank);
      if (std::exchange(last_listed[order], t) != t) {
        const int32_t row = offsets[order]++;
        lists.sent_from[first + row] = static_cast<int32_t>(t);
        std::transform(ids, ids + config_.top_k, lists.sent_ids.row(first + row),
                       [](int32_t id) { return -1 - id; });
        std::fill_n(lists.sent_weights.row(first + row), config_.top_k, 0.0f);
      }
      const int64_t row = first + offsets[order] - 1;
      lists.sent_ids.row(row)[s] = placement.local_at(place);
      lists.sent_weights.row(row)[s] = routing.weights.row(t)[s];
      ++counts[rank][placement.local_at(place)];
    }
  move_back(offsets);
}

void PerRankExchange::count_by_wave(std::span<const ArrivedRows> arrived, int experts,
                                    std::span<int32_t> segments) const {
  for (int peer = 0; peer < std::ssize(arrived); ++peer)
    for (int wave = 0; wave < grain_.waves; ++wave) {
      const Range rows = cut({0, arrived[peer].num_rows}, wave, grain_.waves);
      for (int64_t i = rows.begin; i < rows.end(); ++i)
        for (const int32_t id : std::span(arrived[peer].ids.row(i), config_.top_k))
          if (id >= 0) ++segments[(wave * experts + id) * config_.num_ranks + peer];
    }
}

// Lists for every arrived row, wave by wave and source by source, its slots here and where their
// expert rows are placed. The lists are kept until the sums are made; the messages are not.
void PerRankExchange::list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                                   std::span<int32_t> segments) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const int half = part.half.index, top_k = config_.top_k;
  const int experts = experts_of(config_.rank, part.index).count;
  const std::span<const int> experts_here = placement_of(part).experts_of(config_.rank);
  int64_t num_rows = 0;
  for (const ArrivedRows& rows : arrived) num_rows += rows.num_rows;
  int64_t row = ExchangeBuffers::region_begin(half, lists.shape.arriving_rows(), 0, num_rows);
  int32_t sum = 0;
  for (int wave = 0; wave < grain_.waves; ++wave) {
    std::vector<int32_t>& first = returned_of({part.context, part.half, part.index, wave}).first;
    const int64_t begin = row;
    for (int peer = 0; peer < config_.num_ranks; ++peer) {
      const ArrivedRows& rows = arrived[peer];
      const Range here = cut({0, rows.num_rows}, wave, grain_.waves);
      first[peer] = sum;
      for (int64_t i = here.begin; i < here.end(); ++i, ++row) {
        const int32_t* const ids = rows.ids.row(i);
        std::copy_n(rows.weights.row(i), top_k, lists.weights.row(row));
        lists.first_sum[row] = sum;
        int32_t* const nodes = lists.nodes.row(row);
        for (int s = 0; s < top_k; ++s) {
          lists.position.row(row)[s] = lists.ids.row(row)[s] = nodes[s] = -1;
          if (ids[s] < 0) continue;
          lists.ids.row(row)[s] = experts_here[ids[s]];
          nodes[s] = sent_node(config_.leaves[experts_here[ids[s]]], top_k, [&](int other) {
            return ids[other] < 0 ? config_.leaves[-1 - ids[other]] : -1;
          });
          const int32_t place = segments[(wave * experts + ids[s]) * config_.num_ranks + peer]++;
          lists.position.row(row)[s] = place;
          lists.sources[place] = rows.row(i);
          sum += std::find(nodes, nodes + s, nodes[s]) != nodes + s ? 0 : 1;
        }
      }
    }
    first[config_.num_ranks] = sum;
    arrived_[half][wave] = {begin, static_cast<int>(row - begin)};
  }
  move_back(segments);
}

// Writes one row for each node of each row that arrived; list_arrived() has counted them.
void PerRankExchange::write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                                    Returned&) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const auto [begin, count] = arrived_[part.half.index][part.wave];
  combine_partly(part.context.backend,
                 {.y = rows.y,
                  .ids = lists.ids.slice_rows(begin, count),
                  .position = lists.position.slice_rows(begin, count),
                  .weights = lists.weights.slice_rows(begin, count),
                  .nodes = lists.nodes.slice_rows(begin, count),
                  .first = {lists.first_sum + begin, static_cast<size_t>(count)},
                  .leaves = config_.leaves,
                  .out = out});
}

// Numbers the sums of a part's rows as the ranks send them: token by token, nodes ascending. Sets
// work.expert_position (-1 for all slots of a node but one; else number * kMaxParts + wave):
//
//   token   experts (node)      sums from the rank of nodes 0 and 2, of node 3
//   t0      7 (3), 1 (0), 0(0)  0: t0 node 0                         0: t0 node 3
//   t1      4 (2), 1 (0), 6(3)  1: t1 node 0, 2: t1 node 2           1: t1 node 3
void PerRankExchange::number_results(const Part& part, const Routing& routing) {
  const Range rows = rows_of(part);
  const Placement& placement = placement_of(part);
  auto& expected = expected_[part.half.index];
  const auto count_of = [&](int rank, int wave) -> int& {
    return expected[back_message({part.context, part.half, part.index, wave})][rank];
  };
  std::array<int, kMaxExpertRanks> row_number, wave_of;  // the last row sent to each rank
  for (int rank = 0; rank < config_.num_ranks; ++rank) {
    row_number[rank] = -1, wave_of[rank] = 0;
    for (int wave = 0; wave < grain_.waves; ++wave) count_of(rank, wave) = 0;
  }
  for (int64_t t = rows.begin; t < rows.end(); ++t) {
    const int32_t* const ids = routing.ids.row(t);
    int32_t* const place = part.context.work.expert_position.row(part.half.rows.begin + t);
    std::fill_n(place, config_.top_k, -1);
    const int32_t* const places = places_of(part, t);
    std::array<int, kMaxSlots> slots;  // one slot of each node, nodes ascending
    std::array<int32_t, kMaxSlots> nodes;
    int num_nodes = 0;
    for (int s = 0; s < config_.top_k; ++s) {
      const int rank = placement.rank_at(places[s]);
      nodes[s] = sent_node(config_.leaves[ids[s]], config_.top_k, [&](int other) {
        return placement.rank_at(places[other]) != rank ? config_.leaves[ids[other]] : -1;
      });
      const auto node_of = [&](int slot) { return nodes[slot]; };
      int* const end = slots.data() + num_nodes;
      int* const at = std::lower_bound(slots.data(), end, node_of(s),
                                       [&](int slot, int node) { return node_of(slot) < node; });
      if (at != end && node_of(*at) == node_of(s)) continue;
      std::copy_backward(at, end, end + 1);
      *at = s;
      ++num_nodes;
    }
    std::array<bool, kMaxExpertRanks> is_met;
    std::fill_n(is_met.begin(), config_.num_ranks, false);
    for (const int slot : std::span(slots.data(), num_nodes)) {
      const int rank = placement.rank_at(places[slot]);
      int& wave = wave_of[rank];
      if (!std::exchange(is_met[rank], true)) {
        ++row_number[rank];
        const Range sent = leaving(part, rank);
        while (row_number[rank] >= cut({0, sent.count}, wave, grain_.waves).end()) ++wave;
      }
      place[slot] = count_of(rank, wave)++ * kMaxParts + wave;
    }
  }
}

void PerRankExchange::begin_layer(const Half& half) {
  RowExchange::begin_layer(half);
  numbered_[half.index] = 0;
}

void PerRankExchange::expect_results(const Part& part, const Routing& routing,
                                     std::span<int> counts) {
  const uint32_t bit = 1u << part.index;
  if ((std::exchange(numbered_[part.half.index], numbered_[part.half.index] | bit) & bit) == 0)
    number_results(part, routing);
  std::copy_n(expected_[part.half.index][back_message(part)].begin(), counts.size(),
              counts.begin());
}

// The experts' ranks have weighted the rows. One slot of a node has the node's in, its other slots
// none.
void PerRankExchange::sum_results(const Part& part, const CombineInputs& in) {
  const int32_t waves = grain_.waves;
  const auto add = [&](const Part& of) {
    const Range rows = rows_of(of);
    find_results(of, rows, in, [&](int place, int32_t position) {
      const int64_t back = position % kMaxParts * grain_.parts + of.index;
      return ResultLocation{.message = back * config_.num_ranks + placement_of(of).rank_at(place),
                            .row = position < 0 ? -1 : position / kMaxParts};
    });
    sum_located(of, rows, in, {});
  };
  if (waves == 1) return add(part);
  for (int index = 0; index < grain_.parts; ++index) add({part.context, part.half, index});
}

}  // namespace hocket
