// One rank of `hocket bench overlap --real`: a model with random weights, with its dispatcher,
// exchange and ledger. All ranks play the same passes together. The results of all plans are
// compared: a plan that changes a bit ends the bench.
// Thread: the rank's, which is the first of its workers.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/dummy_shape.h"
#include "bench/replay_transport.h"
#include "compute/overlap/ledger.h"
#include "compute/overlap/planner.h"
#include "engine/runner/runner.h"

namespace hocket {

class OverlapRig {
 public:
  struct Options {
    RankConfig seat;
    Transport& transport;                   // it and `traffic` outlive the rig
    Transport* traffic = nullptr;           // carries useless bytes; null: no Mode::traffic
    int decode_rows = 1, prefill_rows = 1;  // at most
    double link_gbit = 0;                   // rate of a modelled link, for the prior; 0: real link
  };
  // Errors: those of Runner::create.
  static Result<std::unique_ptr<OverlapRig>> create(const Options& options);
  ~OverlapRig();

  // Makes the batch of the next passes: decode rows with 256 keys each, or prompts of 512 tokens.
  // Rank 0 gets a planner without measurements.
  void set_batch(Phase phase, int rows);

  // The result of a pass, over all ranks.
  struct PassResult {
    Plan plan;
    bool is_trial = false;  // play_planned() only: the planner tried a top candidate
    double took_us = 0;     // the slowest rank's time, without copying recorded messages
    double waiting_us = 0;  // for slower ranks, mean over ranks
    double idle_share = 0;  // share of this rank's step that its ledger cannot explain
    double planner_us = 0;  // play_planned() only: time of this rank's planner
  };
  // Plays a pass; all ranks call it with the same arguments.
  // Errors: lost_rank; internal (a plan changed bits).
  using Mode = ReplayTransport::Mode;
  Result<PassResult> play(const Plan& plan, Mode mode);
  // Plays a pass as rank 0's planner chooses, and reports it to that planner at the next call. The
  // planner's time is part of took_us.
  Result<PassResult> play_planned();
  // Sends the messages of the recorded pass, which must be one of the plan `none`, and computes
  // nothing. Returns the slowest rank's time.
  Result<double> exchange_us();
  // Returns kappa of this rank's last pass (overlap_figures.h).
  double coverage() const;
  // Plays a live pass, then repeats its ledger calls on another ledger. Returns their mean time.
  Result<double> booking_us(const Plan& plan);

  ReplayTransport& messages() { return messages_; }
  // Returns the planner's decision for this batch; nullopt on ranks other than 0.
  std::optional<OverlapDecision> decision() const;
  int rank() const { return seat_.rank; }

 private:
  struct RankMessage;
  explicit OverlapRig(const Options& options);
  Result<void> load(const Options& options);
  void add_sequence(int first, int rows, std::span<const PageId> pages);
  // Sends `mine` to all ranks and returns the messages of all, by rank. It is a barrier.
  Result<std::vector<RankMessage>> agree(const RankMessage& mine);
  Result<RankMessage> run(const Plan& plan, Mode mode);
  Result<PassResult> finish(const Plan& plan, const RankMessage& mine);
  Result<void> compare_bits();
  Ledger::Limits ledger_limits() const;

  const RankConfig seat_;
  const double link_gbit_;
  ReplayTransport messages_;
  std::optional<DummyShape> shape_;
  std::unique_ptr<Ledger> ledger_;  // watches the runner's exchange
  std::unique_ptr<Runner> runner_;
  AllToAll* exchange_ = nullptr;
  std::shared_ptr<const StageModel> prior_;
  LayerCounts layers_;
  std::unique_ptr<Planner> planner_;  // null on ranks other than 0
  std::vector<StepReport> heard_;     // reports of all ranks about the last step
  std::vector<StepReport> reports_;   // the same of the last planned step

  ForwardBatch batch_;
  Bucket bucket_;
  std::vector<PageId> pages_;
  uint64_t step_ = 0, num_agreed_ = 0;
  std::vector<std::byte> bits_;  // result of the first pass over this batch
};

}  // namespace hocket
