// Tests that drafts change no bit of an answer: whoever guesses, however many guesses hold, and
// however their rows are scheduled.
#include <atomic>
#include <functional>
#include <random>

#include "base/log.h"
#include "engine/tests/service.h"
#include "policy/speculation/drafter.h"

namespace hocket {
namespace {

using namespace testing;

// Knows the answers, and guesses wrongly now and then.
class Oracle final : public Drafter {
 public:
  // texts: prompts with their answers. right_of_ten: how many guesses are right.
  Oracle(const std::vector<std::vector<TokenId>>& texts, int right_of_ten, int num_seats)
      : texts_(texts), right_of_ten_(right_of_ten), drafts_(static_cast<size_t>(num_seats)) {}

  void begin(int, int) override {}
  void end(int) override {}
  bool is_free() const override { return true; }
  void draft(std::span<DraftAsk> asks) override {
    for (DraftAsk& ask : asks) ask.drafts = guess(ask);
  }

 private:
  std::span<const TokenId> guess(const DraftAsk& ask) {
    auto& drafts = drafts_.at(static_cast<size_t>(ask.seat));
    for (const std::vector<TokenId>& text : texts_) {
      if (text.size() <= ask.tokens.size() ||
          !std::ranges::equal(std::span(text).first(ask.tokens.size()), ask.tokens))
        continue;
      for (size_t i = 0; std::cmp_less(i, ask.most); ++i) {
        const size_t at = std::min(ask.tokens.size() + i, text.size() - 1);
        const bool right = static_cast<int>(random_() % 10) < right_of_ten_;
        drafts[i] = right ? text[at] : TokenId{static_cast<int>(random_() % kVocabulary)};
      }
      return std::span(drafts).first(static_cast<size_t>(ask.most));
    }
    return {};
  }

