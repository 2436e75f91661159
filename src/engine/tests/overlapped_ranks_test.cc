// Tests ranks whose steps overlap: answers have the bits that they have on one rank alone, whatever
// the model, the number of ranks and the order of operations; and drafts wait for no other rank.
#include "base/log.h"
#include "engine/grammar/testing.h"
#include "engine/tests/oracle.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

constexpr int kOverlappedRequests = 12;

ServerSettings overlapped_settings(const Form& form, int num_ranks) {
  ServerSettings settings = settings_of(form, num_ranks);
  settings.parallel.dp_routing = "round-robin";
  settings.scheduler.overlap_schedule = "on";
  return settings;
}

void expect_answers(Service& service, std::vector<RequestInput> inputs,
                    const std::vector<Answer>& want) {
  std::mt19937 random(17);
  std::vector<RequestId> ids;
  for (RequestInput& input : inputs) {
    ids.push_back(*service.submit(std::move(input)));
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 6));
  }
  ASSERT_TRUE(service.read_all());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Answer& got = service.answer(ids[i]);
    ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
  }
}

class OverlappedRanks : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(OverlappedRanks, ChangeNoBitOfAnAnswer) {
  const auto inputs = [] { return traffic(kOverlappedRequests); };
  const std::vector<Answer> want = alone(settings_of(GetParam(), 1), inputs());
  const struct {
    int num_ranks;
    const char *prefill_policy, *overlap;
    double link_latency_us;
  } cases[] = {
      {2, "prefill-first", "none", 0}, {2, "mixed", "two-batch", 100}, {4, "mixed", "auto", 0}};
  for (const auto& one : cases) {
    SCOPED_TRACE(fmt::format("{} ranks, {}, {}", one.num_ranks, one.prefill_policy, one.overlap));
    ServerSettings settings = overlapped_settings(GetParam(), one.num_ranks);
    settings.scheduler.prefill_policy = one.prefill_policy;
    settings.scheduler.chunked_prefill_size = 32;
    settings.parallel.overlap = one.overlap;
    settings.parallel.ep_link_latency_us = one.link_latency_us;
    Service service(settings);
    ASSERT_TRUE(service.works());
    ASSERT_NO_FATAL_FAILURE(expect_answers(service, inputs(), want));
    service.engine().stop();
    const EngineStats stats = service.engine().stats();
    for (const RankStats& rank : stats.ranks) {
      EXPECT_GT(rank.steps.num_overlapped, 0u);
      EXPECT_EQ(rank.scheduler.num_private_pages, 0);
      EXPECT_EQ(rank.overlap.steps, stats.ranks[0].overlap.steps);  // all play the same
      EXPECT_GT(rank.overlap.step_seconds, 0);
    }
  }
}

std::vector<Form> forms_with_experts() {
  std::vector<Form> forms;
  for (const Form& form : kForms)
    if (form.name != std::string_view(kDense.name) &&
        form.name != std::string_view(kDeltaDense.name))
      forms.push_back(form);
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, OverlappedRanks, ::testing::ValuesIn(forms_with_experts()),
                         [](const auto& param) { return std::string(param.param.name); });

// Some ranks draft and others do not: those without overlap their steps with the others' drafts.
TEST(OverlappedRanksTest, DraftsChangeNoBit) {
  log::set_level(log::Level::error);
  const std::vector<RequestInput> inputs = traffic(kOverlappedRequests);
  const std::vector<Answer> want = alone(settings_of(kMoe, 1), inputs);
  const Texts texts = texts_of(inputs, want);
  for (const bool all_draft : {true, false}) {
    ServerSettings settings = overlapped_settings(kMoe, 2);
    settings.speculation = {.algorithm = "NGRAM", .num_steps = 3};
    Engine::Options options{.settings = settings};
    options.drafter = [&texts, all_draft](int rank, int num_seats) {
      static const Texts kNone;
      return std::make_unique<Oracle>(all_draft || rank == 0 ? texts : kNone, Oracle::Options(),
                                      num_seats);
    };
    Service service(std::move(options));
    ASSERT_TRUE(service.works());
    ASSERT_NO_FATAL_FAILURE(expect_answers(service, inputs, want));
    const EngineStats stats = service.engine().stats();
    EXPECT_GT(stats.ranks[0].scheduler.num_verified_total, 0u);
    EXPECT_EQ(stats.ranks[1].scheduler.num_verified_total > 0, all_draft);
  }
  log::set_level(log::Level::info);
}

