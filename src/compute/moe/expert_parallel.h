// Dispatch and combine for experts that are spread over ranks. Every rank has rows of its own
// (data-parallel attention). All ranks take part in every exchange of every MoE layer and half,
// also those without rows. In each pass rows travel in one of two modes: per_rank_exchange.h and
// per_expert_exchange.h have their lists and sums, and draw the way of one row; row_exchange.h
// chooses the rank of each row. This class carries the messages in the sequence of the operations,
// waits for parts as they arrive, and keeps the first error.
//
// If rows travel in parts (PassSpec::parts), all this happens once for each part, on its own lane,
// and the way back once for each of its waves.
//
// The sums equal those of one rank with as many combine groups. A group lies on one rank, which
// adds its slots in the sequence of the token's list, and then the nodes of the tree of groups of
// which it computes all slots (combine_nodes.h). The token's owner adds these up the tree,
// whichever arrived first. Source: docs/contracts/arithmetic.md, "combine groups";
// docs/contracts/expert_parallel.md; docs/contracts/overlap.md, "parts".
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/per_expert_exchange.h"
#include "compute/moe/per_rank_exchange.h"
#include "compute/moe/placement.h"
#include "core/model_config.h"

namespace hocket {

class ExpertParallelDispatcher final : public Dispatcher {
 public:
  struct Options {
    const ModelConfig& model;  // must have experts
    DType dtype = DType::bf16;
    Placements placement;
    int combine_groups = 1;
    // True if place() may be called: messages have room for the sums of any placement.
    bool any_placement = false;
    // The limits of the WorkBuffers in use, with limits.exchange; the same on all ranks.
    WorkLimits limits;
  };
  // Returns WorkLimits::exchange for this placement. max_decode_rows <= max_rows; max_parts: a
  // power of two up to kMaxParts.
  static ExchangeLimits exchange_limits(const Placements& placement, int max_decode_rows,
                                        int max_parts = kMaxParts);
  // Returns the least AllToAll::Options::max_bytes, for the lanes lane_of() of each half and part.
  static std::array<MessageSizes, kMaxLanes> max_bytes(const Options& options);
  // `exchange` has as many ranks as the placement and the lanes of max_bytes(); it outlives this.
  // Errors: bad_value (a combine group is on more than one rank).
  static Result<std::unique_ptr<ExpertParallelDispatcher>> create(const Options& options,
                                                                  AllToAll& exchange);

  // A layer's places, for place(). `exclusive_experts` [experts]: 1 if this rank alone has the
  // expert.
  struct LayerPlaces {
    LayerPlaces(Placement placement, int rank);
    Placement placement;
    std::vector<uint8_t> exclusive_experts;
  };
  // Exchanges the places of a layer for others, between two passes. All ranks do it between the
  // same two. Precondition: Options::any_placement, and Options::placement lists the layer.
  // Allocates nothing.
  void place(int layer, LayerPlaces& places);

  bool exchanges() const override { return true; }
  void begin_pass(const PassSpec& pass, int num_rows) override;
  void dispatch_start(const ExchangeContext& context, Half& half) override;
  void dispatch_wait(const ExchangeContext& context, Half& half) override;
  bool more_waves(const Half& half) const override;
  void combine_start(const ExchangeContext& context, Half& half) override;
  void combine_wait(const ExchangeContext& context, Half& half) override;
  void progress() override;
  void progress_inside() override;
  // The error remains; after a lost rank, make a new dispatcher over a new exchange.
  Result<void> status() const override;

 private:
  using Part = RowExchange::Part;
  using Pieces = RowExchange::Pieces;
  using MessageTo = Pieces (RowExchange::*)(const Part& part, int rank) const;
  // The state of a half between operations.
  struct HalfState {
    std::array<int, kMaxParts> pending{};  // lanes whose message was not waited for, ascending
    int num_pending = 0;
    int part = 0, wave = 0;          // the part that was taken last, and its wave in hand
    std::vector<int32_t> rows_from;  // [ranks] rows received from each, in all parts
  };

  ExpertParallelDispatcher(RowExchange::Config config, AllToAll& exchange);
  Stamp stamp_of(int layer) const {
    return {pass_.step, static_cast<uint16_t>(pass_.first_layer + layer)};
  }
  bool keep(Result<void> result);
  // Lists the first messages of a half as pending: they are waited for.
  void await_messages(const Half& half, int num_messages);
  Grain grain() const { return {pass_.parts, pass_.waves}; }
  int take_first(HalfState& state, MessageKind kind, int layer);
  void send(const Part& part, MessageKind kind, MessageTo message_to);
  Result<void> read_rows(const Part& part);
  Result<void> read_results(const Part& part, const Routing& routing,
                            std::span<const std::byte*> results);

  RowExchange::Config config_;
  AllToAll& exchange_;
  PerRankExchange per_rank_;
  PerExpertExchange per_expert_;
  RowExchange* rows_ = &per_rank_;  // that of the pass
  PassSpec pass_;
  std::optional<Error> error_;
  std::array<HalfState, kMaxHalves> halves_;
  std::vector<ArrivedRows> arrived_;  // [ranks], of the part that is being taken
};

}  // namespace hocket
