// Dispatch and combine where the experts of a layer are spread over ranks. Every rank has rows of
// its own (data-parallel attention), and all take part in every exchange of every MoE layer and
// half, also those without rows.
//
//   rows here  -> lists by rank -> message -> | rows of all ranks, by expert: e0: r0 r0 r2 | e1: ..
//                 own rows ------- no copy -> | (source ranks ascending, in each source order)
//                 both through int8 where limits.int8_dispatch says so
//   residual  <- sums  <- message <- partial sums of groups, or rows as they are   <- experts
//
// Rows in parts (PassId::parts): all of this once for each part, on a lane of its own.
//
// The sums are those of one rank with as many combine groups: a group lies on one rank, which adds
// its slots in their order; the owner of a token adds the groups ascending, whatever came first.
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
    const ModelConfig& model;  // one with experts
    DType dtype = DType::bf16;
    const Placement& placement;
    int combine_groups = 1;
    WorkLimits
        limits;  // of the WorkBuffers it will be given, with limits.exchange; as on all ranks
  };
  // WorkLimits::exchange for this placement. max_slotted_rows <= max_rows; max_parts: 1, 2 or 4.
  static ExchangeLimits exchange_limits(const Placement& placement, int max_slotted_rows,
                                        int max_parts = kMaxParts);
  // What AllToAll::Options::most_bytes must be at least: those of lane_of() each half and part.
  static std::array<MessageSizes, kMaxLanes> most_bytes(const Options& options);
  // `exchange` is of as many ranks as the placement, has those lanes and outlives this.
  // Errors: bad_value (combine groups that are on more than one rank).
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
  // Stays for good: after a lost rank, a new dispatcher over a new exchange.
  Result<void> status() const override;

 private:
  // `count` neighbours: rows of a half, experts of a rank.
  struct Range {
    int begin = 0, count = 0;
    int end() const { return begin + count; }
  };
  // What goes back of a part that was computed.
  struct Returned {
    std::vector<int32_t> first;       // [ranks + 1] where the rows for each begin
    const std::byte* rows = nullptr;  // in ExpertRows::x
  };
  // What a half keeps from one operation to a later one.
  struct HalfState {
    std::array<int, kMaxParts> due{};  // lanes whose part is still to be waited for, ascending
    int num_due = 0;
    int part = 0;                    // in hand
    std::vector<int32_t> rows_from;  // [ranks] rows that came from each, in all parts
    int64_t num_expert_rows = 0;     // of all parts that were taken
    int64_t first_row = 0;           // of the rows of this part, in the lists of what came
    int64_t num_rows = 0;
    std::array<Returned, kMaxParts> returned;
  };
  // Where an expert's rows stand among those that leave, which go by part, rank and expert.
  struct Leaving {
    int32_t place = 0;
    int32_t parcel = 0;
  };
  using Pieces = std::array<std::span<const std::byte>, 4>;

  ExpertParallelDispatcher(const Options& options, AllToAll& exchange);
  bool counted() const { return pass_.mode == ExchangeMode::counted; }
  int most_rows(int num_experts) const;  // from one rank, for so many experts
  Range rows_of(const Half& half, int part) const;
  Range experts_of(int rank, int part) const;
  MessageFormat dispatch_format(int to, int part) const;
  MessageFormat combine_format() const;
  bool keep(Result<void> result);
  void all_due(const Half& half);
  int take_first(HalfState& state, MessageKind kind, int layer);
  void send(int lane, MessageKind kind, int layer);
  std::byte* head_of(const WorkBuffers& work, int lane, int rank) const;

  // What leaves. A parcel is what one message carries: a part's rows for a rank. Ranks in turn: the
  // next one first, this one last, so that what really leaves stands together.
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

  // What came.
  Result<void> read_rows(const WorkBuffers& work, const Half& half);
  ArrivedRows own_rows(const WorkBuffers& work, const Half& half) const;
  ExpertRows arrange(const ExchangeSite& site, const Half& half);
  void list_arrived(const WorkBuffers& work, const Half& half);

  // What goes back, and is added up.
  void sum_groups(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  void collect_rows(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  Result<void> read_results(const WorkBuffers& work, const Half& half, const Routing& routing,
                            int part);
  void find_results(const WorkBuffers& work, const Half& half, const Routing& routing, int part);
  void number_sums(const WorkBuffers& work, const Half& half, const Routing& routing, int part);

  const Placement placement_;
  const int rank_, num_ranks_, top_k_, group_size_;
  const WorkLimits limits_;
  const DType dtype_;  // of activations
  // Of a row from the experts, and of one that leaves for them.
  const int64_t row_bytes_, leaving_bytes_;
  AllToAll& exchange_;
  PassId pass_;
  std::optional<Error> error_;
  std::array<HalfState, kMaxHalves> halves_;
  // Slotted: of each expert, and where each parcel begins; for placed_parts_ parts.
  std::vector<Leaving> leaving_;       // [experts]
  std::vector<int32_t> parcel_first_;  // [parts * ranks + 1]
  int placed_parts_ = 0;
  // Of the operation that runs; one for each rank, or for each parcel.
  std::vector<ArrivedRows> arrived_;
  std::vector<Pieces> pieces_;
  std::vector<AllToAll::Parts> messages_;
  std::vector<int64_t> cursor_;            // [parts * ranks]
  std::vector<const std::byte*> results_;  // [parts * ranks]
};

}  // namespace hocket