// Forced tokens need steps that do not overlap, on whichever rank the request with a grammar is.
TEST(OverlappedRanksTest, MeasuringStopsForAGrammarOnAnyRank) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  for (const bool has_grammar : {false, true}) {
    ServerSettings settings = overlapped_settings(kBundled, 2);
    settings.scheduler.overlap_schedule = "auto";
    settings.model.context_length = 1024;
    Service service(model.options(settings));
    ASSERT_TRUE(service.works());
    const auto input = [&](int seed, int max_new) {
      RequestInput made = greedy_input(random_tokens(seed, 20), max_new);
      if (seed == 2 && has_grammar)
        made = grammar_input(random_tokens(seed, 20), GrammarKind::regex, "[a-z ]*Q", max_new);
      made.sampling.ignore_eos = true;
      return made;
    };
    const RequestId on_rank_0 = *service.submit(input(1, 600));
    const RequestId on_rank_1 = *service.submit(input(2, 900));
    ASSERT_TRUE(service.read_until([&] { return service.answer(on_rank_0).done; }));
    const EngineStats stats = service.engine().stats();
    ASSERT_FALSE(service.answer(on_rank_1).done);
    ASSERT_GT(stats.ranks[1].steps.num_decode, 300u);
    for (const RankStats& rank : stats.ranks)
      EXPECT_EQ(rank.steps.num_overlapped > 0, !has_grammar);
  }
  log::set_level(log::Level::info);
}

// One rank's last answer has drafts to its end, and the other one continues without any.
TEST(OverlappedRanksTest, ARankWithoutAnswersKeepsNoOtherFromOverlap) {
  log::set_level(log::Level::error);
  constexpr int kMaxTokens = 1024;
  const auto input = [](int seed, int max_new) {
    RequestInput made = greedy_input(random_tokens(seed, 20), max_new);
    made.sampling.ignore_eos = true;
    return made;
  };
  const std::vector<RequestInput> inputs = {input(1, 200), input(2, 900)};
  ServerSettings one = settings_of(kBundled, 1);
  one.model.context_length = kMaxTokens;
  const std::vector<Answer> want = alone(one, inputs);
  const Texts texts = texts_of(inputs, want), none;
  ServerSettings settings = overlapped_settings(kBundled, 2);
  settings.scheduler.overlap_schedule = "auto";
  settings.model.context_length = kMaxTokens;
  settings.speculation.algorithm = "NGRAM";
  CallClock clock;
  Engine::Options options{.settings = settings, .clock = &clock, .stall_timeout = kPatience};
  options.drafter = [&](int rank, int num_seats) {
    return std::make_unique<Oracle>(rank == 0 ? texts : none, Oracle::Options{.right_of_ten = 10},
                                    num_seats);
  };
  Service service(std::move(options));
  ASSERT_TRUE(service.works());
  const RequestId on_rank_0 = *service.submit(inputs[0]);
  const RequestId on_rank_1 = *service.submit(inputs[1]);
  ASSERT_TRUE(service.read_until([&] { return service.answer(on_rank_0).done; }));
  const EngineStats before = service.engine().stats();
  EXPECT_GT(before.ranks[0].scheduler.num_verified_total, 20u);
  EXPECT_EQ(before.ranks[1].scheduler.num_verified_total, 0u);
  ASSERT_FALSE(service.answer(on_rank_1).done);
  ASSERT_TRUE(service.read_all());
  service.engine().stop();
  const EngineStats after = service.engine().stats();
  EXPECT_GT(after.ranks[1].steps.num_overlapped, before.ranks[1].steps.num_overlapped);
  ASSERT_NO_FATAL_FAILURE(expect_same(service.answer(on_rank_0), want[0]));
  ASSERT_NO_FATAL_FAILURE(expect_same(service.answer(on_rank_1), want[1]));
  log::set_level(log::Level::info);
}

// Steps overlap by turns while it is measured whether that pays, on all ranks at the same time;
// also where a drafter is asked, which has no guess.
TEST(OverlappedRanksTest, MeasuringChangesNoBit) {
  log::set_level(log::Level::error);
  const auto inputs = [] {
    std::vector<RequestInput> all;
    for (int i = 0; i < 4; ++i) all.push_back(long_one(i));
    return all;
  };
  const std::vector<Answer> want = alone(settings_of(kMoe, 1), inputs());
  const Texts none;
  for (const auto& [num_ranks, is_asked] :
       {std::pair(1, false), std::pair(1, true), std::pair(2, false), std::pair(2, true)}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", num_ranks, is_asked));
    ServerSettings settings = overlapped_settings(kMoe, num_ranks);
    settings.scheduler.overlap_schedule = "auto";
    Engine::Options options{.settings = settings};
    if (is_asked) {
      settings.speculation.algorithm = "NGRAM";
      options = with_oracle(settings, none, {});
    }
    Service service(std::move(options));
    ASSERT_TRUE(service.works());
    constexpr int kRounds = 5;  // each has 200 steps
    for (int round = 0; round < kRounds; ++round)
      ASSERT_NO_FATAL_FAILURE(expect_answers(service, inputs(), want));
    service.engine().stop();
    const EngineStats stats = service.engine().stats();
    for (const RankStats& rank : stats.ranks) {
      EXPECT_GT(rank.steps.num_overlapped, 100u);
      EXPECT_GT(rank.steps.num_decode - rank.steps.num_overlapped, 300u);
      EXPECT_EQ(rank.scheduler.num_private_pages, 0);
    }
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
