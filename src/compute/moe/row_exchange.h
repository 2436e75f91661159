// The exchange of rows in one mode: which rows are in which message, where arrived rows lie, and
// how results are summed. per_rank_exchange.h is for prefill and for answers in one part,
// per_expert_exchange.h for answers in several parts; each draws the way of one row. This base has
// what both share: the memory, the messages, and the sorting by expert.
//
//   rows here  -> lists by rank -> message -> | rows of all ranks, by expert: e0: r0 r0 r2 | e1: ..
//                 own rows ------- no copy -> | (source ranks ascending, in each source order)
//                 both through int8 where limits.int8_dispatch says so
//   residual  <- sums  <- message <- sums of nodes, or rows as they are            <- experts
//                         in int8 where limits.int8_combine says so
//
// ExpertParallelDispatcher calls the functions in this order and carries the messages. Between them
// the lists are in ExchangeBuffers. Thread: engine. Allocates only in construction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/moe/combine_nodes.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/exchange_message.h"
#include "compute/moe/placement.h"
#include "compute/overlap/plan.h"

namespace hocket {

inline constexpr int kMaxExpertRanks = 128;  // the most ranks that share experts

class RowExchange {
 public:
  // The numbers that hold for all passes.
  struct Config {
    Placements placements;
    std::vector<int32_t> leaves;  // combine_leaves(): that of each expert
    std::vector<std::vector<uint8_t>>
        exclusive_experts;  // [layers of placements][experts] 1: only here
    int rank = 0, num_ranks = 1, top_k = 0;
    float output_scale = 1;
    WorkLimits limits;
    DType dtype = DType::bf16;       // type of activations
    int64_t result_row_bytes = 0;    // bytes of a row that the experts return
    int64_t dispatch_row_bytes = 0;  // bytes of a row that leaves for them
  };
  // Consecutive rows of a half, rows of a list, or experts of a rank.
  struct Range {
    int64_t begin = 0;
    int count = 0;
    int64_t end() const { return begin + count; }
  };
  // A part of a half, or a wave of it, borrowed for one operation.
  struct Part {
    const ExchangeContext& context;
    const Half& half;
    int index = 0, wave = 0;
  };
  using Pieces = std::array<std::span<const std::byte>, 4>;  // a message without AllToAll's head
  // The results of a half: results[message * num_ranks + rank] is the first row received from
  // there in each back_message().
  struct CombineInputs {
    const Routing& routing;
    View<float> shared;
    std::span<const std::byte* const> results;
  };

  virtual ~RowExchange() = default;

  // Called before the first operation of a pass; first_layer: as in PassSpec.
  virtual void begin_pass(const Grain& grain, int first_layer) {
    grain_ = grain;
    first_layer_ = first_layer;
  }
  // Called before the first part of a half arrives in a layer.
  virtual void begin_layer(const Half& half) { num_arrived_[half.index] = 0; }
  // Returns the index of the message in which a wave is sent back, among the messages of its half.
  // The message has the lane of this index.
  int back_message(const Part& part) const { return part.wave * grain_.parts + part.index; }
  // Returns the most rows that one rank may send in a pass to this number of experts.
  virtual int max_rows(int num_experts) const = 0;

  // The way there. list_dispatch() is called for each part in ascending order.
  virtual void list_dispatch(const Part& part, const MatrixView& normed) = 0;
  // Copies the rows for other ranks into `sent`, where they are contiguous.
  void gather_dispatch(const Part& part) const;
  // Writes the head of the message for `rank` and returns the message.
  Pieces dispatch_to(const Part& part, int rank) const;
  // Returns this rank's rows for its own experts, in the form of arrived rows.
  ArrivedRows own_rows(const Part& part) const;
  // Returns the format of the dispatch from any rank to `rank`.
  MessageFormat dispatch_format(int rank, const Part& part) const;
  // Sorts the rows of all ranks, per rank by wave, then by expert, then by source rank, and widens
  // or copies them to x. Returns the first wave. After an error `arrived` is empty, and no rows are
  // at the experts.
  ExpertRows arrange(const Part& part, std::span<const ArrivedRows> arrived);
  // Returns the rows of a later wave.
  ExpertRows next_wave(const Part& part) const;

  // The way back. The experts have read their rows, so the results overwrite them in x.
  void make_results(const Part& part, const ExpertRows& rows);
  Pieces combine_to(const Part& part, int rank) const;
  const std::byte* own_results(const Part& part) const;
  MessageFormat combine_format() const;
  // Sets counts[rank] to the number of results that each rank sends in this wave.
  virtual void expect_results(const Part& part, const Routing& routing, std::span<int> counts) = 0;
  // Returns true if rows can be added up when all messages but num_pending are here.
  virtual bool can_sum(int num_pending) const = 0;
  // Adds the results of the rows that can be added up since this message arrived.
  virtual void sum_results(const Part& part, const CombineInputs& in) = 0;

 protected:
  // The slots of leaving rows; no rows if the mode does not send them.
  struct SlotLists {
    View<int32_t> ids;
    View<float> weights;
  };
  // The results of one computed wave, which are sent back.
  struct Returned {
    std::vector<int32_t> first;       // [ranks + 1] begin of the rows for each rank
    const std::byte* rows = nullptr;  // they lie in ExpertRows::x
  };