  const std::vector<std::vector<TokenId>>& texts_;
  const int right_of_ten_;
  std::mt19937 random_{5};
  std::vector<std::array<TokenId, kMostDrafts>> drafts_;
};

// Makes answers of every kind of sampling, with everything that ends one.
std::vector<RequestInput> drafted_traffic(const Form& form) {
  std::vector<RequestInput> inputs = traffic(14);
  for (size_t i = 0; i < inputs.size(); ++i) {
    SamplingParams& p = inputs[i].sampling;
    if (i % 3 == 0) p.repetition_penalty = 1.2, p.presence_penalty = -0.4;
    if (i % 4 == 1) p.top_p = 0.9, p.top_k = 30;
    if (i % 4 == 2) p.logit_bias = {{TokenId{3}, 2.0F}, {TokenId{9}, -5.0F}};
    if (i % 5 == 0) {
      for (int token = static_cast<int>(i) % 7; token < kVocabulary; token += 7)
        p.stop_ids.push_back(TokenId{token});
      p.min_new_tokens = std::min(p.max_new_tokens, 9);
    }
    p.return_routed_experts = i % 6 == 5 && form.model != kDense.model;
  }
  for (int i = 0; i < 2; ++i) {  // long enough to cross borders of states, pages and windows
    RequestInput input = greedy_input(random_tokens(900 + i, 5 + i), 150);
    input.sampling.ignore_eos = true;
    input.sampling.frequency_penalty = 0.1;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<std::vector<TokenId>> texts_of(const std::vector<RequestInput>& inputs,
                                           const std::vector<Answer>& answers) {
  std::vector<std::vector<TokenId>> texts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<TokenId>& text = texts.emplace_back(inputs[i].prompt);
    for (const int token : answers[i].tokens) text.push_back(TokenId{token});
  }
  return texts;
}

Engine::Options with_oracle(const ServerSettings& settings,
                            const std::vector<std::vector<TokenId>>& texts, int right_of_ten) {
  Engine::Options options{.settings = settings};
  options.drafter = [&texts, right_of_ten](int /*rank*/, int num_seats) {
    return std::make_unique<Oracle>(texts, right_of_ten, num_seats);
  };
  return options;
}

void expect_same_answers(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(got[i].summary.finish, want[i].summary.finish) << got[i].summary.error.message;
    EXPECT_EQ(got[i].summary.matched_stop, want[i].summary.matched_stop);
    EXPECT_EQ(got[i].summary.generated_tokens, std::ssize(got[i].tokens));
    ASSERT_NO_FATAL_FAILURE(expect_same(got[i], want[i]));
    const auto &seen = got[i].summary.routed, &expected = want[i].summary.routed;
    ASSERT_EQ(seen == nullptr, expected == nullptr);
    if (seen != nullptr) {
      EXPECT_EQ(seen->ids, expected->ids);
    }
  }
}

uint64_t sum(const std::array<uint64_t, kMostDrafts>& counts) {
  uint64_t all = 0;
  for (const uint64_t count : counts) all += count;
  return all;
}

struct DraftWay {
  const char* name;
  int num_drafts;
  std::function<void(ServerSettings&)> change;
  bool retracts = false;
};

void leave_few_pages(ServerSettings& s) {
  s.memory.max_total_tokens = 256;
  s.memory.page_size = 16;
  s.scheduler.schedule_conservativeness = 0.01;
}

const DraftWay kDraftWays[] = {
    {"one, prefill first", 1,
     [](auto& s) {
       s.scheduler.prefill_policy = "prefill-first";
       s.scheduler.chunked_prefill_size = 64;
     }},
    {"two, mixed, short chunks", 2,
     [](auto& s) {
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.chunked_prefill_size = 32;
     }},
    {"three, retractions", 3, leave_few_pages, true},
    {"four, retractions, mixed", 4,
     [](auto& s) {
       leave_few_pages(s);
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.chunked_prefill_size = 48;
     },
     true},
    {"eight, one at a time, two threads", 8,
     [](auto& s) {
       s.memory.max_running_requests = 1;
       s.compute.num_threads = 2;
     }},
};

class Drafts : public ::testing::TestWithParam<Form> {};

TEST_P(Drafts, ChangeNoBit) {
  log::set_level(log::Level::error);
  const ServerSettings settings = base_settings(GetParam());
  const std::vector<RequestInput> inputs = drafted_traffic(GetParam());
  const std::vector<Answer> want = alone(settings, inputs);
  const auto texts = texts_of(inputs, want);
  for (const DraftWay& way : kDraftWays) {
    SCOPED_TRACE(way.name);
    ServerSettings changed = settings;
    changed.speculation = {.algorithm = "NGRAM", .num_steps = way.num_drafts};
    way.change(changed);
    auto engine = Engine::create(with_oracle(changed, texts, 7));
    ASSERT_TRUE(engine.has_value()) << describe(engine.error());
    expect_same_answers(run_all(**engine, inputs), want);
    const SchedulerStats stats = (*engine)->stats().scheduler;
    EXPECT_GT(sum(stats.held_total), 20u);
    EXPECT_GT(sum(stats.drafted_total), sum(stats.held_total) + 20);
    EXPECT_GT(stats.drafted_total[static_cast<size_t>(way.num_drafts - 1)], 0u);
    EXPECT_EQ(stats.num_retracted_total > 0, way.retracts);
    EXPECT_EQ(stats.num_private_pages, 0);
  }
  log::set_level(log::Level::info);
}

constexpr const Form* kDraftForms[] = {&kMoe,        &kDense,  &kMla,    &kDelta, &kMimoInt8Kv,
                                       &kKimiLinear, &kLlama4, &kInt8Kv, &kGemma4};
std::vector<Form> draft_forms() {
  std::vector<Form> forms;
  for (const Form* form : kDraftForms) forms.push_back(*form);
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, Drafts, ::testing::ValuesIn(draft_forms()),
                         [](const auto& param) { return std::string(param.param.name); });

// Guesses of the request's own text, with a fixed number and with one that is chosen.
TEST(Drafts, OfTheOwnTextChangeNoBit) {
  log::set_level(log::Level::error);
  const ServerSettings settings = base_settings(kBundled);
  const std::vector<RequestInput> inputs = drafted_traffic(kBundled);
  const std::vector<Answer> want = alone(settings, inputs);
  for (const int num_drafts : {0, 2, 8}) {
    SCOPED_TRACE(num_drafts);
    ServerSettings changed = settings;
    changed.speculation = {.algorithm = "NGRAM", .num_steps = num_drafts};
    const auto engine = make_engine(changed);
    ASSERT_NE(engine, nullptr);
    expect_same_answers(run_all(*engine, inputs), want);
    const uint64_t num_verified = engine->stats().scheduler.num_verified_total;
    EXPECT_TRUE(num_drafts == 0 || num_verified > 20) << num_verified;
  }
  log::set_level(log::Level::info);
}

// With some ranks that draft and others that do not, too.
TEST(Drafts, ChangeNoBitOnAnyNumberOfRanks) {
  log::set_level(log::Level::error);
  for (const Form& form : {kMoe, kDelta}) {
    const std::vector<RequestInput> inputs = drafted_traffic(form);
    const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
    const auto texts = texts_of(inputs, want);
    for (const int num_ranks : {1, 2, 4})
      for (const char* overlap : {"none", "two-batch", "auto"}) {
        if (num_ranks == 1 && std::string_view(overlap) != "none") continue;
        SCOPED_TRACE(fmt::format("{}, {} ranks, {}", form.name, num_ranks, overlap));
        ServerSettings settings = settings_of(form, num_ranks);
        settings.parallel.overlap = overlap;
        settings.parallel.dp_routing = "round-robin";
        settings.speculation = {.algorithm = "NGRAM", .num_steps = 3};
        Engine::Options options = with_oracle(settings, texts, 8);
        options.drafter = [&texts, num_ranks](int rank, int num_seats) {
          const int right_of_ten = 8;
          static const std::vector<std::vector<TokenId>> kNone;
          const bool drafts = num_ranks < 4 || rank % 2 == 0;
          return std::make_unique<Oracle>(drafts ? texts : kNone, right_of_ten, num_seats);
        };
        Service service(std::move(options));
        ASSERT_TRUE(service.works());
        std::vector<RequestId> ids;
        for (const RequestInput& input : inputs) ids.push_back(*service.submit(input));
        ASSERT_TRUE(service.read_all());
        std::vector<Answer> got;
        for (const RequestId id : ids) got.push_back(service.answer(id));
        ASSERT_NO_FATAL_FAILURE(expect_same_answers(got, want));
        const EngineStats stats = service.engine().stats();
        EXPECT_GT(sum(stats.scheduler.held_total), 50u);
        if (num_ranks == 4) {
          EXPECT_EQ(stats.ranks[1].scheduler.num_verified_total, 0u);
        }
      }
  }
  log::set_level(log::Level::info);
}

TEST(Drafts, ThatHoldSaveSteps) {
  log::set_level(log::Level::error);
  ServerSettings settings = base_settings(kMoe);
  RequestInput input = greedy_input(random_tokens(900, 5), 101);
  input.sampling.ignore_eos = true;
  const std::vector<RequestInput> inputs = {input};
  const std::vector<Answer> want = alone(settings, inputs);
  const auto texts = texts_of(inputs, want);
  settings.speculation = {.algorithm = "NGRAM", .num_steps = 4};
  auto engine = Engine::create(with_oracle(settings, texts, 10));
  ASSERT_TRUE(engine.has_value()) << describe(engine.error());
  expect_same_answers(run_all(**engine, inputs), want);
  // The prompt's step gives a token, each of the others five.
  EXPECT_EQ((*engine)->stats().steps.num_decode, 20u);
  const SchedulerStats stats = (*engine)->stats().scheduler;
  EXPECT_EQ(stats.num_verified_total, 20u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(stats.held_total[i], 20u);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
