// A made-up rank whose steps overlap, on two threads as a real one: the engine's agrees, schedules
// and votes, the forward thread plays passes that carry votes. Requests, times and the fault are
// drawn by a seed. Tests only.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "compute/comm/testing.h"
#include "engine/lockstep/lockstep.h"
#include "engine/lockstep/network.h"
#include "engine/plan/memory_plan.h"

namespace hocket::testing {

// The part of a step in which a rank is lost.
enum class StepPart : uint8_t { agree, dispatch, combine, sample, commit };
inline constexpr std::array kStepParts = {StepPart::agree, StepPart::dispatch, StepPart::combine,
                                          StepPart::sample, StepPart::commit};

// The ranks of one seed, and the loss of one of them.
struct DrawnRanks {
  uint64_t seed = 0;
  int num_ranks = 2;
  int max_delayed_passes = 0;  // Lockstep::Options
  int lost_rank = -1;          // -1: none
  StepPart lost_in = StepPart::agree;
  uint64_t lost_at = 0;  // its step
};

// The conclusion of a rank from one agreement.
struct SeenAgreement {
  uint64_t step = 0;
  Phase phase = Phase::decode;
  Plan plan;
  int rows = 0, num_module_passes = 0;
  bool is_trial = false, overlaps = false, ends = false;

  bool operator==(const SeenAgreement&) const = default;
};

// The bytes that a rank sends, by message kind, [lanes][kRowBytes]. Peers may get them when it has
// ended.
using SentRows = std::array<std::vector<std::byte>, kNumMessageKinds>;

class OverlappedRank {
 public:
  static constexpr size_t kRowBytes = 32;
  static constexpr Duration kStall = std::chrono::seconds(1);

  // `lost` becomes non-zero when a rank is lost; hub, end and it outlive the rank, and `rows` all
  // ranks.
  OverlappedRank(LoopbackHub& hub, Transport& end, const DrawnRanks& drawn,
                 std::atomic<uint32_t>& lost, SentRows& rows)
      : hub_(hub),
        end_(end),
        drawn_(drawn),
        lost_(lost),
        rows_(rows),
        random_(drawn.seed * 64 + static_cast<uint64_t>(end.rank())),
        pass_random_(random_()),
        exchange_(*AllToAll::create(
            end, {.max_bytes = on_lanes(kMaxLanes, {kRowBytes, kRowBytes, kAgreementBytes}),
                  .epoch = 1,
                  .stall_timeout = kStall,
                  .abort = &lost,
                  .watch = &watch_})),
        lockstep_(end.num_ranks(),
                  {.max_delayed_passes = drawn.max_delayed_passes, .others_can_serve = false}) {
    lockstep_.rebind(end, *exchange_);
    lockstep_.set_overlapped(true);
    watch_.carry(lockstep_.carrier());
    for (std::vector<std::byte>& rows_of_kind : rows_) rows_of_kind.resize(kMaxLanes * kRowBytes);
    num_to_come_ = pick(0, 3);
  }

  // Serves until all ranks stop, or one is lost.
  void run() {
    std::jthread forward([this] { play_passes(); });
    while (!lockstep_.agreed().ends && !error_) {
      if (num_to_come_ > 0 && pick(0, 2) == 0) arrive();
      if (num_to_come_ == 0 && jobs_.empty()) lockstep_.ask_to_end();
      if (!jobs_.empty() || num_to_come_ == 0 || lockstep_.peer_waiting())
        turn();
      else
        lockstep_.wait(std::chrono::microseconds(300));
    }
    if (error_) lost_.store(1, std::memory_order_release);
    while (num_under_way() > 0) finish();
    launch(nullptr);
  }

  const std::vector<SeenAgreement>& seen() const { return seen_; }
  const std::optional<Error>& error() const { return error_; }
  int num_requests() const { return num_requests_; }
  int num_answered() const { return num_answered_; }
  // Returns the first broken rule; empty if there is none.
  const std::string& problem() const { return problem_; }

 private:
  // A request: the steps that its prompt and its answer still take.
  struct Job {
    int chunks = 1, answers = 1;
    bool has_begun = false;
  };
  struct Pass {
    PassSpec spec;
    Plan plan;
    std::optional<Error> lost;
    std::string other_rows;  // which rows of another step, layer or rank were received; empty: none
  };

