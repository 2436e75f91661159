#include "compute/moe/per_rank_exchange.h"

#include <algorithm>
#include <utility>

#include "compute/kernels/combine.h"

namespace hocket {
namespace {

// Returns the wave that computes one of a rank's experts, if waves are shares of these.
int wave_of_expert(int expert, int num_experts, int waves) {
  return ((expert + 1) * waves - 1) / num_experts;
}

// Returns 1 for the first slot of a node and 0 for its others, so that these add up to the nodes.
int is_first_of_node(const int32_t* nodes, int slot) {
  return std::find(nodes, nodes + slot, nodes[slot]) == nodes + slot ? 1 : 0;
}

}  // namespace

// Where each row is listed for every wave, there is room for the rows of a step without prompts.
int PerRankExchange::max_rows(int /*num_experts*/) const {
  return waves_of_ == WavesOf::experts && grain_.waves > 1 ? config_.limits.exchange.max_decode_rows
                                                           : config_.limits.max_rows;
}

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

// Lists the slots of an arrived row that are computed here: their nodes, weights and expert rows.
// The lists are kept until the sums are made; the messages are not. next[e * num_ranks]: the place
// of the source's next row at expert e.
void PerRankExchange::list_slots(const Part& part, const ArrivedRows& from, int64_t i, int64_t row,
                                 int32_t* next) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const std::span<const int> experts_here = placement_of(part).experts_of(config_.rank);
  const int32_t* const ids = from.ids.row(i);
  int32_t* const nodes = lists.nodes.row(row);
  std::copy_n(from.weights.row(i), config_.top_k, lists.weights.row(row));
  for (int s = 0; s < config_.top_k; ++s) {
    lists.position.row(row)[s] = nodes[s] = -1;
    if (ids[s] < 0) continue;
    nodes[s] = sent_node(config_.leaves[experts_here[ids[s]]], config_.top_k, [&](int other) {
      return ids[other] < 0 ? config_.leaves[-1 - ids[other]] : -1;
    });
    const int32_t place = next[ids[s] * config_.num_ranks]++;
    lists.position.row(row)[s] = place;
    lists.sources[place] = from.row(i);
  }
}

PerRankExchange::ArrivedPart PerRankExchange::all_arrived(const Part& part,
                                                          std::span<const ArrivedRows> arrived,
                                                          int times_listed) const {
  const auto& shape = part.context.work.exchange.shape;
  const int half = part.half.index;
  ArrivedPart all{.num_experts = experts_of(config_.rank, part.index).count,
                  .experts = placement_of(part).experts_of(config_.rank)};
  for (const ArrivedRows& rows : arrived) all.num_rows += rows.num_rows;
  all.first_row = ExchangeBuffers::region_begin(half, shape.arriving_rows(), 0, all.num_rows);
  all.first_listed = ExchangeBuffers::region_begin(half, shape.listed_rows(), 0,
                                                   int64_t{all.num_rows} * times_listed);
  return all;
}

// Lists the rows wave by wave and source by source.
void PerRankExchange::list_by_rows(const Part& part, std::span<const ArrivedRows> arrived,
                                   std::span<int32_t> segments) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const ArrivedPart all = all_arrived(part, arrived, 1);
  int64_t at = 0;
  int32_t sum = 0;
  for (int wave = 0; wave < grain_.waves; ++wave) {
    std::vector<int32_t>& first = returned_of({part.context, part.half, part.index, wave}).first;
    const int64_t begin = at;
    for (int peer = 0; peer < config_.num_ranks; ++peer) {
      const ArrivedRows& rows = arrived[peer];
      const Range here = cut({0, rows.num_rows}, wave, grain_.waves);
      first[peer] = sum;
      for (int64_t i = here.begin; i < here.end(); ++i, ++at) {
        list_slots(part, rows, i, all.first_row + at,
                   segments.data() + wave * all.num_experts * config_.num_ranks + peer);
        const int32_t* const nodes = lists.nodes.row(all.first_row + at);
        lists.first_sum[all.first_listed + at] = sum;
        for (int s = 0; s < config_.top_k; ++s) {
          const int32_t id = rows.ids.row(i)[s];
          lists.ids.row(all.first_listed + at)[s] = id < 0 ? -1 : all.experts[id];
          if (id >= 0) sum += is_first_of_node(nodes, s);
        }
      }
    }
    first[config_.num_ranks] = sum;
    const int count = static_cast<int>(at - begin);
    arrived_[part.half.index][wave] = {{all.first_row + begin, count},
                                       {all.first_listed + begin, count}};
  }
}

