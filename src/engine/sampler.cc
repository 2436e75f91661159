#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>

#include "base/check.h"
#include "base/mix.h"
#include "compute/kernels/row_stats.h"
#include "engine/reasoning_limit.h"
#include "engine/top_k_top_p.h"

namespace hocket {

// The memory that a worker needs for one row at a time.
struct SamplingWorkspace {
  explicit SamplingWorkspace(int vocab_size)
      : logits(vocab_size), probabilities(vocab_size), counts(vocab_size), candidates(vocab_size) {}
  std::vector<float> logits;
  std::vector<float> probabilities;
  std::vector<int32_t> counts;  // counts of penalised tokens; all zero between rows
  TopKTopPFilter candidates;
};

namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Reasons why a row has no token.
constexpr int kNothingAllowed = -1;
constexpr int kNotFinite = -2;

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1.0 || p.frequency_penalty != 0.0 || p.presence_penalty != 0.0;
}

bool ends_are_masked(const SampleRow& row) {
  return row.num_generated() < row.params->min_new_tokens;
}

// True if no rule changes the logits.
bool untouched(const SampleRow& row) {
  const SamplingParams& p = *row.params;
  return p.allowed_ids.empty() && p.logit_bias.empty() && !has_penalties(p) &&
         !ends_are_masked(row);
}

void mask_to_allowed(std::span<const TokenId> allowed, std::span<float> x) {
  size_t next = 0;
  for (const TokenId id : allowed) {
    const auto i = static_cast<size_t>(value(id));
    std::fill(x.begin() + static_cast<std::ptrdiff_t>(next),
              x.begin() + static_cast<std::ptrdiff_t>(i), kMasked);
    next = i + 1;
  }
  std::fill(x.begin() + static_cast<std::ptrdiff_t>(next), x.end(), kMasked);
}

void mask(std::span<const TokenId> ids, std::span<float> x) {
  for (const TokenId id : ids)
    if (value(id) >= 0 && value(id) < std::ssize(x)) x[value(id)] = kMasked;
}

// Applies penalties once to each token. `counts` is its number in the answer, or kPromptOnly if
// only the prompt has it.
void penalise(const SampleRow& row, std::span<int32_t> counts, std::span<float> x) {
  constexpr int32_t kPromptOnly = -1;
  const SamplingParams& p = *row.params;
  const auto repetition = static_cast<float>(p.repetition_penalty);
  const auto frequency = static_cast<float>(p.frequency_penalty);
  const auto presence = static_cast<float>(p.presence_penalty);
  for (const TokenId id : row.generated) ++counts[value(id)];
  for (const TokenId id : row.newer) ++counts[value(id)];
  if (repetition != 1.0f)
    for (const TokenId id : row.prompt)
      if (int32_t& count = counts[value(id)]; count == 0) count = kPromptOnly;

  const auto settle = [&](TokenId id) {
    const int32_t count = std::exchange(counts[value(id)], 0);
    if (count == 0) return;  // penalised before
    float& l = x[value(id)];
    if (repetition != 1.0f) l = l > 0 ? l / repetition : l * repetition;
    if (count != kPromptOnly) l -= frequency * static_cast<float>(count) + presence;
  };
  std::ranges::for_each(row.generated, settle);
  std::ranges::for_each(row.newer, settle);
  if (repetition != 1.0f) std::ranges::for_each(row.prompt, settle);
}

void mask_to_grammar(std::span<const uint32_t> allowed, std::span<float> x) {
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const uint32_t word = allowed[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const std::span<float> here = x.subspan(begin, std::min<size_t>(32, x.size() - begin));
    for (size_t i = 0; i < here.size(); ++i)
      if (!(word >> i & 1)) here[i] = kMasked;
  }
}