  // The config outlives it.
  RowExchange(const Config& config, RowLayout layout);

  // The experts of a rank that a part has, as its own numbers of them.
  virtual Range experts_of(int rank, int part) const = 0;
  // Returns true if all waves of a part have its experts, and each some of its rows.
  virtual bool waves_have_rows() const = 0;
  // Returns the range of a part's rows for a rank in the lists of leaving rows. The next rank's
  // rows come first and this rank's own last, so that the rows that really leave are contiguous:
  //
  //   rank 1 of 4:   for rank 2 | for rank 3 | for rank 0 | own rows
  virtual Range leaving(const Part& part, int rank) const = 0;
  virtual SlotLists slots_of(const WorkBuffers&, const Range&) const { return {}; }
  // Sets segments[(wave * experts + e) * ranks + rank] to the number of rows; only where
  // waves_have_rows().
  virtual void count_by_wave(std::span<const ArrivedRows>, int, std::span<int32_t>) const {}
  // Lists the source of every expert row. segments: as in ExchangeBuffers, for this half.
  virtual void list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                            std::span<int32_t> segments) = 0;
  // Writes the results of a wave to `out`, behind those of earlier waves, rank by rank, and sets
  // returned.first. out: the memory of rows.x, as rows of the type that travels.
  virtual void write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                             Returned& returned) = 0;

  const Placement& placement_of(const Part& part) const {
    return config_.placements.at(first_layer_ + part.context.layer);
  }
  // Chooses the place that computes each slot of some rows of a half, and so the destination rank
  // of each row, in ExchangeBuffers::places: the only place of its expert, or the one of its
  // replicas whose rank has least to compute of these rows. So each rank spreads its own rows
  // evenly, and no other rank has to know it.
  void choose_ranks_of_rows(const Part& part, const Range& rows) const;
  // Returns the places of a row of the half.
  int32_t* places_of(const Part& part, int64_t row) const {
    return part.context.work.exchange.places.row(part.half.rows.begin + row);
  }
  // Returns the position of `rank` among those to which rows leave: the next rank is 0, this one
  // last.
  int leaving_order(int rank) const {
    const int order = rank - config_.rank - 1;
    return order < 0 ? order + config_.num_ranks : order;
  }
  // Rounds neighbours of a half to int8, if rows travel so.
  void quantize_dispatch(const Part& part, const MatrixView& normed, const Range& rows) const;
  // Returns the counts of the rows of each expert, in the head of the message for `rank`.
  std::span<uint32_t> counts_for(const Part& part, int rank) const;
  Returned& returned_of(const Part& part) { return returned_[part.half.index][back_message(part)]; }
  // Returns one of the `waves` equal pieces of a range.
  static Range cut(const Range& range, int wave, int waves) {
    const auto at = [&](int64_t w) { return static_cast<int>(w * range.count / waves); };
    return {range.begin + at(wave), at(wave + 1) - at(wave)};
  }
  // The location of a slot's result: a row of the received results[message]; row < 0: none.
  struct ResultLocation {
    int64_t message = 0, row = 0;
  };
  // Sets the address of the result of every slot of these rows of the half, or null.
  // location_of(place of the expert, expert_position) returns its ResultLocation.
  template <class LocationOf>
  void find_results(const Part& part, const Range& rows, const CombineInputs& in,
                    LocationOf location_of) const;
  // Adds what find_results() found to the residual. weights: of all rows of the half, or no rows.
  void sum_located(const Part& part, const Range& rows, const CombineInputs& in,
                   View<const float> weights) const;
  // Restores starts after a counting sort, which moved each start to its end, the next one's start.
  static void move_back(std::span<int32_t> starts);

  const Config& config_;
  Grain grain_;          // the messages of each half in this pass
  int first_layer_ = 0;  // as PassSpec's

 private:
  // The part that was arranged last, for its later waves.
  struct Arranged {
    MatrixView x, y;
  };
  std::byte* head_of(const Part& part, int message, int rank) const;
  DType result_dtype() const { return config_.limits.int8_combine ? DType::int8 : config_.dtype; }

  const RowLayout layout_;
  std::array<int64_t, kMaxHalves> num_arrived_{};  // rows at the experts, in all arrived parts
  std::array<std::array<Returned, kMaxParts>, kMaxHalves> returned_;
  std::array<Arranged, kMaxHalves> arranged_;
};

template <class LocationOf>
void RowExchange::find_results(const Part& part, const Range& rows, const CombineInputs& in,
                               LocationOf location_of) const {
  const WorkBuffers& work = part.context.work;
  const std::byte** to = work.exchange.results;
  for (int64_t t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < config_.top_k; ++s) {
      const int32_t position = work.expert_position.row(part.half.rows.begin + t)[s];
      const ResultLocation at = location_of(places_of(part, t)[s], position);
      *to++ = at.row < 0 ? nullptr : in.results[at.message] + at.row * config_.result_row_bytes;
    }
}

}  // namespace hocket
