#include "engine/lockstep/lockstep.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "engine/plan/memory_plan.h"

namespace hocket {
namespace {

constexpr int kLane = 0;

bool has_prompts(ForwardMode mode) {
  return mode == ForwardMode::extend || mode == ForwardMode::mixed;
}

uint16_t to_vote(int number) {
  return static_cast<uint16_t>(std::clamp<int>(number, 0, std::numeric_limits<uint16_t>::max()));
}

// The most rows of a step that a peer is believed to have; planning with more would overflow.
constexpr uint32_t kMaxStepRows = 1 << 24;

int to_rows(uint32_t number) {
  return static_cast<int>(std::min(number, kMaxStepRows));
}

// Replaces a report with impossible numbers by an invalid one.
StepReport sane(StepReport report) {
  const auto is_time = [](float number) { return std::isfinite(number) && number >= 0; };
  bool fits = report.phase < kNumPhases && report.rows <= kMaxStepRows &&
              std::ranges::all_of(report.compute_us, is_time);
  for (const float number : {report.other_us, report.exposed_us, report.waiting_us, report.step_us,
                             report.dispatch_busy_us, report.combine_busy_us, report.dispatch_kb,
                             report.combine_kb, report.latency_us})
    fits &= is_time(number);
  if (!fits) report = {};
  return report;
}

}  // namespace

Lockstep::Lockstep(int num_ranks, const Options& options)
    : options_(options),
      delayer_(options.max_delayed_passes),
      loads_(num_ranks),
      sizes_(static_cast<size_t>(num_ranks)),
      reports_(static_cast<size_t>(num_ranks)),
      first_reports_(static_cast<size_t>(num_ranks)),
      balances_(static_cast<size_t>(num_ranks)),
      carrier_(num_ranks, sizeof(StepVote)) {
  static_assert(sizeof(StepVote) == kAgreementBytes);
  // A vote has no padding, so every byte that is sent was written.
  static_assert(sizeof(StepVote) == 44 + sizeof(StepReport) + sizeof(BalanceVote));
}

void Lockstep::rebind(Transport& transport, AllToAll& exchange) {
  carrier_.rebind(exchange);
  transport_ = &transport;
  exchange_ = &exchange;
  agreed_ = {};
  present_ = {};
  for (int rank = 0; rank < exchange.num_ranks(); ++rank) {
    if (exchange.has(rank)) present_.add(rank);
    loads_.set_takes_requests(rank, exchange.has(rank));
  }
  lead_.store(present_.first(), std::memory_order_relaxed);
  votes_.reserve(sizes_.size());
  std::ranges::fill(sizes_, Size{});
  std::ranges::fill(reports_, StepReport{});
  under_way_ = end_was_voted_ = false;
  stopping_peer_ = -1;
  error_.reset();
  bad_peer_ = -1;
  delayer_ = PrefillDelayer(options_.max_delayed_passes);
  hang_limit_.forget_begin();
}

void Lockstep::fail_with(Error why) {
  if (!error_) error_ = std::move(why);
  if (options_.own_heartbeat != nullptr) options_.own_heartbeat->end();
}

void Lockstep::begin_agreement(const StepProposal& mine) {
  if (agreed_.ends && options_.own_heartbeat != nullptr) options_.own_heartbeat->end();
  if (!error_ && !agreed_.ends) start(mine);
}

bool Lockstep::finish_agreement(const StepProposal& now) {
  if (error_) return false;
  hang_limit_.end(agreed_.pass.phase, agreed_.rows, transport_->now());
  const bool is_early = under_way_;
  Result<void> agreed = exchange_votes(now);
  const bool has_work = has_rows(now.work) || wants_end_;
  if (agreed && is_early && has_work && !agreed_.computes && !agreed_.ends)
    agreed = exchange_again(now);
  if (!agreed) return fail_with(std::move(agreed).error()), false;
  agreed_.hung_after = hang_limit_.hung_after(agreed_.pass.phase, agreed_.rows);
  if (!is_overlapped_) open_step();
  return true;
}

// Makes a second agreement at once. A report is sent once, so those of the first votes stay.
Result<void> Lockstep::exchange_again(const StepProposal& now) {
  std::ranges::copy(reports_, first_reports_.begin());
  HOCKET_TRY_VOID(exchange_votes(now));
  for (size_t rank = 0; rank < reports_.size(); ++rank)
    if (reports_[rank].is_valid == 0) reports_[rank] = first_reports_[rank];
  return {};
}

void Lockstep::open_step() {
  if (agreed_.computes) hang_limit_.begin(transport_->now());
  if (options_.own_heartbeat == nullptr) return;
  if (agreed_.computes)
    options_.own_heartbeat->begin(agreed_.pass.step, agreed_.hung_after);
  else
    options_.own_heartbeat->end();
}

void Lockstep::start(const StepProposal& proposal) {
  const NextStepForecast& work = proposal.work;
  mine_ = {
      .answers = to_vote(work.num_decoding),
      .drafts = to_vote(proposal.num_last_drafts),
      .begins = work.begins,
      .continues = work.continues,
      .ends = wants_end_,
      .trials = static_cast<uint8_t>(proposal.plans[0].is_trial | proposal.plans[1].is_trial << 1),
      .takes_requests = proposal.load.takes_requests && !wants_end_,
      .module_passes = static_cast<uint8_t>(proposal.module_passes),
      .overlaps = proposal.overlaps,
      .vetoes_overlap = proposal.vetoes_overlap,
      .load_requests = proposal.load.num_requests,
      .load_tokens = proposal.load.num_tokens,
      .prompt_step_rows = static_cast<uint32_t>(std::max(0, proposal.prompt_step_rows)),
      .plans = {static_cast<uint32_t>(proposal.plans[0].id),
                static_cast<uint32_t>(proposal.plans[1].id)},
      .overlapped_share = proposal.overlapped_share,
      .report = proposal.report,
      .balance =
          options_.balance_voter != nullptr ? options_.balance_voter->vote() : BalanceVote()};
  carrier_.post({.step = agreed_.pass.step + 1}, std::as_bytes(std::span(&mine_, 1)));
  under_way_ = true;
}

Result<void> Lockstep::exchange_votes(const StepProposal& now) {
  if (!under_way_) start(now);
  under_way_ = false;
  ++agreed_.pass.step;
  HOCKET_TRY_VOID(carrier_.collect());
  const Phase phase_before = agreed_.pass.phase;
  RankSet leaving;
  int module_passes = 0, num_other_answers = 0, num_other_drafts = 0;
  int stopping_peer = -1;
  bool is_vetoed = false;
  StepVote of_lead;
  votes_.clear();
  for (int rank = 0; rank < exchange_->num_ranks(); ++rank) {
    if (!present_.has(rank)) continue;
    HOCKET_TRY(const StepVote vote, vote_of(rank));
    if (vote.ends != 0) leaving.add(rank);
    if (vote.ends != 0 && rank != exchange_->rank()) stopping_peer = rank;
    if (rank == lead()) of_lead = vote;
    is_vetoed |= vote.vetoes_overlap != 0;
    if (rank != exchange_->rank()) {
      num_other_answers += vote.answers;
      num_other_drafts += vote.drafts;
    }
    module_passes = std::max(module_passes, int{vote.module_passes});
    record_vote(rank, vote);
  }
  decide();
  adopt_plan(of_lead);
  adopt_module_passes(module_passes, phase_before);
  agreed_.num_other_answers = num_other_answers;
  agreed_.num_other_drafts = num_other_drafts;
  const float share = of_lead.overlapped_share;
  agreed_.overlapped_share = share > 0 && share <= 1 ? share : 1;
  if (agreed_.computes) agreed_.steps_overlap = of_lead.overlaps != 0 && !is_vetoed;
  agreed_.all_end = leaving == present_;
  if (options_.balance_voter != nullptr)
    options_.balance_voter->agreed(
        balances_, reports_,
        {.computes = agreed_.computes, .leaving = agreed_.all_end ? RankSet() : leaving});
  if (!agreed_.computes) loads_.forget();
  agreed_.ends = agreed_.all_end || may_leave_now();
  end_was_voted_ = mine_.ends != 0;
  stopping_peer_.store(stopping_peer, std::memory_order_relaxed);
  return {};
}

// A rank that leaves alone has said so one agreement before, so requests that other ranks had begun
// by then got their step.
bool Lockstep::may_leave_now() const {
  if (!options_.others_can_serve || !end_was_voted_) return false;
  if (!agreed_.computes) return true;
  if (options_.pauses_others) return false;
  const bool has_rows = mine_.answers > 0 || mine_.begins != 0 || mine_.continues != 0;
  return !has_rows && options_.balance_voter != nullptr && options_.balance_voter->may_leave();
}

Result<Lockstep::StepVote> Lockstep::vote_of(int rank) {
  StepVote vote = mine_;
  if (rank == exchange_->rank()) return vote;
  const std::span<const std::byte> bytes = carrier_.from(rank);
  if (bytes.size() != sizeof vote) {
    bad_peer_ = rank;
    return fail(error(ErrorCode::lost_rank,
                      "rank {} sent {} bytes as its agreement on step {}, not {}", rank,
                      bytes.size(), agreed_.pass.step, sizeof vote));
  }
  std::memcpy(&vote, bytes.data(), sizeof vote);
  return vote;
}

void Lockstep::record_vote(int rank, const StepVote& vote) {
  const auto at = static_cast<size_t>(rank);
  votes_.push_back(
      {.begins = vote.begins != 0, .continues = vote.continues != 0, .decodes = vote.answers > 0});
  sizes_[at] = {.rows = vote.answers > 0 ? vote.answers + vote.drafts : 0,
                .prompt_step_rows = to_rows(vote.prompt_step_rows)};
  reports_[at] = sane(vote.report);
  balances_[at] = vote.balance;
  loads_.note(rank, {.takes_requests = vote.takes_requests != 0,
                     .num_requests = vote.load_requests,
                     .num_tokens = vote.load_tokens});
}

// All ranks have equal tables, so either all know a plan or none does.
void Lockstep::adopt_plan(const StepVote& of_lead) {
  const auto phase = index_of(agreed_.pass.phase);
  const uint32_t id = of_lead.plans.at(phase);
  const std::optional<Plan> plan = plan_of(PlanId{id}, *options_.orders);
  const bool plays = agreed_.computes && plan.has_value();
  agreed_.plan = plays ? *plan : Plan{};
  agreed_.is_trial = plays && (of_lead.trials >> phase & 1) != 0;
  agreed_.pass.parts = agreed_.plan.parts;
  agreed_.pass.waves = agreed_.plan.waves;
  if (!agreed_.computes || plan) return;
  if (num_unknown_plans_++ == 0)
    log::warning(
        "rank {} says plan {:#010x}, which is none of {} orders: such steps are played "
        "without overlap",
        lead(), id, options_.orders->size());
}

// If no rank has rows, all requests have ended, so nothing is guessed.
void Lockstep::adopt_module_passes(int wanted, Phase phase_before) {
  agreed_.num_module_passes = agreed_.computes ? std::min(wanted, kMaxDrafts) : 0;
  for (int i = 0; i < agreed_.num_module_passes; ++i)
    agreed_.passes_of_module.at(static_cast<size_t>(i)) = {
        .step = agreed_.pass.step,
        .phase = i == 0 ? phase_before : Phase::decode,
        .first_layer = i};
}

int Lockstep::expected_rows(Phase phase, const StepProposal& mine) const {
  int most = 0;
  for (int rank = 0; rank < static_cast<int>(sizes_.size()); ++rank) {
    Size size = sizes_[static_cast<size_t>(rank)];
    if (exchange_ != nullptr && rank == exchange_->rank())
      size = {.rows = mine.work.num_decoding + mine.expected_drafts(),
              .prompt_step_rows = mine.prompt_step_rows};
    most = std::max(most, phase == Phase::prefill ? size.prompt_step_rows : size.rows);
  }
  return most;
}

// Derives the step from the votes alone, so every rank finds the same result.
//
//   any rank continues a chunk, or begins and is allowed   prompts    Phase::prefill
//   else any rank has decode rows                          decode     Phase::decode
//   else                                                   no rank computes
void Lockstep::decide() {
  const bool allowed = delayer_.allows(votes_);
  const auto extends = [&](const PrefillVote& v) { return v.continues || (v.begins && allowed); };
  agreed_.extends = std::ranges::any_of(votes_, extends);
  agreed_.computes = agreed_.extends || std::ranges::any_of(votes_, &PrefillVote::decodes);
  agreed_.may_begin = agreed_.extends && allowed;
  agreed_.pass.phase = agreed_.extends ? Phase::prefill : Phase::decode;
  agreed_.rows = 0;
  for (const Size& size : sizes_)
    agreed_.rows = std::max(agreed_.rows, agreed_.extends ? size.prompt_step_rows : size.rows);
}

bool Lockstep::any_rank_computes(const Batch& mine) {
  HOCKET_CHECK((agreed_.computes || mine.num_rows == 0));
  HOCKET_CHECK((agreed_.extends || !has_prompts(mine.mode)));
  return agreed_.computes;
}

void Lockstep::note_took(Phase phase, int rows, Duration took) {
  hang_limit_.note(phase, rows, took);
  agreed_.hung_after = hang_limit_.hung_after(agreed_.pass.phase, agreed_.rows);
}

bool Lockstep::peer_waiting() {
  return error_ || under_way_ || exchange_->peer_started(kLane, MessageKind::agree);
}

void Lockstep::wait(Duration max_wait) {
  if (!peer_waiting()) transport_->wait(max_wait);
}

}  // namespace hocket
