#include "bench/overlap_rig.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "bench/overlap_figures.h"
#include "bench/overlap_shape.h"
#include "core/server_settings.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/stage_estimate.h"
#include "engine/rank_setup.h"

namespace hocket {
namespace {

constexpr int kKeys = 256;  // keys of each decoding sequence
const RealClock kClock;

std::span<const std::byte> bytes_of(const MatrixView& rows) {
  return {static_cast<const std::byte*>(rows.data),
          static_cast<size_t>(rows.rows * rows.cols * size_of(rows.dtype))};
}

}  // namespace

struct OverlapRig::RankMessage {
  StepReport report;
  PlanId plan = PlanId::none;
  float took_us = 0;
  uint32_t is_trial = 0;
};

OverlapRig::OverlapRig(const Options& options)
    : seat_(options.seat),
      link_gbit_(options.link_gbit),
      messages_(options.transport, options.traffic) {}

OverlapRig::~OverlapRig() = default;

Result<std::unique_ptr<OverlapRig>> OverlapRig::create(const Options& options) {
  std::unique_ptr<OverlapRig> rig(new OverlapRig(options));
  HOCKET_TRY_VOID(rig->load(options));
  return rig;
}

Result<void> OverlapRig::load(const Options& options) {
  HOCKET_TRY(shape_, DummyShape::create("wire"));
  ServerSettings settings;
  settings.model.model_path = shape_->folder().string();
  settings.model.load_format = "dummy";
  settings.model.context_length = 2 * kOverlapPrompt;
  settings.parallel.ep_size = seat_.num_ranks;
  settings.memory.max_running_requests = options.decode_rows;
  settings.memory.swa_full_tokens_ratio = 1;  // passes give a page the same number in all layers
  settings.scheduler.chunked_prefill_size =
      std::max({options.prefill_rows, options.decode_rows, kOverlapPrompt});
  settings.scheduler.max_prefill_tokens = settings.scheduler.chunked_prefill_size;
  const int page = settings.memory.page_size;
  const int64_t tokens = std::max(int64_t{options.decode_rows} * (kKeys + page),
                                  int64_t{options.prefill_rows} + kOverlapPrompt);
  settings.memory.max_total_tokens = std::max(tokens, int64_t{2 * kOverlapPrompt});
  HOCKET_TRY(
      runner_,
      Runner::create(
          {.settings = settings, .progress = {}, .tokenizer_eos = std::nullopt, .seat = &seat_}));
  runner_->workers().adopt_caller();
  if (link_gbit_ == 0) settings.parallel.nnodes = seat_.num_ranks;
  settings.parallel.ep_link_gbit = link_gbit_;
  HOCKET_TRY(const auto forecast, estimate_stages(*runner_, settings.parallel));
  layers_ = forecast->layers({});
  prior_ = forecast;
  ledger_ = std::make_unique<Ledger>(ledger_limits(), kClock);
  ledger_->keep_spans(true);
  HOCKET_TRY(exchange_, runner_->attach({.transport = messages_, .watch = ledger_.get()}));
  for (int i = 0; i < runner_->info().num_pages; ++i) pages_.push_back(PageId{i});
  const int most = settings.scheduler.chunked_prefill_size;
  batch_.reserve(most, most);
  return {};
}

Ledger::Limits OverlapRig::ledger_limits() const {
  return {.num_layers = runner_->info().model.num_layers,
          .num_ranks = seat_.num_ranks,
          .exact_arrival = messages_.caps().exact_arrival,
          .kinds = layers_.kinds};
}

void OverlapRig::add_sequence(int first, int rows, std::span<const PageId> pages) {
  std::mt19937 random(static_cast<unsigned>(batch_.num_rows() * 131 + seat_.rank));
  const int page_tokens = runner_->info().page_tokens;
  const bool is_prompt = first == 0;
  batch_.sequences.push_back({.row_begin = batch_.num_rows(),
                              .num_rows = rows,
                              .first_position = first,
                              .form = is_prompt ? runner_->info().prompt_form : MlaForm::absorbed,
                              .pages = pages});
  for (int at = first; at < first + rows; ++at) {
    batch_.ids.push_back(
        TokenId{static_cast<int32_t>(random() % runner_->info().model.vocab_size)});
    batch_.positions.push_back(at);
    batch_.slots.push_back({pages[static_cast<size_t>(at / page_tokens)], at % page_tokens});
    bucket_.kv_tokens += at + 1;
  }
  batch_.output_rows.push_back(batch_.num_rows() - 1);
}

void OverlapRig::set_batch(Phase phase, int rows) {
  batch_.clear();
  bucket_ = {.phase = phase, .rows = rows};
  batch_.mode = phase == Phase::decode ? ForwardMode::decode : ForwardMode::extend;
  const int length = phase == Phase::decode ? kKeys + 1 : kOverlapPrompt;
  const int pages = (length + runner_->info().page_tokens - 1) / runner_->info().page_tokens;
  for (int row = 0, used = 0; row < rows; used += pages) {
    const int count = phase == Phase::decode ? 1 : std::min(kOverlapPrompt, rows - row);
    const auto own = std::span<const PageId>(pages_).subspan(static_cast<size_t>(used),
                                                             static_cast<size_t>(pages));
    add_sequence(phase == Phase::decode ? kKeys : 0, count, own);
    row += count;
  }
  bits_.clear();
  reports_.clear();
  if (seat_.rank != 0) return;
  planner_ = std::make_unique<Planner>(Planner::Options{.orders = &OrderTable::builtin(),
                                                        .layers = layers_,
                                                        .prior = prior_,
                                                        .row_tile = runner_->row_tile(),
                                                        .clock = &kClock});
}

Result<std::vector<OverlapRig::RankMessage>> OverlapRig::agree(const RankMessage& mine) {
  static_assert(sizeof(RankMessage) <= kAgreementBytes);
  const Stamp stamp{.step = num_agreed_++};
  const std::span<const std::byte> piece[] = {std::as_bytes(std::span(&mine, 1))};
  const std::vector<AllToAll::Parts> parts(static_cast<size_t>(seat_.num_ranks), piece);
  HOCKET_TRY_VOID(exchange_->start(0, MessageKind::agree, stamp, parts));
  HOCKET_TRY_VOID(exchange_->wait(0, MessageKind::agree, stamp));
  std::vector<RankMessage> all(static_cast<size_t>(seat_.num_ranks), mine);
  for (int peer = 0; peer < seat_.num_ranks; ++peer) {
    if (peer == seat_.rank) continue;
    const auto said = exchange_->from(0, MessageKind::agree, peer);
    if (said.size() != sizeof(RankMessage))
      return fail(ErrorCode::lost_rank, "rank {} says what is no agreement", peer);
    std::memcpy(&all[static_cast<size_t>(peer)], said.data(), sizeof(RankMessage));
  }
  exchange_->release(0, MessageKind::agree);
  return all;
}

// Runs one pass; an agreement comes before it and one after it.
Result<OverlapRig::RankMessage> OverlapRig::run(const Plan& plan, Mode mode) {
  messages_.begin_pass(mode, ++step_);
  const Phase phase = bucket_.phase == Phase::decode ? Phase::decode : Phase::prefill;
  const TimePoint begin = kClock.now();
  ledger_->begin_step(begin);
  ledger_->begin_pass(step_, plan, bucket_, false);
  HOCKET_TRY_VOID(runner_->forward_together(
      batch_, {.id = {.step = step_, .phase = phase, .parts = plan.parts, .waves = plan.waves},
               .plan = plan,
               .ledger = ledger_.get()}));
  const TimePoint end = kClock.now();
  const StepAccount& account = ledger_->end_step(end);
  return RankMessage{.report = account.report(),
                     .plan = id_of(plan),
                     .took_us = static_cast<float>(to_us(end - begin - messages_.copied()))};
}

Result<OverlapRig::PassResult> OverlapRig::finish(const Plan& plan, const RankMessage& mine) {
  HOCKET_TRY(const std::vector<RankMessage> all, agree(mine));
  HOCKET_TRY_VOID(messages_.end_pass());
  HOCKET_TRY_VOID(compare_bits());
  PassResult played{.plan = plan};
  heard_.clear();
  for (const RankMessage& said : all) {
    played.took_us = std::max(played.took_us, static_cast<double>(said.took_us));
    played.waiting_us += said.report.waiting_us / seat_.num_ranks;
    heard_.push_back(said.report);
  }
  const StepAccount& account = ledger_->account();
  played.idle_share = to_seconds(account.idle) / to_seconds(account.took);
  return played;
}

Result<void> OverlapRig::compare_bits() {
  const std::span<const std::byte> now = bytes_of(
      runner_->work().hidden.slice_rows(0, static_cast<int64_t>(batch_.output_rows.size())));
  if (bits_.empty()) bits_.assign(now.begin(), now.end());
  if (std::ranges::equal(bits_, now)) return {};
  return fail(ErrorCode::internal, "rank {}: step {} has other bits than the first", seat_.rank,
              step_);
}

Result<OverlapRig::PassResult> OverlapRig::play(const Plan& plan, Mode mode) {
  HOCKET_TRY_VOID(agree({}));
  HOCKET_TRY(const RankMessage mine, run(plan, mode));
  return finish(plan, mine);
}

Result<OverlapRig::PassResult> OverlapRig::play_planned() {
  RankMessage proposal;
  const TimePoint begin = kClock.now();
  if (planner_ != nullptr) {
    if (!reports_.empty()) planner_->note(reports_);
    const Planner::Choice choice = planner_->choose(bucket_);
    proposal.plan = id_of(choice.plan);
    proposal.is_trial = choice.is_trial ? 1 : 0;
  }
  const double planned_us = to_us(kClock.now() - begin);
  HOCKET_TRY(const std::vector<RankMessage> all, agree(proposal));
  const Plan plan = plan_of(all[0].plan, OrderTable::builtin()).value_or(Plan{});
  HOCKET_TRY(RankMessage mine, run(plan, Mode::live));
  mine.took_us += static_cast<float>(planned_us);
  HOCKET_TRY(PassResult played, finish(plan, mine));
  played.is_trial = all[0].is_trial != 0;
  played.planner_us = planned_us;
  reports_ = heard_;
  return played;
}

Result<double> OverlapRig::exchange_us() {
  const std::vector<ReplayTransport::SentMessage> sent = messages_.sent_messages();
  size_t longest = 0;
  for (const auto& message : sent) longest = std::max(longest, message.num_bytes);
  const std::vector<std::byte> bytes(longest);
  HOCKET_TRY_VOID(agree({}));
  messages_.begin_pass(Mode::live, ++step_);
  const TimePoint begin = kClock.now();
  const auto num_peers = static_cast<size_t>(seat_.num_ranks - 1);
  std::vector<std::span<const std::byte>> pieces(static_cast<size_t>(seat_.num_ranks));
  for (size_t i = 0; i < sent.size(); i += num_peers) {
    std::vector<AllToAll::Parts> parts(pieces.size());
    for (size_t j = i; j < i + num_peers; ++j) {
      const auto peer = static_cast<size_t>(sent[j].peer);
      pieces[peer] = std::span(bytes).first(sent[j].num_bytes);
      parts[peer] = std::span(pieces).subspan(peer, 1);
    }
    const Stamp stamp{.step = step_, .layer = static_cast<uint16_t>(i / num_peers / 2)};
    HOCKET_TRY_VOID(exchange_->start(0, sent[i].kind, stamp, parts));
    HOCKET_TRY_VOID(exchange_->wait(0, sent[i].kind, stamp));
    exchange_->release(0, sent[i].kind);
  }
  const RankMessage mine{.took_us = static_cast<float>(to_us(kClock.now() - begin))};
  HOCKET_TRY(const std::vector<RankMessage> all, agree(mine));
  HOCKET_TRY_VOID(messages_.end_pass());
  double us = 0;
  for (const RankMessage& said : all) us = std::max(us, static_cast<double>(said.took_us));
  return us;
}

double OverlapRig::coverage() const {
  return coverage_of(ledger_->spans());
}

Result<double> OverlapRig::booking_us(const Plan& plan) {
  HOCKET_TRY_VOID(play(plan, Mode::live));
  constexpr int kTimes = 200;
  Ledger other(ledger_limits(), kClock);
  const TimePoint begin = kClock.now();
  for (int i = 0; i < kTimes; ++i) {
    other.begin_step(kClock.now());
    other.begin_pass(step_, plan, bucket_, false);
    for (const LedgerSpan& span : ledger_->spans()) {
      if (span.kind == LedgerSpan::Kind::op) {
        other.begin_op(span.layer, span.op, span.half);
        other.end_op();
      } else if (span.kind == LedgerSpan::Kind::wire) {
        const TimePoint now = kClock.now();
        other.finished(lane_of(span.half, span.part), span.message,
                       {.step = step_, .layer = static_cast<uint16_t>(span.layer)},
                       {.start = now,
                        .posted = now,
                        .peers_posted = now,
                        .last_byte = now,
                        .wait_in = now,
                        .wait_out = now,
                        .in_bytes = static_cast<uint64_t>(span.bytes)});
      }
    }
    other.end_step(kClock.now());
  }
  return to_us(kClock.now() - begin) / kTimes;
}

std::optional<OverlapDecision> OverlapRig::decision() const {
  if (planner_ == nullptr) return std::nullopt;
  const PlannerState state = planner_->state();
  if (state.decisions.empty()) return std::nullopt;
  return state.decisions.back();
}

}  // namespace hocket
