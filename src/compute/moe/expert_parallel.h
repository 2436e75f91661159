// Dispatch and combine where the experts of a layer are spread over ranks. Every rank has rows of
// its own (data-parallel attention), and all take part in every exchange of every MoE layer and
// half, also those without rows.
//
//   rows here  -> lists by rank -> message -> | rows of all ranks, by expert: e0: r0 r0 r2 | e1: ..
//                 own rows ------- no copy -> | (source ranks ascending, in each source order)
//                 both through int8 where limits.int8_dispatch says so
//   residual  <- sums  <- message <- partial sums of groups, or rows as they are   <- experts
//
// The sums are those of one rank with as many combine groups: a group lies on one rank, which adds
// its slots in their order; the owner of a token adds the groups ascending, whatever came first.
// Source: docs/contracts/arithmetic.md, "combine groups"; docs/contracts/expert_parallel.md.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/exchange_message.h"
#include "compute/moe/placement.h"
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
  // WorkLimits::exchange for this placement. max_slotted_rows <= max_rows.
  static ExchangeLimits exchange_limits(const Placement& placement, int max_slotted_rows);
  // What AllToAll::Options::most_bytes must be at least.
  static std::array<size_t, kNumMessageKinds> most_bytes(const Options& options);
  // `exchange` is of as many ranks as the placement, has a lane for each half and outlives this.
  // Errors: bad_value (combine groups that are on more than one rank).
  static Result<std::unique_ptr<ExpertParallelDispatcher>> create(const Options& options,
                                                                  AllToAll& exchange);

  bool exchanges() const override { return true; }
  void begin_pass(const PassId& pass, int num_rows) override;
  void dispatch_start(const ExchangeSite& site, Half& half) override;
  void dispatch_wait(const ExchangeSite& site, Half& half) override;
  bool more_parts(const Half&) const override { return false; }
  void combine_start(const ExchangeSite& site, Half& half) override;
  void combine_wait(const ExchangeSite& site, Half& half) override;
  void progress() override;
  // Stays for good: after a lost rank, a new dispatcher over a new exchange.
  Result<void> status() const override;

 private:
  // What a half keeps from one operation to a later one.
  struct HalfState {
    std::vector<int32_t> rows_from;   // [ranks] rows that came from each
    std::vector<int32_t> parts_from;  // [ranks + 1] where the partial sums for each begin
    int64_t first_row = 0;            // of the rows that came, in ExchangeBuffers
    int64_t num_rows = 0;
  };
  using Pieces = std::array<std::span<const std::byte>, 4>;

  ExpertParallelDispatcher(const Options& options, AllToAll& exchange);
  bool counted() const { return pass_.mode == ExchangeMode::counted; }
  int most_rows() const;  // of one dispatch message
  MessageFormat dispatch_format(int to) const;
  MessageFormat combine_format() const;
  int64_t first_sent(const Half& half) const;
  int first_to(const WorkBuffers& work, int half, int rank) const;
  int rows_to(const WorkBuffers& work, int half, int rank) const;
  std::span<uint32_t> counts_for(const WorkBuffers& work, int half, int rank) const;
  bool keep(Result<void> result);
  bool wait(const Half& half, MessageKind kind, int layer);
  void send(const Half& half, MessageKind kind, int layer);

  void list_counted(const WorkBuffers& work, const Half& half);
  void list_slotted(const WorkBuffers& work, const Half& half);
  void send_rows(const ExchangeSite& site, const Half& half);
  Result<void> read_rows(const WorkBuffers& work, const Half& half);
  ArrivedRows own_rows(const WorkBuffers& work, const Half& half) const;
  ExpertRows arrange(const ExchangeSite& site, const Half& half);
  void list_arrived(const WorkBuffers& work, const Half& half);
  void sum_parts(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  void collect_rows(const ExchangeSite& site, const Half& half, const ExpertRows& rows);
  Result<void> find_results(const WorkBuffers& work, const Half& half, const ExpertRows& rows,
                            const Routing& routing);
  void number_parts(const WorkBuffers& work, const Half& half, const Routing& routing);

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
  // Of the operation that runs; one for each rank.
  std::vector<ArrivedRows> arrived_;
  std::vector<Pieces> pieces_;
  std::vector<AllToAll::Parts> parts_;
  std::vector<int64_t> cursor_;
};

}  // namespace hocket
