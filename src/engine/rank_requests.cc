#include "engine/rank_requests.h"

#include <algorithm>
#include <utility>

#include "engine/prepare.h"

namespace hocket {
namespace {

SchedulerOptions with(SchedulerOptions options, KvEventChannel* events, SchedulerHooks* hooks) {
  options.kv_events = events;
  options.hooks = hooks;
  return options;
}

}  // namespace

RankRequests::RankRequests(RankParts& parts, const Context& around)
    : epochs_(around.epochs),
      report_(around.report),
      kv_events_(std::move(parts.kv_events)),
      grammars_(parts.grammars, around.wake,
                static_cast<size_t>(parts.scheduler.max_running_requests)),
      drafts_(parts, epochs_.rank(), around.runner,
              {grammars_, draft_sources(around.steps_overlap)}),
      hooks_(grammars_, drafts_.speculation(), epochs_.lockstep()),
      mixes_(parts.scheduler.prefill_policy != PrefillPolicy::prefill_first),
      scheduler_(with(parts.scheduler, kv_events_.get(), &hooks_)),
      tier_(std::move(parts.tier)),
      sessions_(scheduler_, tier_.get(), around.runner.info().page_tokens, around.clock),
      answers_(around.runner.info().model, epochs_.rank(), report_),
      lost_ranks_(parts.lost_rank_wait, {around.clock, epochs_, scheduler_, answers_}) {
  if (tier_ == nullptr) return;
  tier_->start(around.clock, around.wake, [this](PageId page) { drafts_.note_restored(page); });
  hooks_.attach(*tier_, scheduler_, drafts_.module());
  answers_.attach(*tier_);
}

// A grammar's forced tokens are drafts only where they are not taken without one.
NgramDrafter::Sources RankRequests::draft_sources(std::function<bool()> steps_overlap) {
  return {.forced = [this, overlap = std::move(steps_overlap)](int seat,
                                                               std::span<TokenId> out) -> size_t {
            const Request& request = drafts_.speculation()->at(seat);
            if (may_force(request.sampling) && !overlap()) return 0;
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

bool RankRequests::has_pages_to_copy() const {
  return tier_ != nullptr && (tier_->has_read_pages() || tier_->has_delayed_pages());
}

bool RankRequests::vetoes_overlap() {
  const Speculation* const drafts = drafts_.speculation();
  return grammars_.any_live() || (drafts != nullptr && drafts->plays_drafts());
}

// Expected prompt rows: the rest of cut prompts plus the uncached rows of waiting ones, at most a
// step. Expected drafts: as many as in the last step.
StepProposal RankRequests::propose(int max_rows) {
  StepProposal proposal{.work = scheduler_.forecast_next_step(), .load = report_.load()};
  proposal.module_passes = drafts_.num_passes();
  const NextStepForecast& work = proposal.work;
  proposal.num_last_drafts = drafts_.num_last_drafts();
  // A rank without answers keeps no other from overlap, whatever drafts its last ones had.
  proposal.vetoes_overlap = work.num_decoding > 0 ? vetoes_overlap() : grammars_.any_live();
  int64_t rows = work.num_decoding + proposal.expected_drafts();
  if (work.begins || work.continues)
    rows = (mixes_ ? rows : 0) + scheduler_.num_prompt_rows(max_rows);
  proposal.prompt_step_rows = static_cast<int>(std::min<int64_t>(rows, max_rows));
  return proposal;
}

void RankRequests::note_begun(const Batch& batch) {
  drafts_.note_scheduled(batch);
  if (tier_ != nullptr) report_.count_fetched(tier_->note_begun(batch));
}

void RankRequests::commit(Flight& flight, TimePoint now, std::optional<double> overlapped_share) {
  lost_ranks_.end();
  answers_.keep(flight);
  const Batch& batch = *flight.batch;
  scheduler_.note_duration(batch, flight.took());
  scheduler_.commit(batch, flight.sampled, now);
  if (tier_ != nullptr) tier_->note_step(batch, flight.took());
  drafts_.commit(flight, now, overlapped_share);
}

void RankRequests::reply(Flight& flight) {
  answers_.send_tokens(flight);
  send_finished();
}

// Aborts may have ended the last requests. An idle rank also checks invariants, because that is
// cheap then.
void RankRequests::note_idle() {
  drafts_.note_idle();
  send_finished();
  report_.publish_idle(scheduler_);
  if (!scheduler_.idle()) return;
  if (epochs_.connected()) lost_ranks_.end();
  if (std::exchange(integrity_unchecked_, false)) scheduler_.check_integrity();
}

void RankRequests::end_all(const Error& why) {
  lost_ranks_.abort_all(why);
  send_finished();
}

void RankRequests::handle(Command& command) {
  std::visit([this](auto& one) { take_in(one); }, command);
}

void RankRequests::take_in(RequestInput& input) {
  report_.count_intake(std::ssize(input.prompt));
  const RequestId id = input.id;
  const auto refuse = [&](Error why) {
    if (tier_ != nullptr) tier_->forget(id);
    answers_.refuse(id, std::move(why));
  };
  if (!epochs_.alone() && !epochs_.joined() && !lost_ranks_.may_wait())
    return refuse(epochs_.why_lost());
  integrity_unchecked_ = true;
  if (!answers_.add(input))
    return refuse(error(ErrorCode::out_of_memory, "no memory is left to take the request in")
                      .with_fix("try again later, or ask for fewer log-probabilities"));
  const std::vector<TokenId> known = input.answer;
  if (auto added = scheduler_.add(std::move(input)); !added) {
    answers_.forget(id);
    grammars_.forget(id);
    return refuse(std::move(added.error()));
  }
  answers_.send_known(id, known);
}

void RankRequests::take_in(AbortRequest& abort) {
  scheduler_.abort(abort.id, abort.reason, std::move(abort.why));
}

void RankRequests::take_in(AbortAll& abort) {
  lost_ranks_.abort_all(abort.why);
}

void RankRequests::take_in(FlushCache& flush) {
  const bool idle = answers_.live().empty();
  const bool flushed = scheduler_.flush_cache();
  // Publish before answering, so that the caller sees the flush in the metrics.
  if (idle) report_.publish_idle(scheduler_);
  flush.answer.set_value(flushed);
}

// Answers requests that ended without a token of this step: aborted, failed, or out of memory.
void RankRequests::send_finished() {
  if (!scheduler_.has_finished()) return;
  for (std::unique_ptr<Request>& request : scheduler_.take_finished()) {
    answers_.send_end(*request);
    grammars_.forget(request->id);  // its last row is done
    hooks_.forget(*request);
    if (tier_ != nullptr) tier_->forget(request->id);
    drafts_.end(std::move(request));
  }
}

void RankRequests::handle_lost_ranks(std::span<const Batch* const> uncommitted) {
  drafts_.take_back_failed();
  lost_ranks_.handle(uncommitted);
}

void RankRequests::wait_for_ranks(const std::function<bool()>& is_wanted) {
  if (tier_ != nullptr) {
    if (tier_->has_delayed_pages()) tier_->copy_delayed(scheduler_, is_wanted);
    tier_->take_read_pages(scheduler_, EngineLoad::idle);
    tier_->end_prefills();  // no request waits here for a prompt that another service can compute
  }
  lost_ranks_.end_if_over();
  send_finished();
}

}  // namespace hocket