// True if a token is left that does not end the answer.
bool can_go_on(const SampleRow& row, std::span<const float> x) {
  const auto is = [](std::span<const TokenId> ids, TokenId id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  for (int i = 0; i < std::ssize(x); ++i)
    if (x[i] != kMasked && !is(row.end_ids, TokenId{i}) && !is(row.params->stop_ids, TokenId{i}))
      return true;
  return false;
}

// Applies all rules before temperature. `allowed` is the mask of the row's grammar, empty without
// one.
void process(const SampleRow& row, std::span<const uint32_t> allowed, std::span<int32_t> counts,
             std::span<float> x) {
  const SamplingParams& p = *row.params;
  if (!allowed.empty()) mask_to_grammar(allowed, x);
  if (!p.allowed_ids.empty()) mask_to_allowed(p.allowed_ids, x);
  // If the grammar allows only end tokens, the answer ends though min_new_tokens is not reached.
  if (ends_are_masked(row) && (allowed.empty() || can_go_on(row, x))) {
    mask(row.end_ids, x);
    mask(p.stop_ids, x);
  }
  for (const auto& [id, bias] : p.logit_bias) x[value(id)] += bias;
  if (has_penalties(p)) penalise(row, counts, x);
}

// True if every logit is finite or masked. Rules may make finite logits infinite: a small
// repetition_penalty or temperature overflows.
bool is_sound(std::span<const float> x) {
  bool sound = true;
  for (const float l : x) sound &= l < std::numeric_limits<float>::infinity();
  return sound;
}

// Applies temperature and the filters. Fills workspace.probabilities (not normalised; +0 if cut)
// and returns their sum: 0 if every token is masked, NaN if a logit is not finite.
double filter(const Backend& backend, const SamplingParams& p, SamplingWorkspace& work) {
  const std::span<float> x = work.logits;
  const auto temperature = static_cast<float>(p.temperature);
  if (temperature != 1.0f)
    for (float& l : x) l /= temperature;
  if (!is_sound(x)) return std::numeric_limits<double>::quiet_NaN();
  const float max = *std::ranges::max_element(x);
  if (max == kMasked) return 0;
  exp_row(backend, x, max, work.probabilities);
  const auto min_p = static_cast<float>(p.min_p);
  if (min_p > 0)
    for (float& q : work.probabilities) q = q >= min_p ? q : 0.0f;
  const bool cut_k = p.top_k > 0 && p.top_k < std::ssize(x);
  if (cut_k || p.top_p < 1.0) {
    work.candidates.count(work.probabilities);
    if (cut_k) work.candidates.keep_largest(x, p.top_k, work.probabilities);
    if (p.top_p < 1.0) work.candidates.keep_mass(p.top_p, work.probabilities);
  }
  double sum = 0;
  for (const float q : work.probabilities) sum += q;
  return sum;
}

int argmax(std::span<const float> x) {
  return static_cast<int>(std::ranges::max_element(x) - x.begin());  // the first of equals
}

// Returns the token at which the running sum passes u * sum.
int draw(std::span<const float> probabilities, double sum, double u) {
  const double target = u * sum;
  double passed = 0;
  int last = -1;
  for (int i = 0; i < std::ssize(probabilities); ++i) {
    if (probabilities[i] == 0.0f) continue;
    passed += probabilities[i];
    last = i;
    if (passed > target) break;
  }
  return last;
}

// The rules that decide beside the logits: parameters, history and the grammar's mask.
struct Rules {
  const SampleRow& row;
  std::span<const uint32_t> allowed;
};

// Returns the token that ends reasoning that reached its limit; -1 if none is forced.
int reasoning_end(const SampleRow& row, std::span<const uint32_t> allowed) {
  if (row.params->reasoning_limit == nullptr) return -1;
  const int id =
      value(forced_reasoning_end(*row.params->reasoning_limit, {row.generated, row.newer}));
  return id >= 0 && !allowed.empty() && !mask_allows(allowed, id) ? -1 : id;
}

// Returns the row's token, kNothingAllowed or kNotFinite. `best` is the argmax of its untouched
// logits.
int choose(const Backend& backend, const Rules& rules, int best, std::span<const float> logits,
           SamplingWorkspace& work) {
  const auto& [row, allowed] = rules;
  if (const int end = reasoning_end(row, allowed); end >= 0) return end;
  const bool greedy = row.params->greedy();
  if (greedy && untouched(row) && (allowed.empty() || mask_allows(allowed, best))) return best;
  std::ranges::copy(logits, work.logits.begin());
  process(row, allowed, work.counts, work.logits);
  if (greedy) {
    if (!is_sound(work.logits)) return kNotFinite;
    const int token = argmax(work.logits);
    return work.logits[token] == kMasked ? kNothingAllowed : token;
  }
  const double sum = filter(backend, *row.params, work);
  if (std::isnan(sum)) return kNotFinite;
  if (sum == 0) return kNothingAllowed;
  const auto position = static_cast<uint64_t>(row.position());
  return draw(work.probabilities, sum, uniform_at(row.params->seed, position));
}

PositionLogprobs make_logprobs(std::span<const float> logits, float logsumexp, TokenId token,
                               int num_top) {
  PositionLogprobs made{.logprob = logits[value(token)] - logsumexp};
  made.top.reserve(num_top);
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;  // ids rise, so equals stay in id order
  };
  for (int i = 0; i < std::ssize(logits) && num_top > 0; ++i) {
    const TokenLogprob here{TokenId{i}, logits[i]};
    if (std::ssize(made.top) == num_top) {
      if (!better(here, made.top.back())) continue;
      made.top.pop_back();
    }
    made.top.insert(std::ranges::upper_bound(made.top, here, better), here);
  }
  for (TokenLogprob& top : made.top) top.logprob -= logsumexp;
  return made;
}

}  // namespace

