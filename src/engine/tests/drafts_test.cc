// Tests that drafts change no bit of an answer: whoever guesses, however many guesses hold, and
// however their rows are scheduled.
#include <functional>

#include "base/clock_testing.h"
#include "base/log.h"
#include "compute/overlap/order_table.h"
#include "engine/tests/oracle.h"
#include "engine/tests/service.h"
#include "policy/scheduler/draft_figures.h"

namespace hocket {
namespace {

using namespace testing;

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

struct DraftVariant {
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

const DraftVariant kDraftWays[] = {
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
    {"three, overlapped", 3, [](auto& s) { s.scheduler.overlap_schedule = "on"; }},
    {"two, retractions, mixed, overlapped, two threads", 2,
     [](auto& s) {
       leave_few_pages(s);
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.chunked_prefill_size = 48;
       s.scheduler.overlap_schedule = "on";
       s.compute.num_threads = 2;
     },
     true},
};

class Drafts : public ::testing::TestWithParam<Form> {};

TEST_P(Drafts, ChangeNoBit) {
  log::set_level(log::Level::error);
  const ServerSettings settings = base_settings(GetParam());
  const std::vector<RequestInput> inputs = drafted_traffic(GetParam());
  const std::vector<Answer> want = alone(settings, inputs);
  const auto texts = texts_of(inputs, want);
  for (const DraftVariant& way : kDraftWays) {
    SCOPED_TRACE(way.name);
    ServerSettings changed = settings;
    changed.speculation = {.algorithm = "NGRAM", .num_steps = way.num_drafts};
    way.change(changed);
    auto engine = Engine::create(with_oracle(changed, texts, {.right_of_ten = 7}));
    ASSERT_TRUE(engine.has_value()) << describe(engine.error());
    expect_equal_answers(run_all(**engine, inputs), want);
    const SchedulerStats stats = (*engine)->stats().scheduler;
    EXPECT_GT(num_held_of(stats), 20u);
    EXPECT_GT(num_drafts_of(stats), num_held_of(stats) + 20);
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

// Guesses of the request's own text, with a fixed number and with one that is chosen by a clock by
// which drafts cost nothing.
TEST(Drafts, OfTheOwnTextChangeNoBit) {
  log::set_level(log::Level::error);
  const ServerSettings settings = base_settings(kBundled);
  const std::vector<RequestInput> inputs = drafted_traffic(kBundled);
  const std::vector<Answer> want = alone(settings, inputs);
  for (const int num_drafts : {0, 2, 8})
    for (const char* overlaps : {"off", "on"}) {
      SCOPED_TRACE(fmt::format("{} drafts, overlapped: {}", num_drafts, overlaps));
      ServerSettings changed = settings;
      changed.speculation = {.algorithm = "NGRAM", .num_steps = num_drafts};
      changed.scheduler.overlap_schedule = overlaps;
      FakeClock clock;
      const auto engine = make_engine(changed, &clock);
      ASSERT_NE(engine, nullptr);
      expect_equal_answers(run_all(*engine, inputs, &clock), want);
      const SchedulerStats stats = engine->stats().scheduler;
      EXPECT_GT(stats.num_verified_total, 20u);
      EXPECT_GE(num_depths(stats), 2);
    }
  log::set_level(log::Level::info);
}

// Returns every value of --overlap: the kinds, and each order of the files.
std::vector<std::string_view> draft_orders() {
  std::vector<std::string_view> all = {"none", "single-batch", "two-batch", "auto"};
  const OrderTable& orders = OrderTable::builtin();
  for (int i = 0; i < orders.size(); ++i) all.push_back(orders.at(i).name);
  return all;
}

struct RanksVariant {
  int num_ranks, num_drafts;
  std::string_view overlap;
};

// Returns every order on two ranks, and one to four drafts on one, two and four ranks.
std::vector<RanksVariant> ways_of_ranks() {
  std::vector<RanksVariant> ways;
  for (int k = 1; k <= 4; ++k) {
    ways.push_back({1, k, "none"});
    ways.push_back({4, k, k % 2 == 0 ? "two-batch" : "auto"});
  }
  int num_drafts = 0;
  for (const std::string_view overlap : draft_orders())
    ways.push_back({2, 1 + num_drafts++ % 4, overlap});
  return ways;
}

// With some ranks that draft and others that do not, too.
TEST(Drafts, ChangeNoBitOnAnyNumberOfRanks) {
  log::set_level(log::Level::error);
  for (const Form& form : {kMoe, kDelta}) {
    const std::vector<RequestInput> inputs = drafted_traffic(form);
    const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
    const auto texts = texts_of(inputs, want);
    for (const auto& [num_ranks, num_drafts, overlap] : ways_of_ranks()) {
      SCOPED_TRACE(
          fmt::format("{}, {} ranks, {} drafts, {}", form.name, num_ranks, num_drafts, overlap));
      ServerSettings settings = settings_of(form, num_ranks);
      settings.parallel.overlap = overlap;
      settings.parallel.dp_routing = "round-robin";
      settings.speculation = {.algorithm = "NGRAM", .num_steps = num_drafts};
      Engine::Options options{.settings = settings};
      options.drafter = [&texts, of = num_ranks](int rank, int num_seats) {
        static const Texts kNone;
        const bool drafts = of < 4 || rank % 2 == 0;
        return std::make_unique<Oracle>(drafts ? texts : kNone, Oracle::Options(), num_seats);
      };
      Service service(std::move(options));
      ASSERT_TRUE(service.works());
      std::vector<RequestId> ids;
      for (const RequestInput& input : inputs) ids.push_back(*service.submit(input));
      ASSERT_TRUE(service.read_all());
      std::vector<Answer> got;
      for (const RequestId id : ids) got.push_back(service.answer(id));
      ASSERT_NO_FATAL_FAILURE(expect_equal_answers(got, want));
      const EngineStats stats = service.engine().stats();
      EXPECT_GT(num_held_of(stats.scheduler), num_drafts == 1 ? 20u : 50u);
      EXPECT_GT(stats.scheduler.drafted_total[static_cast<size_t>(num_drafts - 1)], 0u);
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
  auto engine = Engine::create(with_oracle(settings, texts, {.right_of_ten = 10}));
  ASSERT_TRUE(engine.has_value()) << describe(engine.error());
  expect_equal_answers(run_all(**engine, inputs), want);
  // The prompt's step gives a token, each of the others five.
  EXPECT_EQ((*engine)->stats().steps.num_decode, 20u);
  const SchedulerStats stats = (*engine)->stats().scheduler;
  EXPECT_EQ(stats.num_verified_total, 20u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(stats.accepted_total[i], 20u);
  log::set_level(log::Level::info);
}

// Plays long answers, and urgent requests that take their places while drafts are verified.
std::vector<Answer> play_preempted(Engine& engine, std::vector<RequestInput> inputs) {
  Outbox outbox(65536);
  std::map<RequestId, Answer> answers;
  std::vector<RequestId> ids;
  for (int step = 0; step < 20'000; ++step) {
    const bool comes = step % 6 == 0 && ids.size() < inputs.size();
    for (int i = 0; i < 2 && comes; ++i) {  // the first of two waits for the second
      RequestInput& input = inputs[ids.size()];
      input.priority = static_cast<int>(10 * ids.size());
      input.id = Engine::next_request_id();
      ids.push_back(input.id);
      EXPECT_TRUE(engine.submit(std::move(input)).has_value());
    }
    const bool worked = engine.step(outbox);
    collect(outbox, answers);
    if (!worked && ids.size() == inputs.size()) break;
  }
  std::vector<Answer> result;
  for (const RequestId id : ids) result.push_back(std::move(answers[id]));
  return result;
}

TEST(Drafts, ChangeNoBitOfPreemptedAnswers) {
  log::set_level(log::Level::error);
  for (const Form& form : {kMoe, kDelta, kMimoInt8Kv})
    for (const char* overlaps : {"off", "on"}) {
      SCOPED_TRACE(fmt::format("{}, overlapped: {}", form.name, overlaps));
      ServerSettings settings = base_settings(form);
      std::vector<RequestInput> inputs;
      for (int i = 0; i < 10; ++i) {
        RequestInput input = greedy_input(random_tokens(940 + i, 6 + 3 * i), 60);
        if (i % 2 == 1) input.sampling.temperature = 0.9, input.sampling.seed = 4;
        input.sampling.ignore_eos = true;
        inputs.push_back(std::move(input));
      }
      const std::vector<Answer> want = alone(settings, inputs);
      const auto texts = texts_of(inputs, want);
      settings.memory.max_running_requests = 2;
      settings.scheduler.enable_priority_scheduling = true;
      settings.scheduler.overlap_schedule = overlaps;
      settings.speculation = {.algorithm = "NGRAM", .num_steps = 3};
      auto engine = Engine::create(with_oracle(settings, texts, {.right_of_ten = 7}));
      ASSERT_TRUE(engine.has_value()) << describe(engine.error());
      expect_equal_answers(play_preempted(**engine, inputs), want);
      const SchedulerStats stats = (*engine)->stats().scheduler;
      EXPECT_GT(stats.num_preempted_total, 0u);
      EXPECT_GT(num_held_of(stats), 20u);
      EXPECT_EQ(stats.num_private_pages, 0);
    }
  log::set_level(log::Level::info);
}

// An answer that was given before is drafted from the tree of prefixes, but not for a client with a
// namespace of its own.
TEST(Drafts, OfEarlierAnswersSaveSteps) {
  log::set_level(log::Level::error);
  for (const Form& form : {kMoe, kDelta, kMimo}) {
    SCOPED_TRACE(form.name);
    ServerSettings settings = base_settings(form);
    settings.memory.page_size = 16;
    RequestInput input = greedy_input(random_tokens(930, 40), 80);
    input.sampling.temperature = 1.5;  // too random to be drafted from itself
    input.sampling.seed = 4;
    input.sampling.ignore_eos = true;
    const std::vector<Answer> want = alone(settings, {input});
    settings.speculation = {.algorithm = "NGRAM", .num_steps = 4};
    const auto engine = make_engine(settings);
    ASSERT_NE(engine, nullptr);
    const auto held_in = [&](uint64_t name_space) {
      const uint64_t before = num_held_of(engine->stats().scheduler);
      RequestInput again = input;
      again.cache_namespace = name_space;
      expect_equal_answers(run_all(*engine, {again}), want);
      return num_held_of(engine->stats().scheduler) - before;
    };
    EXPECT_LT(held_in(0), 10u);
    EXPECT_GT(held_in(0), 40u);
    EXPECT_LT(held_in(1), 10u);
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
