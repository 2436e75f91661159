// One rank of `hocket bench overlap --real`: a model with random weights, its dispatcher, exchange
// and ledger, and passes made by hand that all ranks play together. Their results are compared: a
// plan that changed a bit ends the bench.
// Thread: the rank's, which is the first of its workers.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/dummy_shape.h"
#include "bench/replay_transport.h"
#include "compute/overlap/ledger.h"
#include "compute/overlap/planner.h"
#include "engine/runner.h"

namespace hocket {

class OverlapRig {
 public:
  struct Options {
    RankSeat seat;
    Transport& transport;                   // both outlive it
    Transport* traffic = nullptr;           // of bytes of no use; null: there are no such runs
    int decode_rows = 1, prefill_rows = 1;  // at most
    double link_gbit = 0;                   // if it is modelled; for the planner's first guess
  };
  // Errors: those of Runner::create.
  static Result<std::unique_ptr<OverlapRig>> create(const Options& options);
  ~OverlapRig();

  // The batch of the next passes: sequences of 256 keys, or prompts of 512 tokens. And a planner
  // that knows nothing yet.
  void set_batch(Phase phase, int rows);

  // Of a pass, over all ranks.
  struct Played {
    Plan plan;
    bool is_shadow = false;  // of play_planned(): a finalist's turn
    double took_us = 0;      // on the slowest, without copying what was remembered
    double waiting_us = 0;   // for slower ranks, mean over ranks
    double idle_share = 0;   // here, of the step: what the ledger did not account for
    double planner_us = 0;   // of play_planned(), here
  };
  // All ranks say the same.   Errors: lost_rank; internal (a plan changed bits).
  using Mode = ReplayTransport::Mode;
  Result<Played> play(const Plan& plan, Mode mode);
  // As rank 0's planner chose, which hears of it; its time counts.
  Result<Played> play_planned();
  // The messages of the recorded pass, which was one of the plan `none`, without computing.
  Result<double> exchange_us();
  // Of this rank's spans of the last pass.
  double coverage() const;
  // As play() live; what it took to book that: the same calls over again, on another ledger.
  Result<double> booking_us(const Plan& plan);

  ReplayTransport& messages() { return messages_; }
  // Of rank 0; what its planner says of this batch.
  std::optional<OverlapDecision> decision() const;
  int rank() const { return seat_.rank; }

 private:
  struct Said;
  explicit OverlapRig(const Options& options);
  Result<void> load(const Options& options);
  void add_sequence(int first, int rows, std::span<const PageId> pages);
  // What all say; a barrier.
  Result<std::vector<Said>> agree(const Said& mine);
  Result<Said> run(const Plan& plan, Mode mode);
  Result<Played> finish(const Plan& plan, const Said& mine);
  Result<void> compare_bits();
  Ledger::Limits ledger_limits() const;

  const RankSeat seat_;
  const double link_gbit_;
  ReplayTransport messages_;
  std::optional<DummyShape> shape_;
  std::unique_ptr<Ledger> ledger_;  // watches the runner's exchange
  std::unique_ptr<Runner> runner_;
  AllToAll* exchange_ = nullptr;
  std::shared_ptr<const StageModel> prior_;
  LayerCounts layers_;
  std::unique_ptr<Planner> planner_;  // rank 0
  std::vector<StepReport> heard_;     // of the last step
  std::vector<StepReport> reports_;   // of the last planned step

  ForwardBatch batch_;
  Bucket bucket_;
  std::vector<PageId> pages_;
  uint64_t step_ = 0, num_agreed_ = 0;
  std::vector<std::byte> bits_;  // of the first pass over this batch
};

}  // namespace hocket
