#include "engine/step.h"

#include <pthread.h>

#include <algorithm>

#include "base/log.h"

namespace hocket {
namespace {

SchedulerOptions with(SchedulerOptions options, KvEventChannel* events, SchedulerHooks* hooks) {
  options.kv_events = events;
  options.hooks = hooks;
  return options;
}

}  // namespace

// One step: intake, schedule, prepare, forward, sample, commit, reply, always in this order.
// Several ranks agree on the step before schedule(), and exchange that agreement while the step
// before samples:
//
//   rank 0   intake finish_agreement schedule prepare forward  intake begin_agreement  sample ...
//   rank 1   intake finish_agreement schedule prepare forward  intake begin_agreement  sample ...
bool RankStep::run() {
  if (!follow_choice()) return false;
  if (overlapped_.active) return run_overlapped();
  overlap_.begin();
  Flight* const flight = compute_next();
  if (flight == nullptr) return false;
  const Ledger::OtherWork other(ledger(), "sample, answer");
  flight->account = overlap_.end();
  overlap_.take(flight->account);
  drafts_.plan(*flight->batch);
  if (lockstep_) {
    intake();  // requests that just came count in the next step
    lockstep_->begin_agreement(propose());
  }
  report_.begin_verb(Verb::sample);
  sample(*flight, tools());
  commit(*flight);
  reply(*flight);
  return true;
}

// Runs intake to forward. Returns null if there was nothing to compute, or ranks were lost.
Flight* RankStep::compute_next() {
  const Ledger::OtherWork other(ledger(), "schedule");
  intake();
  if (!restore_pages()) return nullptr;
  report_.begin_verb(Verb::agree);
  if (lockstep_ && !lockstep_->finish_agreement(propose())) return abort_step({}), nullptr;
  if (lockstep_) overlap_.note_reports(*lockstep_);
  auto drafting = compute_drafts();
  if (!drafting) {
    lockstep_->fail_with(std::move(drafting).error());
    return abort_step({}), nullptr;
  }
  hooks_.write_pages();
  report_.begin_verb(Verb::schedule);
  const Batch& batch = scheduler_.schedule(clock_.now());
  report_.set_busy(!batch.empty());
  if (batch.empty()) return publish_idle(), nullptr;
  pending_prompt_rows_ = batch.pending_tokens;
  drafts_.note_scheduled(batch);
  Flight& flight = flights_.take();
  flight.agreed = agreed();
  flight.move = experts_.take_move();
  flight.drafting = *drafting;
  report_.begin_verb(Verb::prepare);
  prepare(batch, prepare_options(), flight);
  report_.add_agreement_wait(watch_.take_waited());
  report_.begin_verb(Verb::forward);
  forward(flight, {}, tools());
  report_.add_exchange_wait(watch_.take_waited());
  if (!flight.lost) return &flight;
  lockstep_->fail_with(*flight.lost);
  const Batch* const lost = &batch;
  return abort_step({&lost, 1}), nullptr;
}

// Computes the drafts of the next step by the model's own module, together with the other ranks:
// they are part of the step that was agreed on. Returns the time that this took. Errors: lost_rank.
Result<Duration> RankStep::compute_drafts() {
  if (!drafts_.has_module()) return Duration{};
  const std::array<PassSpec, kMaxDrafts> alone{};
  const auto passes =
      lockstep_ ? lockstep_->module_passes() : std::span(alone).first(drafts_.num_passes());
  if (passes.empty()) {
    HOCKET_TRY_VOID(drafts_.compute({}));
    return Duration{};
  }
  report_.add_agreement_wait(watch_.take_waited());
  report_.begin_verb(Verb::forward);
  const Ledger::OtherWork other(ledger(), "draft");
  const TimePoint begin = clock_.now();
  const auto done = drafts_.compute(passes);
  const Duration took = clock_.now() - begin;
  report_.add_exchange_wait(watch_.take_waited());
  HOCKET_TRY_VOID(done);
  return took;
}

// Takes in pages that were read, and writes late ones. A step in flight may still read the pages of
// memory that they get, so it is finished first. Returns false if ranks were lost in it.
bool RankStep::restore_pages() {
  if (tier_ == nullptr || !tier_->has_pending_io()) return true;
  if (!finish_all()) return false;
  tier_->process_io(scheduler_);
  return true;
}

void RankStep::intake() {
  report_.begin_verb(Verb::intake);
  while (auto command = commands_.pop()) handle(*command);
}

void RankStep::commit(Flight& flight) {
  report_.begin_verb(Verb::commit);
  loss_wait_.end();
  answers_.keep(flight);
  const Batch& batch = *flight.batch;
  scheduler_.note_duration(batch, flight.took());
  const TimePoint now = clock_.now();
  scheduler_.commit(batch, flight.sampled, now);
  if (tier_ != nullptr) tier_->note_step(batch, flight.took());
  drafts_.commit(flight, now, overlapped_.timing.overlapped_share());
  experts_.note(flight);
  std::optional<StepTransfers> transfers;
  if (lockstep_) {
    const StepAccount& a = flight.account;
    transfers = {a.hidden, a.exposed, a.hidden_is_bound};
  }
  overlapped_.timing.note_commit(flight, is_of_answers(flight), overlapped_.active, now);
  report_.publish(flight, scheduler_, now, transfers);  // reads requests, which end with reply()
}

void RankStep::reply(Flight& flight) {
  report_.begin_verb(Verb::reply);
  answers_.send_tokens(flight);
  send_finished();
}

RankStep::RankStep(RankParts parts, const Context& around)
    : clock_(around.clock),
      network_(around.network),
      commands_(around.commands),
      report_(around.report),
      watch_(network_ != nullptr ? &network_->pulse() : nullptr),
      stall_timeout_(parts.stall_timeout),
      runner_(std::move(parts.runner)),
      kv_events_(std::move(parts.kv_events)),
      experts_(parts, *runner_, rank_index(), clock_, around.wake),
      loss_wait_(parts.lost_rank_wait),
      tolerate_ranks_(parts.tolerate_ranks),
      lockstep_(network_ != nullptr
                    ? std::make_optional<Lockstep>(
                          network_->num_ranks(),
                          Lockstep::Options{.pulse = &network_->pulse(),
                                            .max_delayed_passes = parts.max_delayed_passes,
                                            .orders = runner_->overlap().orders.get(),
                                            .may_leave_others = network_->may_leave_others(),
                                            .waits_for_others = network_->is_indispensable(),
                                            .balance_voter = experts_.rebalance()})
                    : std::nullopt),
      overlap_({.rank = rank_index(),
                .num_ranks = network_ != nullptr ? network_->num_ranks() : 1,
                .tolerate_ranks = tolerate_ranks_,
                .layers = parts.layers,
                .settings = &runner_->overlap(),
                .prior = std::move(parts.prior),
                .row_tile = runner_->row_tile(),
                .clock = network_ != nullptr ? &real_clock_ : &clock_,
                .profiler = parts.profiler,
                .recent = parts.recent}),
      grammars_(parts.grammars, around.wake,
                static_cast<size_t>(parts.scheduler.max_running_requests)),
      drafts_(parts, rank_index(), *runner_, {grammars_, draft_sources()}),
      hooks_(grammars_, drafts_.speculation(), lockstep()),
      mixes_(parts.scheduler.prefill_policy != PrefillPolicy::prefill_first),
      scheduler_(with(parts.scheduler, kv_events_.get(), &hooks_)),
      tier_(std::move(parts.tier)),
      sessions_(scheduler_, tier_.get(), runner_->info().page_tokens, clock_),
      sampler_(runner_->info().model.vocab_size, runner_->plan().work.max_logits_rows),
      answers_(runner_->info().model, rank_index(), report_) {
  if (tier_ != nullptr) {
    tier_->start(clock_, around.wake, [this](PageId page) { drafts_.note_restored(page); });
    hooks_.attach(*tier_, scheduler_,
                  drafts_.has_module() ? PageWrites::after_module : PageWrites::at_commit);
    answers_.attach(*tier_);
  }
  const int max_requests = parts.scheduler.max_running_requests + 1;
  for (Flight& flight : flights_.all()) {
    flight.reserve(runner_->plan().work, {.requests = max_requests,
                                          .samples = max_requests + parts.scheduler.max_answer_rows,
                                          .pages = parts.scheduler.num_pages *
                                                   (parts.scheduler.window.bounded() ? 2 : 1)});
    flight.experts.rank = rank_index();
    flight.experts.counts.resize(experts_.num_counts());
  }
  if (const OverlapSchedule schedule = runner_->info().overlap_schedule;
      schedule != OverlapSchedule::off)
    begin_overlapping(schedule);
  if (forward_thread_ && drafts_.speculation() != nullptr)
    log::info("steps overlap only while answers have no drafts, which need the tokens before them");
}

// A grammar's forced tokens are drafts only where they are not taken without one.
NgramDrafter::Sources RankStep::draft_sources() {
  return {.forced = [this](int seat, std::span<TokenId> out) -> size_t {
            const Request& request = drafts_.speculation()->at(seat);
            if (may_force(request.sampling) && !overlapped_.active) return 0;
            return grammars_.forced(request, out);
          },
          .continued =
              [this](int seat, std::span<TokenId> out) {
                return scheduler_.continuation(drafts_.speculation()->at(seat), out);
              },
          .predicted =
              [this](int seat) {
                const auto& prediction = drafts_.speculation()->at(seat).prediction;
                return prediction ? std::span<const TokenId>(*prediction)
                                  : std::span<const TokenId>();
              }};
}

void RankStep::adopt_thread() {
  answers_.wait_if_full();
  if (cpu_set_t cpus; pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus) == 0)
    overlapped_.own_cpus = cpus;
  if (!overlapped_.active) runner_->workers().adopt_caller();
}

