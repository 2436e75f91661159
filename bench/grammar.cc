#include "bench/grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/quantile.h"
#include "bench/bench_error.h"
#include "engine/engine.h"
#include "engine/grammar/random_schemas_testing.h"
#include "text/tokens/tokenizer.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kOutboxSize = 1 << 16;
constexpr int kPromptLen = 16;
constexpr int kMaxWalked = 100;  // tokens of a random text, at most
// An array of at least 500 objects, so that no answer ends before --output-len.
constexpr std::string_view kSchema =
    R"({"type":"array","minItems":500,"x-guidance":{"whitespace_flexible":false},
        "items":{"type":"object","additionalProperties":false,
                 "required":["name","quantity","category","in_stock"],
                 "properties":{"name":{"type":"string","minLength":4,"maxLength":24},
                               "quantity":{"type":"integer","minimum":0,"maximum":99999},
                               "category":{"enum":["tools","garden","kitchen","books"]},
                               "in_stock":{"type":"boolean"}}}})";

// Times in microseconds.
struct Micros {
  std::vector<double> compile, mask;  // one entry a schema, one a mask
  double vocabulary = 0;
  int num_tokens = 0;  // in the vocabulary
};

double micros_since(TimePoint begin) {
  return to_us(RealClock().now() - begin);
}

// Generates a random text that the grammar allows, and adds the time of each mask to `into`.
void walk(GrammarMatcher matcher, std::vector<uint32_t>& mask, std::mt19937& random, Micros& into) {
  for (int i = 0; i < kMaxWalked; ++i) {
    const TimePoint begin = RealClock().now();
    if (!matcher.mask(mask)) return;
    into.mask.push_back(micros_since(begin));
    std::vector<TokenId> allowed;
    for (int id = 0; id < std::ssize(mask) * 32; ++id)
      if (mask_allows(mask, id)) allowed.push_back(TokenId{id});
    const auto state = matcher.accept(allowed[random() % allowed.size()]);
    if (!state || state->ended) return;
  }
}

Result<Micros> time_grammars(const BenchGrammarOptions& options,
                             const GrammarVocabulary::Source& source, int num_logits,
                             std::span<const TokenId> end_ids) {
  Micros micros{.num_tokens = num_logits};
  TimePoint begin = RealClock().now();
  HOCKET_TRY(const GrammarVocabulary vocabulary,
             GrammarVocabulary::create(source, num_logits, end_ids));
  micros.vocabulary = micros_since(begin);
  testing::RandomSchemas schemas(1);
  std::mt19937 random(1);
  std::vector<uint32_t> mask(vocabulary.mask_words());
  for (int i = 0; i < options.num_schemas; ++i) {
    const GrammarSpec spec{.kind = GrammarKind::json_schema, .text = schemas.next().dump()};
    begin = RealClock().now();
    HOCKET_TRY(const auto grammar, vocabulary.compile(spec));
    micros.compile.push_back(micros_since(begin));
    walk(grammar->begin(), mask, random, micros);
  }
  return micros;
}

enum class Kind : uint8_t { free_text, schema, schema_with_logprobs };
constexpr std::string_view kKindNames[] = {"free text", "schema", "schema, logprobs"};

// The measurements of one kind of answers.
struct Pace {
  std::vector<double> tokens_per_s;  // one a round
  uint64_t num_tokens = 0, num_forced = 0, num_steps = 0;
  double step_seconds = 0;
  uint64_t num_ahead = 0, num_late = 0;
  double mask_seconds = 0;

  double share_ahead() const {
    const uint64_t all = num_ahead + num_late;
    return all == 0 ? 0 : static_cast<double>(num_ahead) / static_cast<double>(all);
  }
  double share_forced() const {
    return num_tokens == 0 ? 0 : static_cast<double>(num_forced) / static_cast<double>(num_tokens);
  }
};

