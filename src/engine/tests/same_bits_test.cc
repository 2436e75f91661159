// Tests the promise of docs/contracts/arithmetic.md: a request's tokens and every logit behind them
// depend on its prompt, its parameters and the model alone. The whole engine runs the same requests
// in other batches, chunks, pages, threads, instruction sets and orders, and results must be equal.
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "compute/overlap/plan.h"
#include "engine/check/quality.h"
#include "engine/plan/latent_form.h"
#include "engine/tests/forced_isa.h"
#include "engine/tests/forms.h"
#include "policy/scheduler/absorbed_rows.h"

namespace hocket {
namespace {

using namespace testing;

constexpr int kNewTokens = 20;

// Makes requests with every kind of sampling, on prompts shorter and longer than pages and chunks.
std::vector<RequestInput> sampled_requests(std::initializer_list<int> prompt_lens = {
                                               5, 33, 64, 97, 150, 225, 31, 200}) {
  const std::vector<int> lengths = prompt_lens;
  std::vector<RequestInput> inputs;
  for (int i = 0; i < std::ssize(lengths); ++i) {
    RequestInput input = greedy_input(random_tokens(100 + i, lengths[i]), kNewTokens);
    SamplingParams& p = input.sampling;
    p.ignore_eos = true;
    p.num_top_logprobs = kMaxTopLogprobs;
    if (i % 3 == 2) p.prompt_logprobs_from = 0;
    if (i % 2 == 1) p.temperature = 0.9, p.seed = static_cast<uint64_t>(i);
    if (i % 4 == 1) p.top_p = 0.9, p.frequency_penalty = 0.4, p.repetition_penalty = 1.1;
    if (i % 4 == 3) p.top_k = 40, p.min_p = 0.01, p.presence_penalty = 0.3;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

void expect_each_same(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  ASSERT_GE(got.size(), want.size());
  for (size_t r = 0; r < want.size() && !::testing::Test::HasFatalFailure(); ++r) {
    SCOPED_TRACE("request " + std::to_string(r));
    ASSERT_GE(want[r].tokens.size(), kNewTokens);
    expect_same(got[r], want[r]);
  }
}

std::vector<Answer> requests_alone(const ServerSettings& settings) {
  return alone(settings, sampled_requests());
}

std::vector<Answer> together(const ServerSettings& settings) {
  return run_all(*make_engine(settings), sampled_requests());
}

// Returns how many tokens of a prompt and its answer are computed as a prompt would be.
int num_shared(const EngineInfo& info, const RequestInput& input, const Answer& answer) {
  const int prompt_len = static_cast<int>(input.prompt.size());
  if (caches_whole_answers(info.model, info.prompt_form)) return prompt_len + kNewTokens - 1;
  AbsorbedRows rows(info.answer_begins, info.model.eos_ids);
  rows.take_all(input.prompt);
  int len = prompt_len;
  while (len < prompt_len + kNewTokens - 1 && rows.take(TokenId{answer.tokens[len - prompt_len]}))
    ++len;
  return len;
}

class SameBits : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    settings_ = base_settings(GetParam());
    static std::map<std::string, std::vector<Answer>> known;  // answers by form
    std::vector<Answer>& answers = known[GetParam().name];
    if (answers.empty()) answers = requests_alone(settings_);
    alone_ = &answers;
  }
  // Runs all requests at once with changed settings.
  void expect_same_with(const std::string& name,
                        const std::function<void(ServerSettings&)>& change) {
    SCOPED_TRACE(name);
    ServerSettings changed = settings_;
    change(changed);
    expect_each_same(together(changed), *alone_);
  }

  ServerSettings settings_;
  const std::vector<Answer>* alone_ = nullptr;
};

TEST_P(SameBits, InABatchOf32) {
  std::vector<RequestInput> inputs = sampled_requests();
  for (int i = 0; i < 24; ++i)
    inputs.push_back(greedy_input(random_tokens(i, 3 + 7 * i), kNewTokens + i % 5));
  expect_each_same(run_all(*make_engine(settings_), std::move(inputs)), *alone_);
}

TEST_P(SameBits, WhateverTheChunkSize) {
  for (const int chunk : {32, 64, 2048, -1})
    expect_same_with("chunk " + std::to_string(chunk),
                     [&](auto& s) { s.scheduler.chunked_prefill_size = chunk; });
}

TEST_P(SameBits, WhateverThePolicy) {
  for (const char* policy : {"fcfs", "lpm"})
    for (const bool mixed : {false, true})
      expect_same_with(std::string(policy) + (mixed ? " mixed" : ""), [&](auto& s) {
        s.scheduler.schedule_policy = policy;
        s.scheduler.enable_mixed_chunk = mixed;
        s.scheduler.chunked_prefill_size = 64;
        s.memory.max_running_requests = 3;  // so that some wait
      });
}

TEST_P(SameBits, WhateverThePageSize) {
  for (const int page : {1, 16, 32, 64, 128})
    expect_same_with("page " + std::to_string(page), [&](auto& s) { s.memory.page_size = page; });
}

TEST_P(SameBits, WhateverTheThreads) {
  for (const int threads : {1, 2, 3})
    expect_same_with("threads " + std::to_string(threads),
                     [&](auto& s) { s.compute.num_threads = threads; });
}

TEST_P(SameBits, AfterAPrefixHit) {
  const auto engine = make_engine(settings_);
  run_all(*engine, sampled_requests());
  const std::vector<Answer> again = run_all(*engine, sampled_requests());
  expect_each_same(again, *alone_);
  const std::vector<RequestInput> inputs = sampled_requests();
  for (size_t i = 0; i < again.size(); ++i) {
    // Every token of a filled page hits, except the last of the prompt, or those up to the last
    // state; none if the request wants prompt logprobs.
    const int prompt_len = static_cast<int>(inputs[i].prompt.size());
    const EngineInfo info = engine->info();
    const int filled = num_shared(info, inputs[i], again[i]) / 32 * 32;
    const bool reports = inputs[i].sampling.prompt_logprobs_from >= 0;
    int hits = engine->info().num_states > 0 ? (prompt_len - 1) / kDeltaBlock * kDeltaBlock
                                             : std::min(prompt_len - 1, filled);
    // An answer that leaves a chunk of keys gives up the page in which its prompt ended.
    const VisibleKeys window = info.model.window();
    if (window.chunk > 0 && prompt_len % 32 > 0 && window.first_key(filled) >= prompt_len)
      hits = prompt_len / 32 * 32;
    EXPECT_EQ(again[i].summary.cached_tokens, reports ? 0 : hits);
  }
}

TEST_P(SameBits, AfterAPrefixHitInsideAPage) {
  std::vector<RequestInput> inputs = sampled_requests();
  const auto engine = make_engine(settings_);
  RequestInput mate = inputs[4];
  mate.prompt.resize(45);
  for (const int token : random_tokens(7, 60)) mate.prompt.push_back(TokenId{token});
  mate.prompt[45] = TokenId{(value(inputs[4].prompt[45]) + 1) % (kVocabulary - kImageTokens)};
  run_all(*engine, {mate});
  const std::vector<Answer> got = run_all(*engine, {inputs[4]});
  const bool has_states = engine->info().num_states > 0;
  EXPECT_EQ(got[0].summary.cached_tokens, has_states ? 0 : 45);
  // The tokens are there, and no state among them.
  EXPECT_EQ(got[0].summary.recomputed_tokens, has_states ? 45 : 0);
  EXPECT_EQ(engine->stats().scheduler.recomputed_tokens_total, has_states ? 45 : 0);
  expect_each_same(got, {(*alone_)[4]});
}

// The pool has ten pages: the second request is admitted while the first is small, and both grow to
// six.
TEST_P(SameBits, AfterARetraction) {
  auto inputs = sampled_requests({5, 3, 7});
  for (RequestInput& input : inputs) input.sampling.max_new_tokens = 180;
  ServerSettings tiny = settings_;
  tiny.memory.max_total_tokens = 320;
  tiny.scheduler.schedule_conservativeness = 0.01;
  const std::vector<Answer> got = run_all(*make_engine(tiny), inputs);
  expect_each_same(got, alone(settings_, inputs));
  int retractions = 0;
  for (const Answer& answer : got) retractions += answer.summary.num_retractions;
  std::printf("%d retractions\n", retractions);
  EXPECT_GT(retractions, 0);
}

TEST_P(SameBits, OnEveryInstructionSet) {
  // Plain loops and emulated tiles are slow, so only the first five requests run.
  const std::vector<Answer> want(alone_->begin(), alone_->begin() + 5);
  int compared = 0;
  for (const Isa isa : kAllIsas) {
    if (!runs_here(isa)) continue;
    const std::string name(isa_name(isa));
    SCOPED_TRACE(name);
    const ForcedIsa forced(name.c_str());
    const auto engine = make_engine(settings_);
    ASSERT_EQ(engine->info().isa, isa);
    std::vector<RequestInput> inputs = sampled_requests();
    inputs.resize(want.size());
    expect_each_same(run_all(*engine, std::move(inputs)), want);
    ++compared;
  }
  std::printf("%d instruction sets\n", compared);
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(Forms, SameBits, ::testing::ValuesIn(kForms),
                         [](const auto& param) { return std::string(param.param.name); });

class SameBitsInFloat32 : public ::testing::TestWithParam<Form> {};

TEST_P(SameBitsInFloat32, AndOthersThanInBf16) {
  ServerSettings settings = base_settings(GetParam());
  const std::vector<Answer> bf16 = requests_alone(settings);
  settings.model.dtype = "float32";
  const std::vector<Answer> want = requests_alone(settings);
  expect_each_same(together(settings), want);
  EXPECT_NE(bits(want[0].logprobs[0]), bits(bf16[0].logprobs[0]));
}

INSTANTIATE_TEST_SUITE_P(Forms, SameBitsInFloat32,
                         ::testing::Values(kMoe, kDense, kMla, kFp8, kAwq, kMlaInt8Kv, kDelta,
                                           kKimiLinear, kMimo, kGptOss),
                         [](const auto& param) { return std::string(param.param.name); });

// Absorbed prompts are another form of the model: other bits, and again always the same.
TEST(SameBitsForms, AbsorbedLatents) {
  ServerSettings settings = base_settings(kMla);
  const std::vector<Answer> expanded = requests_alone(settings);
  settings.compute.mla_form = "absorbed";
  const std::vector<Answer> absorbed = requests_alone(settings);
  EXPECT_NE(bits(expanded[0].logprobs[0]), bits(absorbed[0].logprobs[0]));
  settings.compute.num_threads = 2;
  settings.scheduler.chunked_prefill_size = 32;
  const auto engine = make_engine(settings);
  expect_each_same(run_all(*engine, sampled_requests()), absorbed);
  expect_each_same(run_all(*engine, sampled_requests()), absorbed);  // after a prefix hit
}

// Writes Kimi-Linear's config.json with two layers of latent attention among its delta nets, so
// that the form of the first one's rows reaches the latents of the second.
std::string two_latent_layers() {
  std::ifstream in(source_dir() / kKimiLinear.model / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["linear_attn_config"]["full_attn_layers"] = {2, 4};
  config["linear_attn_config"]["kda_layers"] = {1, 3};
  const std::string folder = ::testing::TempDir() + "/two_latent_layers";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config;
  return folder;
}

// Asks for an answer of 90 tokens to a prompt of 70, then for the next turn, whose prompt holds
// both and 30 more. Expects the bits of a turn that is computed whole. Returns its cached tokens.
int cached_of_next_turn(const ServerSettings& settings) {
  const auto engine = make_engine(settings);
  RequestInput first = greedy_input(random_tokens(1, 70), 90);
  first.sampling.ignore_eos = true;
  std::vector<int> turn = random_tokens(1, 70);
  std::vector<RequestInput> inputs;
  inputs.push_back(std::move(first));
  const std::vector<Answer> begun = run_all(*engine, std::move(inputs));
  std::ranges::copy(begun[0].tokens, std::back_inserter(turn));
  for (const int token : random_tokens(2, 30)) turn.push_back(token);
  const auto next = [&] {
    std::vector<RequestInput> made;
    made.push_back(greedy_input(turn, kNewTokens));
    made[0].sampling.ignore_eos = true;
    made[0].sampling.num_top_logprobs = kMaxTopLogprobs;
    return made;
  };
  const std::vector<Answer> got = run_all(*engine, next());
  expect_each_same(got, alone(settings, next()));
  return got[0].summary.cached_tokens;
}

// The next turn's prompt hits pages of an answer, up to a state in it, and computes the rest.
TEST(SameBitsForms, ANextTurnBesideDeltaNets) {
  ServerSettings settings = base_settings(kKimiLinear);
  settings.model.model_path = two_latent_layers();
  settings.model.load_format = "dummy";
  EXPECT_EQ(cached_of_next_turn(settings), 128) << "70 of the prompt, 58 of the answer";
}

TEST(SameBitsForms, ANextTurnOfKeysAndValues) {
  EXPECT_EQ(cached_of_next_turn(base_settings(kMoe)), 128);
}

// Answers absorb latents and prompts expand them, so the next turn computes the answer again; with
// one form for both it does not.
TEST(SameBitsForms, ANextTurnOfLatents) {
  ServerSettings settings = base_settings(kMla);
  EXPECT_EQ(cached_of_next_turn(settings), 64) << "whole pages of the prompt";
  settings.compute.mla_form = "absorbed";
  EXPECT_EQ(cached_of_next_turn(settings), 128);
  settings.compute.mla_form = "answers:" + std::to_string(random_tokens(1, 70).back());
  EXPECT_EQ(cached_of_next_turn(settings), 128) << "the prompt's last token opens an answer";
}

// Two answers, and behind each of them more tokens than are absorbed with it.
TEST(SameBitsForms, APromptWithAnswersInIt) {
  ServerSettings settings = base_settings(kMla);
  settings.compute.mla_form = "answers:5";
  settings.model.context_length = 1024;
  const int end = value(make_engine(settings)->info().model.eos_ids.front());
  std::vector<int> prompt;
  const auto add = [&](int seed, int count) {
    for (const int token : random_tokens(seed, count))
      prompt.push_back(token == 5 || token == end ? 6 : token);
  };
  for (const int seed : {1, 2}) {
    add(seed, 40);
    prompt.push_back(5);
    add(10 + seed, 50);
    prompt.push_back(end);
    add(20 + seed, kRowsFromAnswerEnd + 37);
  }
  const auto inputs = [&] {
    std::vector<RequestInput> made;
    made.push_back(greedy_input(prompt, kNewTokens));
    made[0].sampling.ignore_eos = true;
    made[0].sampling.num_top_logprobs = kMaxTopLogprobs;
    return made;
  };
  const std::vector<Answer> want = alone(settings, inputs());
  for (const int chunk : {32, 96, 2048}) {
    settings.scheduler.chunked_prefill_size = chunk;
    const auto engine = make_engine(settings);
    for (int turn = 0; turn < 2; ++turn)  // the second after a prefix hit
      expect_each_same(run_all(*engine, inputs()), want);
  }
  settings.compute.mla_form = "roles";
  EXPECT_NE(bits(alone(settings, inputs())[0].logprobs[0]), bits(want[0].logprobs[0]));
}

// Combine groups are a form of the model: other bits, and again always the same.
TEST(SameBitsForms, CombineGroups) {
  ServerSettings settings = base_settings(kMoe);
  const std::vector<Answer> one = requests_alone(settings);
  settings.compute.combine_groups = 2;
  const std::vector<Answer> two = requests_alone(settings);
  EXPECT_NE(bits(one[0].logprobs[0]), bits(two[0].logprobs[0]));
  expect_each_same(together(settings), two);
  settings.compute.num_threads = 3;
  settings.scheduler.chunked_prefill_size = 32;
  const auto engine = make_engine(settings);
  expect_each_same(run_all(*engine, sampled_requests()), two);
}

// Compares every logit of every row, also in chunks that the scheduler would not cut.
class SameLogits : public ::testing::TestWithParam<Form> {};

TEST_P(SameLogits, OfEveryRow) {
  std::vector<Script> scripts;
  int64_t num_rows = 0;
  for (const int length : {3, 17, 70, 130, 240}) {
    Script script;
    for (const int token : random_tokens(length, length)) script.prompt.push_back(TokenId{token});
    for (const int token : random_tokens(-length, 9)) script.fed.push_back(TokenId{token});
    num_rows += script.num_tokens();
    scripts.push_back(std::move(script));
  }
  std::optional<LogitTable> want;
  const Plan halves{.order = OrderTable::builtin().find("four-phase")};
  const PlayOptions ways[] = {{},
                              {.chunk_tokens = 17},
                              {.chunk_tokens = 50, .max_together = 8},
                              {.plan = halves},
                              {.chunk_tokens = 17, .plan = halves},
                              {.chunk_tokens = 50, .max_together = 8, .plan = halves}};
  for (const int page : {1, 16, 32, 128}) {
    ServerSettings settings = base_settings(GetParam());
    settings.memory.page_size = page;
    auto runner = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
    ASSERT_TRUE(runner.has_value()) << describe(runner.error());
    for (const PlayOptions& way : ways) {
      const auto got = record_logits(**runner, scripts, way);
      ASSERT_TRUE(got.has_value()) << describe(got.error());
      EXPECT_EQ(got->rows(), num_rows);
      if (!want) want = *got;
      EXPECT_TRUE(same_logits(*got, *want))
          << "page " << page << ", " << describe(way.plan, OrderTable::builtin()) << ", chunks of "
          << way.chunk_tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SameLogits, ::testing::ValuesIn(kForms),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
