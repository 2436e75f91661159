// Plays random traffic through the real scheduler and cache, with pages that remember their tokens.
// A failing seed is the bug report.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/log.h"
#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/scheduler_hooks.h"
#include "policy/scheduler/simulated_answers_testing.h"
#include "policy/scheduler/simulated_events_testing.h"
#include "policy/scheduler/simulated_options_testing.h"
#include "policy/scheduler/simulated_tiers_testing.h"

namespace hocket {
namespace {

class Simulation final : SchedulerHooks {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), tier_random_(seed), hungry_(pick(0, 1) == 1) {
    SimulatedOptions simulated = simulated_options(random_);
    options_ = std::move(simulated.options);
    options_.seed = seed;
    if (simulated.asks) options_.hooks = this;
    tiers_.emplace(tier_random_, options_, counts);
  }

  // Returns an empty string if all went well.
  std::string run() {
    const auto sample = [this](const Request& request, auto history) {
      const TokenId token = next_token(history, 0);
      std::vector<TokenId>& forced = forced_[request.id];
      forced.clear();
      if (!overlapped_) add_forced(request, history, token, forced);
      return SampledToken{.token = token, .forced = forced};
    };
    FakeEngine engine(options_, sample, overlapped_);
    engine_ = &engine;
    engine.settle_steps([this] { return pick(0, 9) < settled_of_ten_; });
    engine.time_steps([this](const Batch& batch) {
      return std::chrono::microseconds(pick(50, 150) * (1 + batch.num_rows));
    });
    for (int step = 0; step < 20000; ++step) {
      while (num_added_ < num_requests_ && pick(0, 3) == 0) arrive();
      if (pick(0, 15) == 0) abort_one();
      tiers_->deliver(engine);
      if (!overlapped_)
        foreseen_ = std::exchange(early_, {}).value_or(engine.scheduler().forecast_next_step());
      extends_ = !foreseen_ || foreseen_->begins || foreseen_->continues || pick(0, 3) == 0;
      const bool busy =
          fault_random_() % 64 == 0 ? fail_step() : engine.step([&](const Batch& batch) {
            if (pick(0, 3) != 0) early_ = engine.scheduler().forecast_next_step();
            if (options_.hooks != nullptr && batch.num_rows != num_rows_agreed_)
              problem_ =
                  fmt::format("{} rows instead of the {} agreed", batch.num_rows, num_rows_agreed_);
            note_starts(batch);
            note_answers(batch);
            note_reports(batch);
            if (pick(0, 15) == 0) abort_one();
          });
      if (options_.hooks != nullptr && num_agreements_ != step + 1)
        problem_ = fmt::format("{} agreements in {} steps", num_agreements_, step + 1);
      collect();
      if (!engine.problem().empty()) return engine.problem();
      if (!problem_.empty()) return problem_;
      const bool idle = engine.scheduler().idle();
      if (!busy && !idle && extends_ && engine.scheduler().stats().num_held == 0)
        return fmt::format("step {} did nothing, but not all is done", step);
      if (num_added_ == num_requests_ && !busy && idle) return at_the_end();
    }
    return "not done after 20000 steps";
  }

  std::map<std::string_view, uint64_t> counts;  // events, by name

 private:
  Result<bool> ready(const Request& request) override {
    ExpectedAnswer& wanted = wanted_.at(request.id);
    if (wanted.num_not_ready-- > 0) {
      ++counts["held"];
      return false;
    }
    if (wanted.breaks) return fail(ErrorCode::invalid_request, "its grammar does not compile");
    const bool has_pages = tiers_->ready(request, engine_->scheduler());
    if (has_pages) allow_as_if_new(wanted);
    return has_pages;
  }

  void on_pages_cached(const Request& request) override {
    tiers_->write(request, engine_->scheduler());
  }
  void on_state_cached(const Request& request, int len, int /*slot*/) override {
    tiers_->write_state(request, len);
  }

  bool may_begin() override {
    counts["closed"] += static_cast<uint64_t>(!extends_);
    return extends_;
  }

  void offer_drafts(std::span<AnswerDrafts> answers, const DraftedStep& /*step*/) override {
    drafts_.clear();
    for (AnswerDrafts& answer : answers) {
      if (pick(0, 3) == 0) continue;
      drafts_.push_back(guess(wanted_.at(answer.request->id), answer.request->tokens.size(),
                              {.count = pick(0, answer.max_drafts), .right_of_ten = right_of_ten_},
                              random_));
      answer.drafts = drafts_.back();
    }
  }

