#include "engine/flight.h"

#include <algorithm>

#include "base/check.h"
#include "engine/module_drafter.h"
#include "engine/plan/latent_form.h"

namespace hocket {
namespace {

// A row whose token failed belongs to a request that has ended, so any token will do.
void fill_in(Flight& flight, std::span<const SampledToken> before) {
  for (const PendingRow& pending : flight.pending_rows) {
    HOCKET_CHECK(pending.index < std::ssize(before));
    const SampledToken& sampled = before[pending.index];
    flight.forward.ids[pending.row] = sampled.failed ? TokenId{0} : sampled.token;
  }
}

// Returns the first sample from `next` on that is not behind a draft of the samples before it that
// does not hold: a block of logits may end between drafts.
size_t skip_failed_drafts(const Flight& flight, size_t next) {
  const auto fails = [&](size_t i) {
    return value(flight.samples[i].draft) >= 0 &&
           !draft_holds(flight.samples[i], flight.sampled[i]);
  };
  while (next > 0 && next < flight.samples.size() && fails(next - 1)) ++next;
  return next;
}

struct SampleRange {
  size_t begin, end;
};

// Samples what belongs to a block of logits, whose logits_row counts from the block's begin.
void sample_block(Flight& flight, View<const float> logits, SampleRange range,
                  const StepTools& tools) {
  const size_t count = range.end - range.begin;
  tools.sampler.sample(tools.runner.backend(), logits,
                       std::span<const SampleRow>(flight.samples).subspan(range.begin, count),
                       std::span(flight.sampled).subspan(range.begin, count),
                       std::span(flight.logprobs).subspan(range.begin, count));
  for (size_t i = range.begin; i < range.end; ++i) {
    const SampleRow& row = flight.samples[i];
    const SampledToken& drawn = flight.sampled[i];
    const bool may_continue =
        value(drawn.token) >= 0 && drawn.grammar == GrammarVerdict::may_continue;
    if (row.grammar != nullptr && may_continue && !draft_holds(row, drawn))
      tools.grammars->precompute_mask(*row.grammar);
  }
}

}  // namespace

void Flight::reserve(const WorkLimits& work, const Limits& limits) {
  forward.reserve(work.max_rows, max_sequences(work.max_rows, limits.requests));
  pages.reserve(2 * static_cast<size_t>(limits.pages));
  pending_rows.reserve(limits.requests);
  samples.reserve(limits.samples);
  sampled.reserve(limits.samples);
  logprobs.reserve(limits.samples);
  row_begins.reserve(limits.requests);
  answers.reserve(limits.requests);
  packer.reserve(limits.requests);
}

Result<DraftWork> play(ModulePasses& passes, std::span<const SampledToken> before,
                       const StepTools& tools) {
  const Ledger::OtherWork other(tools.ledger, "draft");
  const TimePoint begin = tools.clock.now();
  HOCKET_TRY_VOID(tools.module->play(passes, before));
  return DraftWork{.took = tools.clock.now() - begin, .followed = passes.followed};
}

void forward(Flight& flight, std::span<const SampledToken> before, const StepTools& tools) {
  flight.lost.reset();
  if (flight.module != nullptr) {
    const Result<DraftWork> played = play(*flight.module, before, tools);
    if (!played) return void(flight.lost = played.error());
    flight.drafting = *played;
  }
  flight.begin = tools.clock.now();
  fill_in(flight, before);
  if (flight.move != nullptr) {
    const Ledger::OtherWork other(tools.ledger, "move experts");
    tools.runner.place(*flight.move);
  }
  View<uint32_t> expert_counts;
  if (tools.experts != nullptr) {
    flight.experts.step = flight.agreed.pass.step;
    flight.experts.num_tokens = flight.forward.num_rows();
    expert_counts = tools.experts->open(flight.experts);
  }
  if (flight.wants_routed) {
    const ModelConfig& model = tools.runner.info().model;
    flight.routed.open(flight.forward.num_rows(), model.num_layers, model.moe.top_k);
  }
  auto done = tools.runner.forward_together(
      flight.forward, {.id = flight.agreed.pass,
                       .plan = flight.agreed.plan,
                       .is_trial = flight.agreed.is_trial,
                       .ledger = tools.ledger,
                       .probe = flight.wants_routed ? &flight.routed : nullptr,
                       .expert_counts = expert_counts});
  if (!done) flight.lost = std::move(done).error();
}

void sample(Flight& flight, const StepTools& tools) {
  Backend& backend = tools.runner.backend();
  flight.sampled.assign(flight.samples.size(), {});
  flight.logprobs.clear();
  flight.logprobs.resize(flight.samples.size());
  const int num_outputs = static_cast<int>(flight.forward.output_rows.size());
  const int block = tools.runner.plan().work.max_logits_rows;
  auto prompt_rows = std::span(flight.prompt_rows);
  size_t next = 0;  // next of the samples
  uint32_t stage = kSampleStage;
  for (int begin = 0; begin < num_outputs; begin += block) {
    if (tools.own_heartbeat != nullptr) tools.own_heartbeat->reached(++stage);
    const int count = std::min(block, num_outputs - begin);
    const View<float> logits = tools.runner.logits(begin, count);
    for (; !prompt_rows.empty() && prompt_rows.front().output < begin + count;
         prompt_rows = prompt_rows.subspan(1)) {
      PromptRow& row = prompt_rows.front();
      row.found =
          Sampler::position_logprobs(backend, logits, row.output - begin, row.token, row.num_top);
    }
    next = skip_failed_drafts(flight, next);
    const size_t first = next;
    for (; next < flight.samples.size() && flight.samples[next].logits_row < begin + count; ++next)
      flight.samples[next].logits_row -= begin;
    sample_block(flight, logits, {first, next}, tools);
  }
  flight.end = tools.clock.now();
}

}  // namespace hocket
