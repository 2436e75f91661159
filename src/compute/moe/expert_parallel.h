// Dispatch and combine for experts that are spread over ranks. Every rank has rows of its own
// (data-parallel attention). All ranks take part in every exchange of every MoE layer and half,
// also those without rows.
//
//   rows here  -> lists by rank -> message -> | rows of all ranks, by expert: e0: r0 r0 r2 | e1: ..
//                 own rows ------- no copy -> | (source ranks ascending, in each source order)
//                 both through int8 where limits.int8_dispatch says so
//   residual  <- sums  <- message <- partial sums of groups, or rows as they are   <- experts
//
// If rows travel in parts (PassId::parts), all this happens once for each part, on its own lane.
//
// The sums equal those of one rank with as many combine groups. A group lies on one rank, which
// adds its slots in the sequence of the token's list; the token's owner adds the groups in
// ascending sequence, whichever came first.
// Source: docs/contracts/arithmetic.md, "combine groups"; docs/contracts/expert_parallel.md;
// docs/contracts/overlap.md, "parts".
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/exchange_message.h"
#include "compute/moe/placement.h"
#include "compute/overlap/plan.h"
#include "core/model_config.h"

namespace hocket {

class ExpertParallelDispatcher final : public Dispatcher {
 public:
  struct Options {
    const ModelConfig& model;  // must have experts
    DType dtype = DType::bf16;
    const Placement& placement;
    int combine_groups = 1;
    // The limits of the WorkBuffers in use, with limits.exchange; the same on all ranks.
    WorkLimits limits;
  };
  // Returns WorkLimits::exchange for this placement. max_slotted_rows <= max_rows; max_parts: 1, 2
  // or 4.
  static ExchangeLimits exchange_limits(const Placement& placement, int max_slotted_rows,
                                        int max_parts = kMaxParts);
  // Returns the least AllToAll::Options::most_bytes, for the lanes lane_of() of each half and part.
  static std::array<MessageSizes, kMaxLanes> most_bytes(const Options& options);
  // `exchange` has as many ranks as the placement and the lanes of most_bytes(); it outlives this.
  // Errors: bad_value (a combine group is on more than one rank).
  static Result<std::unique_ptr<ExpertParallelDispatcher>> create(const Options& options,
                                                                  AllToAll& exchange);

  bool exchanges() const override { return true; }
  void begin_pass(const PassId& pass, int num_rows) override;
  void dispatch_start(const ExchangeSite& site, Half& half) override;
  void dispatch_wait(const ExchangeSite& site, Half& half) override;
  bool more_parts(const Half& half) const override;
  void combine_start(const ExchangeSite& site, Half& half) override;
  void combine_wait(const ExchangeSite& site, Half& half) override;
  void progress() override;
  // The error remains; after a lost rank, make a new dispatcher over a new exchange.
  Result<void> status() const override;

 private:
  // `count` neighbours: rows of a half, or experts of a rank.
  struct Range {
    int begin = 0, count = 0;
    int end() const { return begin + count; }
  };
  // The results of one computed part, which are sent back.
  struct Returned {
    std::vector<int32_t> first;       // [ranks + 1] begin of the rows for each rank
    const std::byte* rows = nullptr;  // they lie in ExpertRows::x
  };
  // The state of a half between operations.
  struct HalfState {
    std::array<int, kMaxParts> due{};  // lanes whose part has not been waited for, ascending
    int num_due = 0;
    int part = 0;                    // the part that was taken last
    std::vector<int32_t> rows_from;  // [ranks] rows that came from each, in all parts
    int64_t num_expert_rows = 0;     // rows at the experts, in all parts that were taken
    int64_t first_row = 0;           // begin of this part's rows in the lists of arrived rows
    int64_t num_rows = 0;
    std::array<Returned, kMaxParts> returned;
  };
  // The place of an expert's rows among the leaving rows, which are sorted by part, rank and
  // expert.
  struct Leaving {
    int32_t place = 0;
    int32_t parcel = 0;
  };
  using Pieces = std::array<std::span<const std::byte>, 4>;

  ExpertParallelDispatcher(const Options& options, AllToAll& exchange);
  bool counted() const { return pass_.mode == ExchangeMode::counted; }
  int most_rows(int num_experts) const;  // the most rows from one rank for this number of experts
  Range rows_of(const Half& half, int part) const;
  Range experts_of(int rank, int part) const;
  MessageFormat dispatch_format(int to, int part) const;
  MessageFormat combine_format() const;
  bool keep(Result<void> result);
  void all_due(const Half& half);
  int take_first(HalfState& state, MessageKind kind, int layer);
  void send(int lane, MessageKind kind, int layer);
  std::byte* head_of(const WorkBuffers& work, int lane, int rank) const;

  // The leaving rows. A parcel is the rows of one message: a part's rows for one rank. The next
  // rank has the first parcel and this rank the last, so that the rows that really leave are
  // contiguous:
  //
  //   rank 1 of 4, part p:   parcel 4p: for rank 2 | 4p+1: rank 3 | 4p+2: rank 0 | 4p+3: own rows
  int parcel_of(int part, int rank) const {
    const int turn = rank - rank_ - 1;
    return part * num_ranks_ + (turn < 0 ? turn + num_ranks_ : turn);
  }
  void place_experts();
  int64_t first_sent(const Half& half, int part) const;
  int32_t* offsets_of(const WorkBuffers& work, const Half& half, int part) const;
  Range rows_to(const WorkBuffers& work, const Half& half, int part, int rank) const;
  std::span<uint32_t> counts_for(const WorkBuffers& work, int lane, int rank) const;
  void list_counted(const WorkBuffers& work, const Half& half, int part);
  void list_slotted(const WorkBuffers& work, const Half& half);
  void send_rows(const ExchangeSite& site, const Half& half, int part);

  // The arrived rows.
  Result<void> read_rows(const WorkBuffers& work, const Half& half);
  ArrivedRows own_rows(const WorkBuffers& work, const Half& half) const;
  ExpertRows arrange(const ExchangeSite& site, const Half& half);
  void list_arrived(const WorkBuffers& work, const Half& half);

  // The results, which go back and are added up.
  void sum_groups(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  void collect_rows(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  Result<void> read_results(const WorkBuffers& work, const Half& half, const Routing& routing,
                            int part);
  void find_results(const WorkBuffers& work, const Half& half, const Routing& routing, int part);
  void number_sums(const WorkBuffers& work, const Half& half, const Routing& routing, int part);

  const Placement placement_;
  const int rank_, num_ranks_, top_k_, group_size_;
  const float output_scale_;
  const WorkLimits limits_;
  const DType dtype_;  // type of activations
  // Bytes of a row that comes from the experts, and of a row that leaves for them.
  const int64_t row_bytes_, leaving_bytes_;
  AllToAll& exchange_;
  PassId pass_;
  std::optional<Error> error_;
  std::array<HalfState, kMaxHalves> halves_;
  // Slotted: the place of each expert's rows and the begin of each parcel, for placed_parts_ parts.
  std::vector<Leaving> leaving_;       // [experts]
  std::vector<int32_t> parcel_first_;  // [parts * ranks + 1]
  int placed_parts_ = 0;
  // Scratch memory of the running operation, with one element per rank or per parcel.
  std::vector<ArrivedRows> arrived_;
  std::vector<Pieces> pieces_;
  std::vector<AllToAll::Parts> messages_;
  std::vector<int64_t> cursor_;            // [parts * ranks]
  std::vector<const std::byte*> results_;  // [parts * ranks]
};

}  // namespace hocket