  // Checks the forecast that was made for this step while the step before it was under way.
  bool any_rank_computes(const Batch& mine) override {
    ++num_agreements_;
    const bool prompts = mine.num_rows > mine.num_decode_rows_total();
    if (prompts && !extends_) problem_ = "a prompt in a pass without prompts";
    if (mine.num_rows > 0 && !prompts && foreseen_ && foreseen_->num_decoding == 0)
      problem_ = "answers that were not foreseen";
    num_rows_agreed_ = mine.num_rows;
    const bool done = num_added_ == num_requests_ && engine_->scheduler().idle();
    const bool others_compute = (others_always_ && !done) || pick(0, 1) == 0;
    counts["idle_steps"] += static_cast<uint64_t>(others_compute && mine.num_rows == 0);
    return others_compute;
  }

  // A skipped request has no better claim, from then on, than one that comes at this moment.
  void allow_as_if_new(ExpectedAnswer& wanted) {
    const int num_ahead = engine_->scheduler().stats().num_waiting;
    wanted.at_most_before =
        std::max(wanted.at_most_before, num_started_ + num_ahead + options_.max_overtaken);
  }

  void note_answers(const Batch& batch) {
    if (batch.num_decode_rows_total() > options_.max_decode_rows)
      problem_ = fmt::format("{} rows of answers", batch.num_decode_rows_total());
    const auto answers = std::span(batch.slices).last(static_cast<size_t>(batch.num_answers()));
    counts["cut"] += static_cast<uint64_t>(
        std::ranges::count_if(answers, [](const Slice& slice) { return !slice.is_sampled; }));
    for (const Slice& slice : answers) {
      if (slice.num_drafts > 0)
        drafted_.insert(slice.request->id);
      else
        drafted_.erase(slice.request->id);
    }
    const auto num_drafts = static_cast<uint64_t>(batch.num_drafts);
    if (overlapped_) counts["drafted_overlapped"] += num_drafts;
    if (options_.num_states > 0) counts["drafted_states"] += num_drafts;
    if (options_.window.bounded()) counts["drafted_windows"] += num_drafts;
    counts["drafted_mixed"] += batch.mode == ForwardMode::mixed ? num_drafts : 0;
    if (overlapped_ && batch.overlapped && num_drafts > 0)
      problem_ = "drafts beside a step in flight";
  }

  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  void arrive() {
    // Whole prompts also have to fit into the window layers.
    const bool whole = options_.window.bounded() && options_.chunk_tokens < 0;
    const int pool =
        (whole ? options_.num_window_pages : options_.num_pages) * options_.page_tokens;
    RequestInput input;
    input.id = RequestId{static_cast<uint64_t>(++num_added_)};
    input.sampling.max_new_tokens = pick(1, std::max(1, pool / (hungry_ ? 2 : 5)));
    const int most = std::min(hungry_ ? pool / 4 : 60, pool + 1 - input.sampling.max_new_tokens);
    const int length = pick(1, most);
    // The prompt begins with one of three common texts or with an earlier request's text, then
    // continues with tokens of its own.
    const auto kind = pick(0, 4);
    int shared = pick(0, length);
    if (kind < 3) {
      for (int i = 0; i < shared; ++i) input.prompt.push_back(TokenId{(kind * 7 + i * i) % kVocab});
    } else if (!wanted_.empty()) {
      const auto& other =
          std::next(wanted_.begin(), pick(0, static_cast<int>(wanted_.size()) - 1))->second.tokens;
      shared = std::min(shared, static_cast<int>(other.size()));
      input.prompt.assign(other.begin(), other.begin() + shared);
    }
    while (static_cast<int>(input.prompt.size()) < length)
      input.prompt.push_back(TokenId{pick(0, kVocab - 1)});
    input.sampling.ignore_eos = hungry_ || pick(0, 1) == 1;
    input.sampling.min_new_tokens = pick(0, 3);
    if (pick(0, 5) == 0) input.sampling.prompt_logprobs_from = pick(0, length);
    if (pick(0, 3) != 0) input.priority = pick(-6, 6);
    input.client = static_cast<uint64_t>(pick(0, 3));
    input.routing_key = static_cast<uint64_t>(pick(0, 3));
    input.arrived = engine_->now();
    input.cache_namespace = static_cast<uint64_t>(pick(0, 4) == 0);
    wanted_[input.id] = alone(input);
    ExpectedAnswer& wanted = wanted_[input.id];
    if (options_.hooks != nullptr && tier_random_() % 2 == 0)
      tiers_->compute_elsewhere(input.cache_namespace, wanted.tokens);
    if (options_.hooks != nullptr && pick(0, 2) == 0) wanted.num_not_ready = pick(1, 12);
    wanted.breaks = options_.hooks != nullptr && pick(0, 7) == 0;
    allow_as_if_new(wanted);
    if (const auto added = engine_->scheduler().add(input); !added) {
      const bool broke = wanted.breaks && added.error().code == ErrorCode::invalid_request;
      if (!broke && added.error().code != ErrorCode::queue_full) problem_ = describe(added.error());
      wanted_.erase(input.id);
      ++counts["refused"];
    }
  }

