// The state of a planner and its functions: searching and deciding (planner_decide.cc), measuring
// (planner_measure.cc), the rest (planner.cc).   Thread: engine.
#pragma once

#include <mutex>

#include "compute/overlap/planner_record.h"

namespace hocket {

inline constexpr std::array kPlanKinds = {PlanKind::none, PlanKind::single_batch,
                                          PlanKind::two_batch};
constexpr size_t index_of(PlanKind kind) {
  return static_cast<size_t>(kind);
}
inline constexpr size_t kMostRecords = 64, kMostNews = 16;
// The time that searches may take [us]: at first enough to plan the first step, later so little
// that no step is held up.
inline constexpr double kFirstCreditUs = 5000, kMostCreditUs = 500;
inline constexpr int kFew = 3;  // measurements from which a plan counts as known

// The expected time of a plan: the prediction, corrected by measurements of the plan or its kind.
struct Expected {
  double us = 0;     // 0: unknown
  double error = 0;  // standard error as a fraction of `us`
};

struct Planner::State {
  explicit State(const Options& given)
      : options(given), fit(given.layers, given.prior), searcher(*given.orders) {
    records.reserve(kMostRecords);
  }

  PlanKind kind(const Plan& plan) const { return kind_of(plan, *options.orders); }
  bool is_automatic() const { return options.choice.mode == OverlapChoice::Mode::automatic; }
  SearchQuestion question(const Bucket& bucket) const;
  Bucket size_of(const PlannerRecord& record) const;
  PlannerRecord& record_for(const Bucket& bucket);
  Expected expected(const PlannerRecord& record, const Candidate& candidate) const;
  Expected expected_now(const PlannerRecord& record) const;
  double noise(const PlannerRecord& record) const;
  RecordTimes times_of(const PlannerRecord& record) const;
  std::vector<Finalist> finalists_of(const PlannerRecord& record) const;

  bool wants_search(const PlannerRecord& record) const;
  void search_on(PlannerRecord& record);
  void conclude(PlannerRecord& record);
  bool may_play(const PlannerRecord& record, PlanKind kind) const;
  std::optional<Candidate> challenger(const PlannerRecord& record) const;
  bool beats(const PlannerRecord& record, const Candidate& other, double errors) const;
  void name_finalists(PlannerRecord& record, const SearchAnswer& answer);
  void decide(PlannerRecord& record);
  void adopt(PlannerRecord& record, const Candidate& candidate);
  void force(PlannerRecord& record);
  Plan forced_plan(const PlannerRecord& record) const;
  Plan plan_near(const PlannerRecord& record) const;

  void measure(PlannerRecord& record, const StepReport& step, const Plan& plan);
  void drop_if_it_lies(PlannerRecord& record);
  void weaken_ratios();
  std::optional<Plan> shadow_for(PlannerRecord& record, Phase phase);
  void begin_burst(const Plan& plan, Phase phase, bool is_trial);
  std::optional<Plan> runner_up(const PlannerRecord& record);
  double doubt(const PlannerRecord& record) const;
  std::optional<Plan> next_trial(const PlannerRecord& record) const;
  void note_shadow(PlannerRecord& record, const StepReport& step);
  bool is_shadow(const StepReport& step) const;
  void tell(PlannerRecord& record);

  Options options;
  FittedTimes fit;
  Searcher searcher;
  mutable std::mutex mutex;  // protects all that state() copies
  std::vector<PlannerRecord> records;
  PlannerRecord* searched = nullptr;  // the record whose search is under way; null: none
  double credit_us = kFirstCreditUs;  // time that searches may still take
  uint64_t clock = 0, num_steps = 0, num_shadow_steps = 0, num_trial_steps = 0, num_searches = 0;
  double search_us = 0;
  uint32_t num_link_shifts = 0;
  uint64_t shifted_at = 0;  // num_steps at the last shift of a link
  struct OfPhase {
    std::array<MeasuredRatio, 3> ratios;  // indexed by PlanKind, over all buckets
    std::array<uint64_t, 3> tried{};
  };
  std::array<OfPhase, kNumPhases> phases;
  struct Shadow {
    Plan plan;
    Phase phase = Phase::decode;
    int proposals_left = 0;  // steps of the burst that are still to be proposed
    int notes_left = 0;      // reports until the burst is given up; 0: no burst is under way
    int num_played = 0;      // steps of this burst that were played
    bool is_trial = false;
    uint64_t steps_since = 0;  // since the last shadow run
    uint64_t any_since = 0;    // since the last burst of any sort
    uint64_t num_turns = 0;
    bool missed_here[kNumPhases] = {};
  } shadow;
  std::array<PlannerRecord*, kMostNews> news{};
  size_t num_news = 0;
};

}  // namespace hocket