  int pick(int from, int to) {
    return from + static_cast<int>(random_() % static_cast<uint64_t>(to - from + 1));
  }
  bool is_loss_due(StepPart part, uint64_t step) const {
    return drawn_.lost_rank == end_.rank() && drawn_.lost_in == part && drawn_.lost_at == step;
  }
  void lose_if_due(StepPart part, uint64_t step) {
    if (is_loss_due(part, step)) hub_.lose(end_.rank());
  }
  void arrive() {
    jobs_.push_back({.chunks = pick(1, 3), .answers = pick(1, 6)});
    --num_to_come_, ++num_requests_;
  }

  StepProposal propose() {
    StepProposal proposal;
    for (const Job& job : jobs_) {
      if (job.chunks == 0 && job.answers > 0) ++proposal.work.num_decoding;
      proposal.work.begins |= job.chunks > 0 && !job.has_begun;
      proposal.work.continues |= job.chunks > 0 && job.has_begun;
    }
    proposal.prompt_step_rows = pick(0, 500);
    proposal.module_passes = pick(0, 2);
    proposal.overlaps = pick(0, 3) > 0;
    proposal.vetoes_overlap = pick(0, 3) == 0;
    for (PlanProposal& plan : proposal.plans)
      plan = {
          .id = id_of({.order = pick(0, 3), .parts = 1 << pick(0, 2), .waves = 1 << pick(0, 1)}),
          .is_trial = pick(0, 1) == 0};
    return proposal;
  }

  // The actions of RankStep::run_overlapped().
  void turn() {
    lose_if_due(StepPart::agree, lockstep_.agreed().pass.step + 1);
    if (!lockstep_.finish_agreement(propose())) return give_up(*lockstep_.lost());
    note_agreement();
    const bool one_computes = num_under_way() > 0;
    const bool is_one = lockstep_.any_rank_computes(schedule());
    if (is_one) {
      lockstep_.carrier().lend();
      passes_.at(num_launched_ % passes_.size()) = {.spec = lockstep_.agreed().pass,
                                                    .plan = lockstep_.agreed().plan};
      launch(&passes_.at(num_launched_ % passes_.size()));
    }
    if (one_computes) {
      const Pass& done = finish();
      if (done.lost) return lockstep_.fail_with(*done.lost), give_up(*done.lost);
      lose_if_due(StepPart::commit, done.spec.step);
      std::erase_if(jobs_, [](const Job& job) { return job.answers == 0; });
      if (!jobs_.empty() && pick(0, 15) == 0) ++num_answered_, jobs_.pop_back();  // it is aborted
    }
    if (is_one) lockstep_.begin_agreement(propose());
  }
  void note_agreement() {
    seen_.push_back(
        {.step = lockstep_.agreed().pass.step,
         .phase = lockstep_.agreed().pass.phase,
         .plan = lockstep_.agreed().plan,
         .rows = lockstep_.agreed().rows,
         .num_module_passes = static_cast<int>(lockstep_.agreed().module_passes().size()),
         .is_trial = lockstep_.agreed().is_trial,
         .overlaps = lockstep_.agreed().steps_overlap,
         .ends = lockstep_.agreed().ends});
  }
  // Prompts first, as far as was agreed on. Requests count as computed when they are scheduled.
  Batch schedule() {
    Batch batch;
    if (lockstep_.agreed().pass.phase == Phase::prefill)
      for (Job& job : jobs_) {
        if (job.chunks == 0 || (!job.has_begun && !lockstep_.may_begin())) continue;
        job.has_begun = true;
        if (--job.chunks == 0 && --job.answers == 0) ++num_answered_;
        batch.mode = ForwardMode::extend, batch.num_rows += 10;
      }
    if (batch.num_rows > 0) return batch;
    for (Job& job : jobs_) {
      if (job.chunks > 0 || job.answers == 0) continue;
      if (--job.answers == 0) ++num_answered_;
      batch.mode = ForwardMode::decode, ++batch.num_rows, ++batch.num_decode_rows;
    }
    return batch;
  }
  void give_up(const Error& why) {
    if (!error_) error_ = why;
  }

  int num_under_way() const { return static_cast<int>(num_launched_ - num_finished_); }
  void launch(Pass* pass) {
    order_.at(num_launched_++ % order_.size()) = pass;
    is_launched_.release();
  }
  const Pass& finish() {
    is_done_.acquire();
    const Pass& pass = *order_.at(num_finished_++ % order_.size());
    if (pass.lost) give_up(*pass.lost);
    if (!pass.other_rows.empty()) problem_ = pass.other_rows;
    return pass;
  }