  void abort_one() {
    if (wanted_.empty()) return;
    ExpectedAnswer& wanted =
        std::next(wanted_.begin(), pick(0, static_cast<int>(wanted_.size()) - 1))->second;
    if (pick(0, 2) != 0) return;
    if (engine_->scheduler().abort(wanted.input.id, FinishReason::abort, {})) wanted.aborted = true;
  }

  // Ranks were lost in a step, or in two: the rows that the first reported are reported again.
  bool fail_step() {
    const bool both = fault_random_() % 2 == 0;
    counts["put_back"] += engine_->fail_step({}, both, [this](const Batch& batch) {
      ++counts["undone_in_flight"];
      for (const Slice& slice : batch.slices)
        if (slice.logprobs_from >= 0) wanted_[slice.request->id].num_reported -= num_reports(slice);
    });
    return true;
  }

  // Checks that no request is overtaken for ever: those ahead of it and max_overtaken more may
  // start before it. Larger priorities may start before it for ever.
  void note_starts(const Batch& batch) {
    for (const Slice& slice : batch.slices) {
      ExpectedAnswer& wanted = wanted_[slice.request->id];
      if (std::exchange(wanted.started, true)) continue;
      if (num_started_ > wanted.at_most_before && !options_.priorities.enabled)
        problem_ = fmt::format("request {} started as number {} instead of {}",
                               value(slice.request->id), num_started_, wanted.at_most_before);
      ++num_started_;
    }
    const uint64_t waits = engine_->scheduler().stats().num_prefix_waits_total;
    if (std::exchange(counts["prefix_waits"], waits) == waits) return;
    for (auto& [id, wanted] : wanted_)  // some of them were skipped
      if (!wanted.started) allow_as_if_new(wanted);
  }

  // Checks that every prompt row that was asked for reports once and in order, despite retractions.
  void note_reports(const Batch& batch) {
    counts["copied"] += batch.copies.size();
    for (const Slice& slice : batch.slices) {
      if (slice.logprobs_from < 0) continue;
      ExpectedAnswer& wanted = wanted_[slice.request->id];
      const int first =
          std::max(0, wanted.input.sampling.prompt_logprobs_from - 1) + wanted.num_reported;
      if (slice.logprobs_from != first)
        problem_ = fmt::format("request {} reports row {} instead of {}", value(slice.request->id),
                               slice.logprobs_from, first);
      wanted.num_reported += num_reports(slice);
    }
  }

  void collect() {
    for (const auto& request : engine_->scheduler().take_finished()) {
      const auto found = wanted_.find(request->id);
      if (found == wanted_.end()) {
        problem_ = fmt::format("request {} finished twice", value(request->id));
        return;
      }
      judge(found->second, *request);
      tiers_->end(*request);
      const bool had_drafts = drafted_.erase(request->id) > 0;
      counts["aborted_drafts"] += static_cast<uint64_t>(had_drafts && found->second.aborted);
      counts["ended_drafts"] += static_cast<uint64_t>(had_drafts && !found->second.aborted);
      wanted_.erase(found);
      ++counts["finished"];
      counts["cached_tokens"] += static_cast<uint64_t>(request->cached_len);
      counts["from_states"] +=
          static_cast<uint64_t>(options_.num_states > 0 && request->cached_len > 0);
      counts["from_windows"] += static_cast<uint64_t>(
          request->cached_len >= options_.window.max_keys() && options_.window.bounded());
    }
  }

  void judge(const ExpectedAnswer& wanted, const Request& request) {
    const auto id = value(request.id);
    const bool is_prefix =
        request.tokens.size() <= wanted.tokens.size() &&
        std::equal(request.tokens.begin(), request.tokens.end(), wanted.tokens.begin());
    const ErrorCode code = request.error.code;
    const bool broke = wanted.breaks && code == ErrorCode::invalid_request;
    const bool lost = request.finish == FinishReason::error &&
                      (code == ErrorCode::timed_out || code == ErrorCode::queue_full || broke);
    if (lost) ++counts[broke ? "broken" : code == ErrorCode::timed_out ? "timed_out" : "displaced"];
    const FinishReason reason = wanted.aborted ? FinishReason::abort
                                : lost         ? FinishReason::error
                                               : wanted.finish;
    if (!is_prefix) problem_ = fmt::format("request {} got other tokens than alone", id);
    if (request.finish != reason)
      problem_ = fmt::format("request {} ended for another reason: {} {}", id,
                             static_cast<int>(request.finish), request.error.message);
    if (!request.pages.empty() || request.lease)
      problem_ = fmt::format("request {} kept pages", id);
    if (wanted.aborted || lost) return;
    if (request.tokens.size() != wanted.tokens.size())
      problem_ = fmt::format("request {} ended early", id);
    const int from = wanted.input.sampling.prompt_logprobs_from;
    const int asked = from < 0 ? 0 : std::max(0, request.prompt_len - 1 - std::max(0, from - 1));
    if (wanted.num_reported != asked)
      problem_ =
          fmt::format("request {} reported {} rows instead of {}", id, wanted.num_reported, asked);
  }