bool draft_holds(const SampleRow& row, const SampledToken& drawn) {
  return value(row.draft) >= 0 && drawn.token == row.draft && !drawn.failed &&
         drawn.grammar == GrammarVerdict::may_continue;
}

double uniform_at(uint64_t seed, uint64_t position) {
  const uint64_t bits = mix64(mix64(seed + kMixStep) ^ (position * 0xd1342543de82ef95ull));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct Sampler::State {
  int vocab_size = 0;
  std::vector<RowStats> stats;
  // One per worker, made when first needed.
  std::vector<std::unique_ptr<SamplingWorkspace>> workspaces;

  void reserve_workers(int num_workers) {
    while (std::ssize(workspaces) < num_workers)
      workspaces.push_back(std::make_unique<SamplingWorkspace>(vocab_size));
  }
};

Sampler::Sampler(int vocab_size, int max_rows) : state_(std::make_unique<State>()) {
  state_->vocab_size = vocab_size;
  state_->stats.resize(max_rows);
}

Sampler::~Sampler() = default;

void Sampler::sample(Backend& backend, View<const float> logits, std::span<const SampleRow> rows,
                     std::span<SampledToken> out,
                     std::span<std::unique_ptr<PositionLogprobs>> logprobs) {
  HOCKET_CHECK(logits.rows <= std::ssize(state_->stats));
  HOCKET_CHECK(logits.cols == state_->vocab_size);
  state_->reserve_workers(backend.workers().size());
  const auto stats = std::span(state_->stats).first(logits.rows);
  row_stats(backend, logits, stats);
  const auto sample_row = [&](size_t i, int worker) {
    const SampleRow& row = rows[i];
    const RowStats& facts = stats[row.logits_row];
    const std::span<const float> untouched_logits(logits.row(row.logits_row), logits.cols);
    out[i] = {.token = TokenId{-1}, .failed = true};
    if (!facts.finite) return;
    std::span<const uint32_t> allowed;
    if (row.grammar != nullptr) {
      out[i].grammar = GrammarVerdict::failed;
      allowed = row.grammar->mask();
      if (allowed.empty()) return;
    }
    const int token = choose(backend, {row, allowed}, facts.argmax, untouched_logits,
                             *state_->workspaces[worker]);
    if (token == kNotFinite)
      out[i].grammar = GrammarVerdict::may_continue;  // the grammar did not fail
    if (token < 0) return;
    out[i] = {.token = TokenId{token}, .failed = false};
    if (row.grammar != nullptr) {
      const bool is_draft = TokenId{token} == row.draft;
      out[i].grammar = row.grammar->accept(TokenId{token}, is_draft ? 0 : row.max_forced);
      out[i].forced = row.grammar->forced();
      out[i].failed = out[i].grammar == GrammarVerdict::failed;
    }
    if (row.params->num_top_logprobs < 0) return;
    try {
      logprobs[i] = std::make_unique<PositionLogprobs>(make_logprobs(
          untouched_logits, facts.logsumexp, TokenId{token}, row.params->num_top_logprobs));
    } catch (const std::bad_alloc&) {
      out[i].failed = out[i].no_memory = true;
    }
  };
  backend.workers().run(static_cast<int>(rows.size()), [&](int index, int worker) {
    auto i = static_cast<size_t>(index);
    if (i > 0 && value(rows[i - 1].draft) >= 0) return;  // sampled behind the row before it
    sample_row(i, worker);
    for (; i + 1 < rows.size() && draft_holds(rows[i], out[i]); ++i) sample_row(i + 1, worker);
  });
}

PositionLogprobs Sampler::position_logprobs(Backend& backend, View<const float> logits, int row,
                                            TokenId token, int num_top) {
  RowStats facts;
  const View<const float> one = logits.slice_rows(row, 1);
  row_stats(backend, one, std::span(&facts, 1));
  return make_logprobs({one.data, static_cast<size_t>(one.cols)}, facts.logsumexp, token, num_top);
}

Sampler::Distribution Sampler::distribution(Backend& backend, std::span<const float> logits,
                                            const SampleRow& row) {
  state_->reserve_workers(1);
  SamplingWorkspace& work = *state_->workspaces[0];
  std::ranges::copy(logits, work.logits.begin());
  process(row, {}, work.counts, work.logits);
  Distribution result;
  result.processed.assign(work.logits.begin(), work.logits.end());
  result.probabilities.assign(logits.size(), 0.0);
  if (row.params->greedy()) {
    result.probabilities[argmax(work.logits)] = 1.0;
    return result;
  }
  const double sum = filter(backend, *row.params, work);
  for (size_t i = 0; i < logits.size(); ++i)
    result.probabilities[i] = sum == 0 ? 0.0 : work.probabilities[i] / sum;
  return result;
}

}  // namespace hocket