bool RankStep::has_work() {
  return !scheduler_.idle() || commands_.size() > 0 ||
         (tier_ != nullptr && tier_->has_pending_io()) || (lockstep_ && lockstep_->peer_waiting());
}

// Handles a step with nothing to run: aborts may have ended the last requests. An idle rank also
// checks invariants, because that is cheap then.
void RankStep::publish_idle() {
  report_.begin_verb(Verb::rest);
  drafts_.note_idle();
  if (!overlapped_.active) overlap_.drop();
  overlapped_.after_rest = true;
  overlapped_.timing.note_idle();
  send_finished();
  report_.publish_idle(scheduler_);
  if (connected() && scheduler_.idle()) loss_wait_.end();
  if (scheduler_.idle() && std::exchange(integrity_unchecked_, false)) scheduler_.check_integrity();
}

void RankStep::end_all(const Error& why) {
  static_cast<void>(finish_all());
  hooks_.write_pages();
  intake();
  abort_all(why);
  send_finished();
}

// Proposes this rank's part of the next step. It asks for as many prompt rows as wait or are left
// of cut prompts, up to the size of a step, and expects as many drafts as in the last one.
StepProposal RankStep::propose() {
  StepProposal proposal{.work = scheduler_.forecast_next_step(), .load = report_.load()};
  if (!lockstep_) return proposal;
  proposal.overlaps = overlapped_.timing.decides() ? wants_overlap() : overlapped_.active;
  proposal.module_passes = drafts_.num_passes();
  NextStepForecast& work = proposal.work;
  if (work.num_decoding > 0) work.num_decoding += drafts_.num_expected();
  int64_t rows = work.num_decoding;
  if (work.begins || work.continues) {
    if (!mixes_) rows = 0;
    rows += std::max(scheduler_.stats().num_waiting_tokens, pending_prompt_rows_);
  }
  proposal.prompt_step_rows =
      static_cast<int>(std::min<int64_t>(rows, runner_->plan().work.max_rows));
  overlap_.fill(*lockstep_, proposal);
  return proposal;
}