  // The forward thread.
  void play_passes() {
    for (size_t i = 0;; ++i) {
      is_launched_.acquire();
      Pass* const pass = order_.at(i % order_.size());
      if (pass == nullptr) return;
      for (uint16_t layer = 0; layer <= pass->spec.step % 3 && !pass->lost; ++layer) {
        exchange_rows(MessageKind::dispatch, layer, *pass);
        if (!pass->lost) exchange_rows(MessageKind::combine, layer, *pass);
      }
      lockstep_.carrier().give_back();
      lose_if_due(StepPart::sample, pass->spec.step);
      is_done_.release();
    }
  }
  // Exchanges the messages of one kind: of all halves, parts and waves of the plan.
  void exchange_rows(MessageKind kind, uint16_t layer, Pass& pass) {
    const uint64_t step = pass.spec.step;
    hub_.spend(end_.rank(), std::chrono::microseconds(pass_random_() % 200));
    lose_if_due(kind == MessageKind::dispatch ? StepPart::dispatch : StepPart::combine, step);
    const Stamp stamp{.step = step, .layer = layer};
    const std::vector<int> lanes = lanes_of(kind, pass.plan);
    const auto keep = [&](const Result<void>& done) {
      if (!done && !pass.lost) pass.lost = done.error();
      return done.has_value();
    };
    for (const int lane : lanes)
      if (!keep(start(lane, kind, stamp))) return;
    exchange_->progress();
    for (const int lane : lanes) {
      if (!keep(exchange_->wait(lane, kind, stamp))) return;
      check_rows(lane, kind, stamp, pass);
      exchange_->release(lane, kind);
    }
    exchange_->progress();
  }
  static std::vector<int> lanes_of(MessageKind kind, const Plan& plan) {
    const int num_halves = OrderTable::builtin().at(plan.order).num_halves;
    const int num = kind == MessageKind::dispatch ? plan.parts : plan.grain().num_waves();
    std::vector<int> lanes;
    for (int half = 0; half < num_halves; ++half)
      for (int message = 0; message < num; ++message) lanes.push_back(lane_of(half, message));
    return lanes;
  }
  Result<void> start(int lane, MessageKind kind, Stamp stamp) {
    const std::span<std::byte> mine =
        std::span(rows_.at(static_cast<size_t>(kind)))
            .subspan(static_cast<size_t>(lane) * kRowBytes, kRowBytes);
    std::ranges::fill(mine, byte_of(end_.rank(), lane, kind, stamp));
    const std::array<std::span<const std::byte>, 1> piece = {mine};
    const std::vector<AllToAll::Parts> parts(static_cast<size_t>(end_.num_ranks()), piece);
    return exchange_->start(lane, kind, stamp, parts);
  }
  void check_rows(int lane, MessageKind kind, Stamp stamp, Pass& pass) const {
    for (int rank = 0; rank < end_.num_ranks(); ++rank)
      for (const std::byte got : exchange_->from(lane, kind, rank))
        if (const std::byte want = byte_of(rank, lane, kind, stamp); got != want)
          pass.other_rows = fmt::format(
              "rank {} got {} of rank {} in place of {}: lane {}, message {}, step {}, layer {}",
              end_.rank(), int(got), rank, int(want), lane, int(kind), stamp.step, stamp.layer);
  }
  static std::byte byte_of(int rank, int lane, MessageKind kind, Stamp stamp) {
    return static_cast<std::byte>(stamp.step * 31 + stamp.layer * 7u +
                                  static_cast<uint64_t>(kind) * 3 + static_cast<uint64_t>(rank) +
                                  static_cast<uint64_t>(lane) * 17);
  }

  LoopbackHub& hub_;
  Transport& end_;
  const DrawnRanks drawn_;
  std::atomic<uint32_t>& lost_;
  SentRows& rows_;
  std::mt19937_64 random_, pass_random_;  // the second is the forward thread's
  ExchangeObserver watch_{nullptr};
  std::unique_ptr<AllToAll> exchange_;
  Lockstep lockstep_;
  std::vector<Job> jobs_;
  int num_to_come_ = 0, num_requests_ = 0, num_answered_ = 0;
  std::vector<SeenAgreement> seen_;
  std::optional<Error> error_;
  std::string problem_;
  // The passes under way: at most two, and the end.
  std::array<Pass, 2> passes_;
  std::array<Pass*, 3> order_{};
  size_t num_launched_ = 0, num_finished_ = 0;
  std::counting_semaphore<3> is_launched_{0}, is_done_{0};
};

}  // namespace hocket::testing