RequestInput make_input(const BenchGrammarOptions& options, Kind kind, int vocab_size,
                        uint32_t seed) {
  std::mt19937 random(seed);
  RequestInput input;
  input.id = Engine::next_request_id();
  for (int i = 0; i < kPromptLen; ++i)
    input.prompt.push_back(TokenId{static_cast<int>(random() % static_cast<uint32_t>(vocab_size))});
  SamplingParams& p = input.sampling;
  p.max_new_tokens = options.output_len;
  p.ignore_eos = true;
  p.temperature = 1;
  p.seed = seed;
  if (kind == Kind::schema_with_logprobs) p.num_top_logprobs = 0;
  if (kind != Kind::free_text)
    p.grammar = std::make_shared<const GrammarSpec>(
        GrammarSpec{.kind = GrammarKind::json_schema, .text = std::string(kSchema)});
  return input;
}

// Runs all requests of a round. Returns tokens/s from the first step to the last. submit() is not
// timed, and the grammar was compiled in round 0.
Result<double> run_round(Engine& engine, std::vector<RequestInput> inputs) {
  Outbox outbox(kOutboxSize);
  size_t num_running = inputs.size();
  uint64_t num_tokens = 0;
  for (RequestInput& input : inputs) HOCKET_TRY_VOID(engine.submit(std::move(input)));
  const TimePoint begin = RealClock().now();
  while (num_running > 0) {
    engine.step(outbox);
    while (auto output = outbox.pop()) {
      num_tokens += value(output->token) >= 0 ? 1 : 0;
      if (output->summary == nullptr) continue;
      --num_running;
      if (output->summary->finish == FinishReason::error)
        return std::unexpected(std::move(output->summary->error));
    }
  }
  return static_cast<double>(num_tokens) / to_seconds(RealClock().now() - begin);
}

void add_difference(const EngineStats& before, const EngineStats& after, Pace& pace) {
  const SchedulerStats &s = before.scheduler, &t = after.scheduler;
  pace.num_tokens += t.generated_tokens_total - s.generated_tokens_total;
  pace.num_forced += t.forced_tokens_total - s.forced_tokens_total;
  const auto steps = [](const StepCounts& c) { return c.num_prefill + c.num_decode + c.num_mixed; };
  pace.num_steps += steps(after.steps) - steps(before.steps);
  pace.step_seconds += after.step_seconds_total - before.step_seconds_total;
  const GrammarStats g = before.grammars.value_or(GrammarStats{});
  const GrammarStats h = after.grammars.value_or(GrammarStats{});
  pace.num_ahead += h.num_masks_ahead - g.num_masks_ahead;
  pace.num_late += h.num_masks_late - g.num_masks_late;
  pace.mask_seconds += h.mask_seconds_total - g.mask_seconds_total;
}

Result<std::vector<Pace>> time_answers(const BenchGrammarOptions& options, Engine& engine) {
  std::vector<Pace> paces(std::size(kKindNames));
  uint32_t seed = 1;
  for (int round = 0; round <= options.rounds; ++round)
    for (size_t k = 0; k < paces.size(); ++k) {
      std::vector<RequestInput> inputs;
      for (int i = 0; i < options.rows; ++i)
        inputs.push_back(
            make_input(options, static_cast<Kind>(k), engine.info().model.vocab_size, seed++));
      const EngineStats before = engine.stats();
      HOCKET_TRY(const double tokens_per_s, run_round(engine, std::move(inputs)));
      if (round == 0) continue;
      paces[k].tokens_per_s.push_back(tokens_per_s);
      add_difference(before, engine.stats(), paces[k]);
    }
  return paces;
}

void print_json(const Micros& micros) {
  const auto spread = [](const std::vector<double>& us) {
    return Json{{"p50", quantile(us, 0.5)}, {"p99", quantile(us, 0.99)}, {"count", us.size()}};
  };
  fmt::print("{}\n", Json{{"case", "grammar"},
                          {"vocabulary_tokens", micros.num_tokens},
                          {"vocabulary_us", micros.vocabulary},
                          {"compile_us", spread(micros.compile)},
                          {"mask_us", spread(micros.mask)}}
                         .dump());
}