StepTools RankStep::tools() {
  return {.runner = *runner_,
          .sampler = sampler_,
          .clock = clock_,
          .ledger = &overlap_.ledger(),
          .experts = experts_.stats(),
          .grammars = &grammars_};
}

AgreedStep RankStep::agreed() const {
  if (!lockstep_) return {};
  return {.pass = lockstep_->pass(),
          .plan = lockstep_->plan(),
          .is_trial = lockstep_->is_trial(),
          .hung_after = lockstep_->hung_after()};
}

PrepareOptions RankStep::prepare_options() const {
  const EngineInfo& info = runner_->info();
  return {.page_tokens = info.page_tokens,
          .unseen_page = runner_->unseen_page(),
          .prompt_form = info.prompt_form,
          .eos_ids = info.model.eos_ids,
          .packing = lockstep_ ? overlap_.packing(lockstep_->plan()) : std::nullopt,
          .grammars = &grammars_,
          .max_forced = overlapped_.active ? 0 : kMaxForcedTokens};
}

void RankStep::handle(Command& command) {
  std::visit([this](auto& one) { take_in(one); }, command);
}

void RankStep::take_in(RequestInput& input) {
  report_.count_intake(std::ssize(input.prompt));
  const RequestId id = input.id;
  const auto refuse = [&](Error why) {
    if (tier_ != nullptr) tier_->forget(id);
    answers_.refuse(id, std::move(why));
  };
  if (network_ != nullptr && !joined_ && !loss_wait_.under_way()) return refuse(why_lost());
  integrity_unchecked_ = true;
  if (!answers_.add(input))
    return refuse(error(ErrorCode::out_of_memory, "no memory is left to take the request in")
                      .with_fix("ask again later, or for fewer log-probabilities"));
  const std::vector<TokenId> known = input.answer;
  if (auto added = scheduler_.add(std::move(input)); !added) {
    answers_.forget(id);
    grammars_.forget(id);
    return refuse(std::move(added.error()));
  }
  answers_.send_known(id, known);
}

