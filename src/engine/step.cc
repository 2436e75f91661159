#include "engine/step.h"

#include <algorithm>
#include <array>

#include "base/log.h"

namespace hocket {

// One step: intake, schedule, prepare, forward, sample, commit, reply, always in this order.
// Several ranks agree on the step before schedule(), and exchange that agreement while the step
// before samples:
//
//   rank 0   intake finish_agreement schedule prepare forward  intake begin_agreement  sample ...
//   rank 1   intake finish_agreement schedule prepare forward  intake begin_agreement  sample ...
bool RankStep::run() {
  if (!follow_choice()) return false;
  if (overlapped_.active()) return run_overlapped();
  overlap_.begin();
  Flight* const flight = compute_next();
  if (flight == nullptr) return false;
  const Ledger::OtherWork other(ledger(), "sample, answer");
  flight->account = overlap_.end();
  overlap_.take(flight->account);
  if (Lockstep* const lockstep = epochs_.lockstep()) {
    intake();  // requests that just arrived count in the next step
    lockstep->begin_agreement(propose());
  }
  report_.begin_action(StepAction::sample);
  sample(*flight, tools_);
  commit(*flight);
  reply(*flight);
  return true;
}

// Runs intake to forward. Returns null if there was nothing to compute, or ranks were lost.
Flight* RankStep::compute_next() {
  const Ledger::OtherWork other(ledger(), "schedule");
  Lockstep* const lockstep = epochs_.lockstep();
  intake();
  if (!restore_pages()) return nullptr;
  report_.begin_action(StepAction::agree);
  if (lockstep != nullptr && !lockstep->finish_agreement(propose())) return abort_step({}), nullptr;
  if (lockstep != nullptr) overlap_.note_reports(*lockstep);
  const std::optional<DraftWork> drafting = compute_drafts();
  if (!drafting) return nullptr;
  requests_.write_pages();
  report_.begin_action(StepAction::schedule);
  const Batch& batch = requests_.scheduler().schedule(clock_.now());
  report_.set_busy(!batch.empty());
  if (batch.empty()) return publish_idle(), nullptr;
  Flight& flight = prepare_next(batch, *drafting);
  report_.add_agreement_wait(epochs_.watch().take_waited());
  report_.begin_action(StepAction::forward);
  forward(flight, {}, tools_);
  report_.add_exchange_wait(epochs_.watch().take_waited());
  if (!flight.lost) return &flight;
  lockstep->fail_with(*flight.lost);
  const Batch* const lost = &batch;
  return abort_step({&lost, 1}), nullptr;
}

// The action prepare. drafting: what was computed for the drafts of the step. While a step is under
// way its tokens are not known here, and the next one gets no drafts: the thread that computes
// plays the module's passes between the two.
Flight& RankStep::prepare_next(const Batch& batch, const DraftWork& drafting) {
  requests_.note_begun(batch);
  RankDrafts& drafts = requests_.drafts();
  ModulePasses* const module =
      overlapped_.num_under_way() > 0
          ? drafts.begin_passes_behind(flights_.newest(), epochs_.module_passes())
          : nullptr;
  drafts.plan(batch);
  Flight& flight = flights_.take();
  flight.module = module;
  flight.agreed = epochs_.agreed();
  flight.move = experts_.take_move();
  flight.drafting = drafting;
  report_.begin_action(StepAction::prepare);
  prepare(batch, prepare_options(), flight);
  return flight;
}

// Computes the drafts of the next step by the model's own module, together with the other ranks:
// they are part of the step that was agreed on. Returns nothing if ranks were lost. Precondition:
// no step is under way.
std::optional<DraftWork> RankStep::compute_drafts() {
  ModulePasses* const passes = requests_.drafts().begin_passes(epochs_.module_passes());
  if (passes == nullptr) return DraftWork{};
  report_.add_agreement_wait(epochs_.watch().take_waited());
  report_.begin_action(StepAction::forward);
  Result<DraftWork> done = DraftWork{};
  overlapped_.run_between([&] { done = play(*passes, {}, tools_); });
  report_.add_exchange_wait(epochs_.watch().take_waited());
  if (done) return *done;
  epochs_.lockstep()->fail_with(std::move(done).error());
  return abort_step({}), std::nullopt;
}

// Other ranks need this one for their steps, so an idle rank copies until one waits for it. Where
// steps overlap, the ranks have agreed on the next step already.
void RankStep::copy_delayed_pages() {
  Scheduler& scheduler = requests_.scheduler();
  CacheTier& tier = *requests_.tier();
  requests_.drafts().await_rewritten_rows();
  const bool steps_run =
      overlapped_.active() && (!epochs_.alone() || overlapped_.num_under_way() > 0);
  if (steps_run || !scheduler.idle()) return tier.copy_delayed(scheduler);
  tier.copy_delayed(scheduler, [this] {
    return commands_.size() > 0 || (!epochs_.alone() && epochs_.lockstep()->peer_waiting());
  });
}

// Takes in pages that were read, and copies delayed ones. A step in flight may still read the pages
// of memory that the former get, so it is finished first. Returns false if ranks were lost in it.
bool RankStep::restore_pages() {
  CacheTier* const tier = requests_.tier();
  if (tier == nullptr) return true;
  if (tier->has_delayed_pages()) copy_delayed_pages();
  if (!tier->has_read_pages()) return true;
  if (!finish_all()) return false;
  const bool is_idle = epochs_.others_are_idle() && requests_.scheduler().stats().num_running == 0;
  tier->take_read_pages(requests_.scheduler(), is_idle ? EngineLoad::idle : EngineLoad::running);
  return true;
}

void RankStep::intake() {
  report_.begin_action(StepAction::intake);
  while (auto command = commands_.pop()) handle(*command);
}

void RankStep::commit(Flight& flight) {
  report_.begin_action(StepAction::commit);
  const TimePoint now = clock_.now();
  requests_.commit(flight, now, overlapped_.share_at(flight));
  experts_.note(flight);
  std::optional<StepTransfers> transfers;
  if (!epochs_.alone()) {
    const StepAccount& a = flight.account;
    transfers = {a.hidden, a.exposed, a.hidden_is_bound};
  }
  overlapped_.note_commit(flight, now);
  // Reads requests, which end with reply().
  report_.publish(flight, requests_.scheduler(), now, transfers);
}

void RankStep::reply(Flight& flight) {
  report_.begin_action(StepAction::reply);
  requests_.reply(flight);
}

// A step with drafts is made behind the commit of the one before, and committed before the next.
bool RankStep::run_overlapped() {
  Lockstep* const lockstep = epochs_.lockstep();
  intake();
  if (lockstep != nullptr && !agree_overlapped()) return false;
  if (!restore_pages()) return false;
  if (drafts_may_come() && !finish_all()) return false;
  const bool one_computes = overlapped_.num_under_way() > 0;
  const auto drafting = one_computes ? DraftWork{} : compute_drafts();
  if (!drafting) return false;
  // If that step has no rows here, requests may lose their pages while it is computed.
  if (!one_computes || flights_.newest().batch->num_rows == 0) requests_.write_pages();
  report_.begin_action(StepAction::schedule);
  const Batch& batch = requests_.scheduler().schedule(clock_.now());
  const bool is_one = !batch.empty();
  report_.set_busy(one_computes || is_one);
  if (!one_computes && !is_one) return epochs_.end_steps(), publish_idle(), false;
  if (is_one) overlapped_.launch(prepare_next(batch, *drafting));
  report_.begin_action(StepAction::forward);  // the forward thread samples, too
  if (one_computes) {
    Flight& finished = overlapped_.wait();
    if (!finish(finished)) return false;
    if (is_one) overlapped_.await_more_requests(finished, flights_.newest());
  }
  overlapped_.timing().begin_turn(clock_.now());
  if (lockstep == nullptr) return true;
  if (!is_one) return requests_.drafts().drop_passes(), epochs_.end_steps(), true;
  intake();  // requests that just arrived count in the next step
  lockstep->begin_agreement(propose());
  return true;
}

// The action agree. Returns false if ranks were lost.
bool RankStep::agree_overlapped() {
  if (!epochs_.joined()) return false;  // the intake has seen that ranks were lost
  Lockstep& lockstep = *epochs_.lockstep();
  report_.begin_action(StepAction::agree);
  if (!lockstep.finish_agreement(propose())) return abort_overlapped_steps(nullptr), false;
  // Waits beside a pass cost nothing.
  if (lockstep.carrier().is_here()) report_.add_agreement_wait(epochs_.watch().take_waited());
  overlap_.note_reports(lockstep);
  return true;
}

bool RankStep::drafts_may_come() {
  Speculation* const drafts = requests_.drafts().speculation();
  if (drafts == nullptr || overlapped_.num_under_way() == 0) return false;
  if (flights_.newest().batch->num_drafts > 0) return true;
  return requests_.scheduler().forecast_next_step().num_decoding > 0 && drafts->waits_for_commit();
}

// Commits and answers a step that was computed. Returns false if ranks were lost in it.
bool RankStep::finish(Flight& flight) {
  if (flight.lost) {
    epochs_.lockstep()->fail_with(*flight.lost);
    return abort_overlapped_steps(&flight), false;
  }
  report_.add_exchange_wait(flight.exchange_wait);
  overlap_.take(flight.account);
  if (Lockstep* const lockstep = epochs_.lockstep())
    lockstep->note_took(flight.agreed.pass.phase, flight.agreed.rows, flight.took());
  requests_.write_pages();  // its thread has played the module's passes behind the step before it
  commit(flight);
  reply(flight);
  return true;
}

bool RankStep::finish_all() {
  while (overlapped_.num_under_way() > 0)
    if (!finish(overlapped_.wait())) return false;
  return true;
}

// Gives up all steps under way, because ranks were lost; `failed` is one that was waited for. The
// passes end by themselves: the first error of the exchange ends all its waits. A step that was
// computed to its end before that counts, since grammars have taken its tokens.
void RankStep::abort_overlapped_steps(const Flight* failed) {
  std::array<const Batch*, ForwardThread::kMaxSteps> open{};
  size_t num_open = 0;
  if (failed != nullptr) open.at(num_open++) = failed->batch;
  while (overlapped_.num_under_way() > 0) {
    Flight& flight = overlapped_.wait();
    if (num_open == 0 && !flight.lost) {
      overlap_.take(flight.account);
      commit(flight);
      reply(flight);
    } else {
      open.at(num_open++) = flight.batch;
    }
  }
  abort_step(std::span(open).first(num_open));
}

// Lets steps overlap, or not, as the trials say; with several ranks as all agreed on. Which thread
// computes changes between two steps, with nothing under way. Returns false if ranks were lost.
bool RankStep::follow_choice() {
  if (runner_->info().overlap_schedule != OverlapSchedule::measured) return true;
  const Lockstep* const lockstep = epochs_.lockstep();
  const bool overlap = lockstep != nullptr
                           ? lockstep->agreed().steps_overlap
                           : overlapped_.timing().wants_overlap() && !requests_.vetoes_overlap();
  if (overlap == overlapped_.active()) return true;
  if (!finish_all()) return false;
  overlapped_.set_active(overlap);
  return true;
}

// Ranks were lost, so the steps under way are given up.
void RankStep::abort_step(std::span<const Batch* const> uncommitted) {
  epochs_.report_loss();
  requests_.handle_lost_ranks(uncommitted);
  report_.set_busy(false);
  publish_idle();
  epochs_.leave();
  requests_.lost_ranks().prolong(epochs_.begin_loading_next());
}

Result<void> RankStep::join_epoch(const RankNetwork::Link& link) {
  HOCKET_TRY_VOID(epochs_.join(link));
  overlapped_.rebind();
  overlap_.rebind(link.transport->caps().exact_arrival, epochs_.leads());
  epochs_.watch().book_in(ledger());
  // The first messages between two ranks open their connection: better here than in the first
  // request.
  if (!epochs_.lockstep()->finish_agreement({})) return abort_step({}), Result<void>();
  requests_.lost_ranks().end_idle();
  epochs_.end_steps();
  return {};
}

bool RankStep::load_experts(const RankSet& ranks) {
  ExpertMover* const mover = experts_.mover();
  if (mover == nullptr) return true;
  requests_.lost_ranks().prolong(mover->load_for_epoch(ranks));
  mover->check_progress();
  return mover->has_loaded(ranks);
}

void RankStep::wait_for_ranks() {
  intake();
  requests_.wait_for_ranks([this] { return commands_.size() > 0; });
  report_.note_alive();
}

RankStep::RankStep(RankParts parts, const Context& around)
    : clock_(around.clock),
      commands_(around.commands),
      report_(around.report),
      runner_(std::move(parts.runner)),
      experts_(parts, *runner_, around.network != nullptr ? around.network->rank() : 0, clock_,
               around.wake),
      epochs_(parts, around.network, *runner_, experts_),
      overlap_({.rank = epochs_.rank(),
                .num_ranks = epochs_.num_ranks(),
                .tolerate_ranks = parts.tolerate_ranks,
                .layers = parts.layers,
                .settings = &runner_->overlap(),
                .prior = std::move(parts.prior),
                .row_tile = runner_->row_tile(),
                .clock = epochs_.alone() ? &clock_ : &real_clock_,
                .profiler = parts.profiler,
                .recent = parts.recent}),
      requests_(parts, {.clock = clock_,
                        .runner = *runner_,
                        .epochs = epochs_,
                        .report = report_,
                        .wake = around.wake,
                        .steps_overlap = [this] { return overlapped_.active(); }}),
      sampler_(runner_->info().model.vocab_size, runner_->plan().work.max_logits_rows),
      tools_({.runner = *runner_,
              .sampler = sampler_,
              .clock = clock_,
              .ledger = &overlap_.ledger(),
              .experts = experts_.stats(),
              .grammars = &requests_.grammars(),
              .module = requests_.drafts().module(),
              .own_heartbeat =
                  around.network != nullptr ? &around.network->own_heartbeat() : nullptr}),
      overlapped_({.tools = tools_, .overlap = overlap_, .epochs = epochs_, .report = report_}) {
  const int max_requests = parts.scheduler.max_running_requests + 1;
  for (Flight& flight : flights_.all()) {
    flight.reserve(runner_->plan().work, {.requests = max_requests,
                                          .samples = max_requests + parts.scheduler.max_decode_rows,
                                          .pages = parts.scheduler.num_pages *
                                                   (parts.scheduler.window.bounded() ? 2 : 1)});
    flight.experts.rank = epochs_.rank();
    flight.experts.counts.resize(experts_.num_counts());
  }
  if (runner_->info().overlap_schedule != OverlapSchedule::off &&
      requests_.drafts().speculation() != nullptr)
    log::info("steps overlap only while answers have no drafts, which need the tokens before them");
}

void RankStep::adopt_thread() {
  requests_.answers().wait_if_full();
  overlapped_.adopt_thread();
}

bool RankStep::has_work() {
  return requests_.has_work() || commands_.size() > 0 ||
         (!epochs_.alone() && epochs_.lockstep()->peer_waiting());
}

void RankStep::publish_idle() {
  report_.begin_action(StepAction::idle);
  overlapped_.note_idle();
  requests_.note_idle();
}

void RankStep::end_all(const Error& why) {
  static_cast<void>(finish_all());
  requests_.write_pages();
  intake();
  requests_.end_all(why);
}

// Proposes this rank's part of the next step to the other ranks.
StepProposal RankStep::propose() {
  StepProposal proposal = requests_.propose(runner_->plan().work.max_rows);
  const OverlapTiming& timing = overlapped_.timing();
  proposal.overlaps = timing.decides() ? timing.wants_overlap() : overlapped_.active();
  proposal.overlapped_share = static_cast<float>(timing.overlapped_share());
  overlap_.fill(*epochs_.lockstep(), proposal);
  return proposal;
}

PrepareOptions RankStep::prepare_options() {
  const EngineInfo& info = runner_->info();
  const Lockstep* const lockstep = epochs_.lockstep();
  return {.page_tokens = info.page_tokens,
          .unseen_page = runner_->unseen_page(),
          .prompt_form = info.prompt_form,
          .eos_ids = info.model.eos_ids,
          .packing = lockstep != nullptr ? overlap_.packing(lockstep->agreed().plan) : std::nullopt,
          .grammars = &requests_.grammars(),
          .max_forced = overlapped_.active() ? 0 : kMaxForcedTokens};
}

// If no request is live, only rows of ended requests can be under way: they are finished before a
// flush.
void RankStep::handle(Command& command) {
  if (std::holds_alternative<FlushCache>(command) && requests_.answers().live().empty())
    static_cast<void>(finish_all());
  requests_.handle(command);
}

}  // namespace hocket