void print_json(const std::vector<Pace>& paces) {
  for (size_t k = 0; k < paces.size(); ++k) {
    const Pace& p = paces[k];
    fmt::print("{}\n", Json{{"case", kKindNames[k]},
                            {"tokens_per_s", quantile(p.tokens_per_s, 0.5)},
                            {"least", quantile(p.tokens_per_s, 0)},
                            {"most", quantile(p.tokens_per_s, 1)},
                            {"tokens", p.num_tokens},
                            {"forced_tokens", p.num_forced},
                            {"steps", p.num_steps},
                            {"step_seconds", p.step_seconds},
                            {"masks_ahead", p.num_ahead},
                            {"masks_late", p.num_late},
                            {"mask_seconds", p.mask_seconds}}
                           .dump());
  }
}

void print_text(const Micros& micros) {
  fmt::print("vocabulary  {} tokens | {:.1f} ms, once\n", micros.num_tokens,
             1e-3 * micros.vocabulary);
  fmt::print("compile     {} schemas | p50 {:.0f} us | p99 {:.0f} us\n", micros.compile.size(),
             quantile(micros.compile, 0.5), quantile(micros.compile, 0.99));
  fmt::print("mask        {} masks | p50 {:.1f} us | p99 {:.1f} us\n", micros.mask.size(),
             quantile(micros.mask, 0.5), quantile(micros.mask, 0.99));
}

void print_text(const BenchGrammarOptions& options, const std::vector<Pace>& paces) {
  const double free_text = quantile(paces[0].tokens_per_s, 0.5);
  for (size_t k = 0; k < paces.size(); ++k) {
    const Pace& p = paces[k];
    const double median = quantile(p.tokens_per_s, 0.5);
    fmt::print(
        "{:<17} {} answers of {} | {:.0f} tokens/s ({:.0f} to {:.0f}) | {:.2f}x free text | "
        "{:.0f} us a step",
        kKindNames[k], options.rows, options.output_len, median, quantile(p.tokens_per_s, 0),
        quantile(p.tokens_per_s, 1), median / free_text,
        1e6 * p.step_seconds / static_cast<double>(std::max<uint64_t>(p.num_steps, 1)));
    if (k > 0)
      fmt::print(" | {:.0f} % of tokens forced | {:.0f} % of masks beside a step",
                 100 * p.share_forced(), 100 * p.share_ahead());
    fmt::print("\n");
  }
}

Result<void> run(const BenchGrammarOptions& options) {
  HOCKET_TRY_VOID(check_number("schemas", options.num_schemas, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("rounds", options.rounds, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("rows", options.rows, {1, 256}));
  HOCKET_TRY_VOID(check_number("output-len", options.output_len, {2, 2048}));
  const ModelSettings& model = options.settings.model;
  const std::filesystem::path folder =
      model.tokenizer_path.empty() ? model.model_path : model.tokenizer_path;
  HOCKET_TRY(const Tokenizer tokenizer, Tokenizer::load(folder));
  const GrammarVocabulary::Source source{tokenizer.handle(), folder};
  const auto print = [&](const Micros& micros) {
    if (options.json)
      print_json(micros);
    else
      print_text(micros);
  };
  if (options.only_masks) {
    const std::optional<TokenId> end = tokenizer.eos_id();
    if (!end) return fail(ErrorCode::bad_tokenizer, "{} names no end token", folder.string());
    HOCKET_TRY(const Micros micros,
               time_grammars(options, source, tokenizer.vocab_size(), std::span(&*end, 1)));
    print(micros);
    return {};
  }
  HOCKET_TRY(const auto engine, Engine::create({.settings = options.settings,
                                                .tokenizer_eos = tokenizer.eos_id(),
                                                .grammars = source}));
  const ModelConfig& shape = engine->info().model;
  HOCKET_TRY(const Micros micros, time_grammars(options, source, shape.vocab_size, shape.eos_ids));
  print(micros);
  HOCKET_TRY(const std::vector<Pace> paces, time_answers(options, *engine));
  if (options.json)
    print_json(paces);
  else
    print_text(options, paces);
  return {};
}

}  // namespace

int bench_grammar(const BenchGrammarOptions& options) {
  const Result<void> done = run(options);
  return done ? 0 : end_with(done.error());
}

}  // namespace hocket