void RankStep::take_in(AbortRequest& abort) {
  scheduler_.abort(abort.id, abort.reason, std::move(abort.why));
}

void RankStep::take_in(AbortAll& abort) {
  abort_all(abort.why);
}

// If no request is live, only rows of ended requests can be under way: they are finished before the
// flush.
void RankStep::take_in(FlushCache& flush) {
  const bool idle = answers_.live().empty();
  if (idle) static_cast<void>(finish_all());
  const bool flushed = scheduler_.flush_cache();
  if (idle) report_.publish_idle(scheduler_);  // whoever has the answer finds it in the metrics
  flush.answer.set_value(flushed);
}

// Requests that wait for lost ranks end with the error of these, not with half an answer.
void RankStep::abort_all(const Error& why) {
  if (loss_wait_.under_way()) return abort_live(FinishReason::error, why_lost());
  abort_live(FinishReason::abort, why);
}

void RankStep::abort_live(FinishReason reason, const Error& why) {
  for (const RequestId id : answers_.live()) scheduler_.abort(id, reason, why);
}

// Answers requests that ended without a token of this step: aborted, failed, or out of memory.
void RankStep::send_finished() {
  if (!scheduler_.has_finished()) return;
  for (const std::unique_ptr<Request>& request : scheduler_.take_finished()) {
    answers_.send_end(*request);
    grammars_.forget(request->id);  // its last row is done
    drafts_.forget(request->id);
    hooks_.forget(*request);
    if (tier_ != nullptr) tier_->forget(request->id);
  }
}

}  // namespace hocket