  std::string at_the_end() {
    if (!wanted_.empty()) return fmt::format("request {} was lost", value(wanted_.begin()->first));
    if (!engine_->scheduler().flush_cache()) return "the cache could not be emptied";
    const SchedulerStats stats = engine_->scheduler().stats();
    counts["retracted"] = stats.num_retracted_total;
    counts["forced"] = stats.forced_tokens_total;
    for (const uint64_t count : stats.drafted_total) counts["drafted"] += count;
    for (const uint64_t count : stats.accepted_total) counts["accepted_drafts"] += count;
    counts["restored"] = stats.restored_tokens_total;
    counts["evicted"] = stats.num_evicted_pages_total;
    counts["preempted"] = stats.num_preempted_total;
    counts["recomputed"] = stats.recomputed_tokens_total;
    counts["evicted_states"] = stats.num_evicted_states_total;
    counts["evicted_windows"] = stats.num_evicted_window_pages_total;
    if (stats.num_free_window_pages != stats.num_window_pages)
      return fmt::format("{} of {} pages of windows are free at the end",
                         stats.num_free_window_pages, stats.num_window_pages);
    if (stats.num_timed_out_total != counts["timed_out"] ||
        stats.num_displaced_total != counts["displaced"])
      return "timeouts or displacements were counted wrongly";
    if (stats.num_free_pages != stats.num_pages || stats.num_free_states != stats.num_states)
      return fmt::format("{} of {} pages and {} of {} states are free at the end",
                         stats.num_free_pages, stats.num_pages, stats.num_free_states,
                         stats.num_states);
    return {};
  }

  std::mt19937_64 random_;
  std::mt19937_64 tier_random_;  // its draws do not change the traffic
  std::mt19937_64 fault_random_{tier_random_()};
  std::optional<SimulatedTiers> tiers_;
  SchedulerOptions options_;
  FakeEngine* engine_ = nullptr;
  std::map<RequestId, ExpectedAnswer> wanted_;
  std::string problem_;
  std::map<RequestId, std::vector<TokenId>> forced_;  // tokens forced by the newest sample
  std::deque<std::vector<TokenId>> drafts_;           // offered in this step
  std::set<RequestId> drafted_;                       // requests whose last rows had drafts
  int num_requests_ = pick(5, 40), num_added_ = 0, num_started_ = 0;
  // Forecasts of this rank for the step to come and for the one being made; and whether any rank
  // announced prompts. Not used for overlapped steps, which no other rank computes.
  std::optional<NextStepForecast> early_, foreseen_;
  bool extends_ = true;
  bool overlapped_ = pick(0, 1) == 1;
  int right_of_ten_ = pick(0, 10);        // drafts that are right
  int settled_of_ten_ = pick(0, 10);      // steps that wait for the commit of the one before
  bool others_always_ = pick(0, 1) == 0;  // false: only now and then
  int num_agreements_ = 0, num_rows_agreed_ = 0;
  bool hungry_;  // short prompts and long answers: decode runs out of pages
};

TEST(SimulationTest, RandomTrafficEndsAsIfEachWereAlone) {
  log::set_level(log::Level::error);
  const auto [first_seed, num_seeds] = seeds_wanted();
  ASSERT_GT(num_seeds, 0u);
  std::map<std::string_view, uint64_t> counts;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    Simulation simulation(seed);
    ASSERT_EQ(simulation.run(), "") << "seed " << seed;
    for (const auto& [what, count] : simulation.counts) counts[what] += count;
  }
  fmt::print("{} seeds from {}:", num_seeds, first_seed);
  for (const auto& [what, count] : counts) fmt::print(" {} {}", what, count);
  fmt::print("\n");
  // Events that never happened were not tested; a few seeds cannot show them all.
  if (num_seeds < 200) return;
  for (const auto& [what, least] : kMinIn1500)
    EXPECT_GT(counts[what] * 1500 / num_seeds, least) << what;
}

}  // namespace
}  // namespace hocket