// Lists the rows source by source, their ids once for each wave: those of the sums that leave with
// it. So no sum is numbered behind the rows that were computed before it, whose places it takes:
//
//   row     experts of wave 0   of wave 1    its sums leave with
//   r0      e1                  e5           wave 1, as one node
//   r1      e0 e2                            wave 0
void PerRankExchange::list_by_experts(const Part& part, std::span<const ArrivedRows> arrived,
                                      std::span<int32_t> segments) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const int waves = grain_.waves;
  const ArrivedPart all = all_arrived(part, arrived, waves);
  const auto listed = [&](int wave, int64_t at) {
    return all.first_listed + wave * all.num_rows + at;
  };
  std::array<int32_t, kMaxParts> sums{};
  int64_t at = 0;
  for (int peer = 0; peer < config_.num_ranks; ++peer) {
    const ArrivedRows& rows = arrived[peer];
    for (int wave = 0; wave < waves; ++wave)
      returned_of({part.context, part.half, part.index, wave}).first[peer] = sums[wave];
    for (int64_t i = 0; i < rows.num_rows; ++i, ++at) {
      list_slots(part, rows, i, all.first_row + at, segments.data() + peer);
      for (int wave = 0; wave < waves; ++wave) {
        std::fill_n(lists.ids.row(listed(wave, at)), config_.top_k, -1);
        lists.first_sum[listed(wave, at)] = sums[wave];
      }
      const int32_t* const ids = rows.ids.row(i);
      const int32_t* const nodes = lists.nodes.row(all.first_row + at);
      for (int s = 0; s < config_.top_k; ++s) {
        if (ids[s] < 0) continue;
        int wave = 0;  // that of the last expert of the slot's node
        for (int other = 0; other < config_.top_k; ++other)
          if (nodes[other] == nodes[s])
            wave = std::max(wave, wave_of_expert(ids[other], all.num_experts, waves));
        lists.ids.row(listed(wave, at))[s] = all.experts[ids[s]];
        sums[wave] += is_first_of_node(nodes, s);
      }
    }
  }
  int32_t before = 0;
  for (int wave = 0; wave < waves; ++wave) {
    std::vector<int32_t>& first = returned_of({part.context, part.half, part.index, wave}).first;
    first[config_.num_ranks] = sums[wave];
    for (int32_t& each : first) each += before;
    arrived_[part.half.index][wave] = {
        {all.first_row, all.num_rows}, {listed(wave, 0), all.num_rows}, before};
    before += sums[wave];
  }
}

void PerRankExchange::list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                                   std::span<int32_t> segments) {
  if (waves_of_ == WavesOf::rows)
    list_by_rows(part, arrived, segments);
  else
    list_by_experts(part, arrived, segments);
  move_back(segments);
}

// Writes one row for each sum of the wave; list_arrived() has counted them.
void PerRankExchange::write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                                    Returned&) {
  const ExchangeBuffers& lists = part.context.work.exchange;
  const auto& [at, listed, first_sum] = arrived_[part.half.index][part.wave];
  combine_partly(part.context.backend,
                 {.y = rows.y,
                  .ids = lists.ids.slice_rows(listed.begin, listed.count),
                  .position = lists.position.slice_rows(at.begin, at.count),
                  .weights = lists.weights.slice_rows(at.begin, at.count),
                  .nodes = lists.nodes.slice_rows(at.begin, at.count),
                  .first = {lists.first_sum + listed.begin, static_cast<size_t>(listed.count)},
                  .leaves = config_.leaves,
                  .out = out.slice_rows(first_sum, out.rows - first_sum)});
}

// Returns the wave that computes the last expert of a slot's node, for a row of the half.
int PerRankExchange::wave_of_node(const Part& part, int64_t row, const int32_t* nodes,
                                  int slot) const {
  const Placement& placement = placement_of(part);
  const int32_t* const places = places_of(part, row);
  const int experts = experts_of(placement.rank_at(places[slot]), part.index).count;
  int wave = 0;
  for (int other = 0; other < config_.top_k; ++other)
    if (nodes[other] == nodes[slot])
      wave =
          std::max(wave, wave_of_expert(placement.local_at(places[other]), experts, grain_.waves));
  return wave;
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
      if (waves_of_ == WavesOf::experts) {
        wave = wave_of_node(part, t, nodes.data(), slot);
      } else if (!std::exchange(is_met[rank], true)) {
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
