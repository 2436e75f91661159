#include "engine/flight.h"

#include <algorithm>

#include "base/check.h"

namespace hocket {
namespace {

// A row whose token failed belongs to a request that has ended, so any token will do.
void fill_in(Flight& flight, std::span<const SampledToken> before) {
  for (const FutureRow& future : flight.futures) {
    HOCKET_CHECK(future.index < std::ssize(before));
    const SampledToken& sampled = before[future.index];
    const TokenId token = sampled.failed ? TokenId{0} : sampled.token;
    flight.forward.ids[future.row] = token;
    if (future.sample >= 0) flight.samples[future.sample].newest = token;
  }
}

}  // namespace

void Flight::reserve(const WorkLimits& work, int max_requests, int num_pages) {
  forward.reserve(work.max_rows, 2 * max_requests);
  pages.reserve(2 * static_cast<size_t>(num_pages));
  futures.reserve(max_requests);
  samples.reserve(max_requests);
  sampled.reserve(max_requests);
  logprobs.reserve(max_requests);
  row_begins.reserve(max_requests);
  keys.reserve(max_requests);
  packer.reserve(max_requests);
}

void forward(Flight& flight, std::span<const SampledToken> before, const StepTools& tools) {
  flight.begin = tools.clock.now();
  fill_in(flight, before);
  View<uint32_t> expert_counts;
  if (tools.experts != nullptr) {
    flight.experts.step = tools.pass.step;
    flight.experts.num_tokens = flight.forward.num_rows();
    expert_counts = tools.experts->open(flight.experts);
  }
  if (flight.wants_routed) {
    const ModelConfig& model = tools.runner.info().model;
    flight.routed.open(flight.forward.num_rows(), model.num_layers, model.moe.top_k);
  }
  auto done = tools.runner.forward_together(
      flight.forward, {.id = tools.pass,
                       .plan = tools.plan,
                       .is_trial = tools.is_trial,
                       .ledger = tools.ledger,
                       .probe = flight.wants_routed ? &flight.routed : nullptr,
                       .expert_counts = expert_counts});
  flight.lost = done ? std::nullopt : std::optional(std::move(done).error());
}

void sample(Flight& flight, const StepTools& tools) {
  Backend& backend = tools.runner.backend();
  flight.sampled.assign(flight.samples.size(), {});
  flight.logprobs.clear();
  flight.logprobs.resize(flight.samples.size());
  const int num_outputs = static_cast<int>(flight.forward.output_rows.size());
  const int block = tools.runner.plan().work.max_logits_rows;
  auto samples = std::span(flight.samples);
  auto sampled = std::span(flight.sampled);
  auto logprobs = std::span(flight.logprobs);
  auto prompt_rows = std::span(flight.prompt_rows);
  for (int begin = 0; begin < num_outputs; begin += block) {
    const int count = std::min(block, num_outputs - begin);
    const View<float> logits = tools.runner.logits(begin, count);
    for (; !prompt_rows.empty() && prompt_rows.front().output < begin + count;
         prompt_rows = prompt_rows.subspan(1)) {
      PromptRow& row = prompt_rows.front();
      row.found =
          Sampler::position_logprobs(backend, logits, row.output - begin, row.token, row.num_top);
    }
    size_t n = 0;  // samples of this block; their logits_row then counts from `begin`
    for (; n < samples.size() && samples[n].logits_row < begin + count; ++n)
      samples[n].logits_row -= begin;
    tools.sampler.sample(backend, logits, samples.first(n), sampled.first(n), logprobs.first(n));
    for (size_t i = 0; i < n; ++i)
      if (samples[i].grammar != nullptr && sampled[i].grammar == GrammarVerdict::goes_on)
        tools.grammars->compute_ahead(*samples[i].grammar);
    samples = samples.subspan(n), sampled = sampled.subspan(n), logprobs = logprobs.subspan(n);
  }
  flight.end = tools.clock.now();
}

}  // namespace hocket
