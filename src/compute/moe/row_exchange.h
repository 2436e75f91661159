// The exchange of rows in one mode: which rows are in which message, where arrived rows are placed,
// and how results are summed. counted_exchange.h is for prefill, slotted_exchange.h for decode;
// each draws the way of one row. This base has what both share: the memory, the messages, and the
// sorting by expert.
//
//   rows here  -> lists by rank -> message -> | rows of all ranks, by expert: e0: r0 r0 r2 | e1: ..
//                 own rows ------- no copy -> | (source ranks ascending, in each source order)
//                 both through int8 where limits.int8_dispatch says so
//   residual  <- sums  <- message <- sums of nodes, or rows as they are            <- experts
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

inline constexpr int kMostExpertRanks = 128;  // the most ranks that share experts

class RowExchange {
 public:
  // The numbers that hold for all passes.
  struct Config {
    Placement placement;
    CombineNodes nodes;
    int rank = 0, num_ranks = 1, top_k = 0;
    float output_scale = 1;
    WorkLimits limits;
    DType dtype = DType::bf16;  // type of activations
    int64_t row_bytes = 0;      // bytes of a row that comes from the experts
    int64_t leaving_bytes = 0;  // bytes of a row that leaves for them
  };
  // `count` neighbours: rows of a half, rows of a list, or experts of a rank.
  struct Range {
    int64_t begin = 0;
    int count = 0;
    int64_t end() const { return begin + count; }
  };
  // A part of a half, borrowed for one operation.
  struct Part {
    const ExchangeSite& site;
    const Half& half;
    int index = 0;
    int lane() const { return lane_of(half.index, index); }
  };
  using Pieces = std::array<std::span<const std::byte>, 4>;  // a message without AllToAll's head
  // The results of a half: results[part * num_ranks + rank] is the first row that came from there.
  struct Sum {
    const Routing& routing;
    View<float> shared;
    std::span<const std::byte* const> results;
  };

  virtual ~RowExchange() = default;

  // Called before the first operation of a pass.
  virtual void begin_pass(int parts) { parts_ = parts; }
  // Called before the first part of a half arrives in a layer.
  void begin_layer(const Half& half) { num_arrived_[half.index] = 0; }
  // Returns the most rows that one rank may send in a pass to this number of experts.
  virtual int most_rows(int num_experts) const = 0;

  // The way there. list_leaving() is called for each part in ascending order.
  virtual void list_leaving(const Part& part, const MatrixView& normed) = 0;
  // Copies the rows for other ranks into `sent`, where they are contiguous.
  void gather_leaving(const Part& part) const;
  // Writes the head of the message for `rank` and returns the message.
  Pieces dispatch_to(const Part& part, int rank) const;
  // Returns this rank's rows for its own experts, in the form of arrived rows.
  ArrivedRows own_rows(const Part& part) const;
  // Returns the format of the dispatch from any rank to `rank`.
  MessageFormat dispatch_format(int rank, int part) const;
  // Sorts the rows of all ranks by expert, then by source rank, and widens or copies them to x.
  // After an error `arrived` is empty, and no rows are at the experts.
  ExpertRows arrange(const Part& part, std::span<const ArrivedRows> arrived);

  // The way back. The experts have read their rows, so the results overwrite them in x.
  void make_results(const Part& part, const ExpertRows& rows);
  Pieces combine_to(const Part& part, int rank) const;
  const std::byte* own_results(const Part& part) const;
  MessageFormat combine_format() const;
  // Sets counts[rank] to the number of results that come from each rank.
  virtual void expect_results(const Part& part, const Routing& routing, std::span<int> counts) = 0;
  // Returns true if rows can be added up when the results of all parts but num_pending are here.
  virtual bool adds_up(int num_pending) const = 0;
  // Adds the results of the rows of this part to the residual.
  virtual void add_up(const Part& part, const Sum& sum) = 0;

 protected:
  // The slots of leaving rows; no rows if the mode does not send them.
  struct SlotLists {
    View<int32_t> ids;
    View<float> weights;
  };
  // The results of one computed part, which are sent back.
  struct Returned {
    std::vector<int32_t> first;       // [ranks + 1] begin of the rows for each rank
    const std::byte* rows = nullptr;  // they lie in ExpertRows::x
  };

  // The config outlives it.
  RowExchange(const Config& config, ExchangeMode mode);

  // The experts of a rank that a part has, as its own numbers of them.
  virtual Range experts_of(int rank, int part) const = 0;
  // Returns the place of a part's rows for a rank in the lists of leaving rows. The next rank's
  // rows come first and this rank's own last, so that the rows that really leave are contiguous:
  //
  //   rank 1 of 4:   for rank 2 | for rank 3 | for rank 0 | own rows
  virtual Range leaving(const Part& part, int rank) const = 0;
  virtual SlotLists slots_of(const WorkBuffers&, const Range&) const { return {}; }
  // Lists the source of every expert row. segments: as in ExchangeBuffers, for this half.
  virtual void list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                            std::span<int32_t> segments) = 0;
  // Writes the results to rows.x, rank by rank, and sets returned.first.
  virtual void write_results(const Part& part, const ExpertRows& rows, Returned& returned) = 0;

  // Returns the place of `rank` among those to which rows leave: the next rank is 0, this one last.
  int leaving_order(int rank) const {
    const int order = rank - config_.rank - 1;
    return order < 0 ? order + config_.num_ranks : order;
  }
  // Rounds neighbours of a half to int8, if rows travel so.
  void round_leaving(const Part& part, const MatrixView& normed, const Range& rows) const;
  // Returns the counts of the rows of each expert, in the head of the message for `rank`.
  std::span<uint32_t> counts_for(const Part& part, int rank) const;
  Returned& returned_of(const Part& part) { return returned_[part.half.index][part.index]; }
  // Sets the address of the result of every slot of these rows of the half: the row
  // expert_position of the message message_of(expert); null if the position is negative.
  template <class MessageOf>
  void find_results(const Part& part, const Range& rows, const Sum& sum,
                    MessageOf message_of) const;
  // Adds what find_results() found to the residual. weights: of all rows of the half, or no rows.
  void add_found(const Part& part, const Range& rows, const Sum& sum,
                 View<const float> weights) const;
  // Restores starts after a counting sort, which moved each start to its end, the next one's start.
  static void move_back(std::span<int32_t> starts);

  const Config& config_;
  int parts_ = 1;  // the parts of each half in this pass

 private:
  std::byte* head_of(const Part& part, int rank) const;

  const ExchangeMode mode_;
  std::array<int64_t, kMaxHalves> num_arrived_{};  // rows at the experts, in all arrived parts
  std::array<std::array<Returned, kMaxParts>, kMaxHalves> returned_;
};

template <class MessageOf>
void RowExchange::find_results(const Part& part, const Range& rows, const Sum& sum,
                               MessageOf message_of) const {
  const WorkBuffers& work = part.site.work;
  const std::byte** to = work.exchange.results;
  for (int64_t t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < config_.top_k; ++s) {
      const int64_t at = work.expert_position.row(part.half.rows.begin + t)[s];
      const std::byte* const first = sum.results[message_of(sum.routing.ids.row(t)[s])];
      *to++ = at < 0 ? nullptr : first + at * config_.row_bytes;
    }
}

}  // namespace hocket
