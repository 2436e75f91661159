// Tests the record of chosen experts: by hand, and on whole engines, where it must count every row.
#include "engine/stats/expert_stats.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <thread>

#include "base/log.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLayers = 2, kExperts = 4;  // experts 0, 1 on rank 0, 2 and 3 on rank 1

class ExpertStatsTest : public ::testing::Test {
 protected:
  // Notes a pass whose rows chose experts as `counts` says.
  void play(std::vector<uint32_t> counts, int num_tokens = 1, uint64_t step = 0, int rank = 0) {
    ExpertPass pass{.rank = rank,
                    .step = step,
                    .num_tokens = num_tokens,
                    .counts = std::vector<uint32_t>(stats_.num_counts(), 77)};
    const View<uint32_t> out = stats_.open(pass);
    ASSERT_EQ(out.rows > 0, stats_.recording());
    if (out.rows > 0) {
      ASSERT_EQ(out.rows, kLayers);
      ASSERT_EQ(out.cols, kExperts);
      for (size_t i = 0; i < counts.size(); ++i) out.data[i] += counts[i];
    }
    stats_.note(pass);
  }

  const Placement placement_ = *Placement::contiguous(kExperts, 2);
  ExpertStats stats_{kLayers, placement_, 0};
};

TEST_F(ExpertStatsTest, AddsUpWhatPassesCounted) {
  play({1, 1, 1, 1, 1, 1, 1, 1});  // before start()
  ASSERT_TRUE(stats_.start({}).has_value());
  play({1, 2, 3, 4, 0, 0, 5, 1}, 5);
  play({1, 0, 0, 0, 0, 0, 0, 1}, 1);
  ASSERT_TRUE(stats_.stop().has_value());
  play({9, 9, 9, 9, 9, 9, 9, 9});
  const Result<ExpertRecord> record = stats_.take();
  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(record->counts, ElementsAre(2, 2, 3, 4, 0, 0, 5, 2));
  EXPECT_THAT(record->rank_counts, ElementsAre(4, 7, 0, 7));
  EXPECT_EQ(record->num_steps, 2u);
  EXPECT_EQ(record->num_tokens, 6u);
  EXPECT_EQ(record->num_kept(), 0);
}

TEST_F(ExpertStatsTest, KeepsTheNewestPasses) {
  ASSERT_TRUE(stats_.start({ExpertRecordMode::per_pass, 3}).has_value());
  for (uint32_t i = 1; i <= 5; ++i)
    play({i, 0, 0, 0, 0, 0, 0, 10 * i}, static_cast<int>(i), i == 4 ? 40 : 0, i == 4 ? 1 : 0);
  const ExpertRecord record = *stats_.take();
  EXPECT_THAT(record.counts, ElementsAre(15, 0, 0, 0, 0, 0, 0, 150));
  ASSERT_EQ(record.num_kept(), 3);
  for (int i = 0; i < 3; ++i) {
    const auto n = static_cast<uint32_t>(i + 3);
    EXPECT_EQ(record.pass(i).num_tokens, i + 3);
    EXPECT_EQ(record.pass(i).rank, n == 4 ? 1 : 0);
    EXPECT_EQ(record.pass(i).step, n == 4 ? 40u : n - 1);
    EXPECT_THAT(record.counts_of_pass(i), ElementsAre(n, 0, 0, 0, 0, 0, 0, 10 * n));
  }
}

TEST_F(ExpertStatsTest, ARecordIsTakenOnceAndGoesOnUntilItIsStopped) {
  const auto told = [](const auto& result) {
    return result ? std::string("nothing") : result.error().message;
  };
  EXPECT_EQ(told(stats_.stop()), "nothing is being recorded");
  EXPECT_THAT(told(stats_.take()), HasSubstr("there is no record"));
  ASSERT_TRUE(stats_.start({ExpertRecordMode::per_pass, 2}).has_value());
  play({1, 0, 0, 0, 1, 0, 0, 0});
  EXPECT_EQ(stats_.take()->num_steps, 1u);
  play({0, 1, 0, 0, 0, 1, 0, 0});
  play({0, 1, 0, 0, 0, 1, 0, 0});
  EXPECT_EQ(stats_.take()->num_kept(), 2);
  EXPECT_THAT(stats_.take()->counts, Each(0u));
  play({0, 1, 0, 0, 0, 1, 0, 0});
  ASSERT_TRUE(stats_.start({}).has_value());  // begins a new record
  EXPECT_THAT(stats_.take()->counts, Each(0u));
  ASSERT_TRUE(stats_.stop().has_value());
  EXPECT_EQ(told(stats_.stop()), "nothing is being recorded");
  EXPECT_TRUE(stats_.take().has_value());
  EXPECT_THAT(told(stats_.take()), HasSubstr("dumped already"));
}

TEST_F(ExpertStatsTest, APassOfAnOlderRecordIsNotCounted) {
  ASSERT_TRUE(stats_.start({}).has_value());
  ExpertPass pass{.num_tokens = 1, .counts = std::vector<uint32_t>(stats_.num_counts())};
  std::ranges::fill(std::span(stats_.open(pass).data, pass.counts.size()), 1);
  ASSERT_TRUE(stats_.stop().has_value());
  stats_.note(pass);
  ASSERT_TRUE(stats_.start({}).has_value());
  stats_.note(pass);
  EXPECT_EQ(stats_.take()->num_steps, 0u);
  EXPECT_THAT(stats_.balance().rank_tokens, Each(0u));
}

TEST_F(ExpertStatsTest, APassWithoutRowsIsNone) {
  ASSERT_TRUE(stats_.start({}).has_value());
  ExpertPass pass{.num_tokens = 0, .counts = std::vector<uint32_t>(stats_.num_counts())};
  EXPECT_EQ(stats_.open(pass).rows, 0);
  stats_.note(pass);
  EXPECT_EQ(stats_.take()->num_steps, 0u);
}

TEST_F(ExpertStatsTest, PassesThatAreKeptHaveALimit) {
  const Placement many = *Placement::contiguous(256, 8);
  ExpertStats large(61, many, 0);
  const auto refused = large.start({ExpertRecordMode::per_pass, 269});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "buffer_size is 269, must be 1 to 268: a pass of this model has 15616 counts");
  EXPECT_FALSE(large.start({ExpertRecordMode::per_pass, -1}).has_value());
  EXPECT_FALSE(large.recording());
  ASSERT_TRUE(large.start({ExpertRecordMode::per_pass}).has_value());
  EXPECT_EQ(large.take()->passes.size(), 268u);
}

TEST_F(ExpertStatsTest, HowEvenLoadsAre) {
  const auto of = [](std::vector<uint64_t> loads) { return balancedness(loads); };
  EXPECT_EQ(of({3, 3, 3}), 1.0);
  EXPECT_EQ(of({0, 0, 8, 0}), 0.25);
  EXPECT_EQ(of({1, 3}), 2.0 / 3);
  EXPECT_EQ(of({0, 0}), std::nullopt);
  // A layer without experts does not count.
  EXPECT_EQ(balancedness(std::vector<uint64_t>{4, 4, 0, 0, 0, 8}, 2), 0.75);
  EXPECT_EQ(balancedness(std::vector<uint64_t>{0, 0}, 2), std::nullopt);

  EXPECT_EQ(stats_.balance().balancedness, 0);
  ASSERT_TRUE(stats_.start({}).has_value());
  play({1, 2, 1, 0, 4, 0, 0, 0});
  EXPECT_EQ(stats_.balance().balancedness, (2.0 / 3 + 0.5) / 2);
  EXPECT_THAT(stats_.balance().rank_tokens, ElementsAre(7, 1));
  ASSERT_TRUE(stats_.stop().has_value());
  ASSERT_TRUE(stats_.take().has_value());
  EXPECT_EQ(stats_.balance().balancedness, 0);
  EXPECT_THAT(stats_.balance().rank_tokens, ElementsAre(7, 1));  // never falls
}

// Traffic for whole engines: prompts without a common beginning, so that nothing is cached.
std::vector<RequestInput> uncached_traffic(int count) {
  std::vector<RequestInput> inputs;
  for (int i = 0; i < count; ++i) {
    inputs.push_back(greedy_input(random_tokens(300 + i, 3 + 17 * (i % 4)), 5 + 3 * (i % 3)));
    inputs.back().sampling.ignore_eos = true;
  }
  return inputs;
}

// Returns the rows of the requests: prompts, and all generated tokens except the last.
uint64_t rows_of(const std::vector<RequestInput>& inputs) {
  uint64_t rows = 0;
  for (const RequestInput& input : inputs)
    rows += input.prompt.size() + static_cast<uint64_t>(input.sampling.max_new_tokens) - 1;
  return rows;
}

ExpertRecord record_of(const Form& form, int num_ranks, const char* overlap,
                       std::vector<Answer>* answers = nullptr) {
  ServerSettings settings = base_settings(form);
  settings.parallel.ep_size = num_ranks;
  settings.parallel.dp_routing = "round-robin";
  settings.compute.num_threads = 1;
  settings.scheduler.chunked_prefill_size = 32;
  settings.scheduler.overlap_schedule = overlap;
  const auto engine = make_engine(settings);
  HOCKET_CHECK(engine != nullptr);
  ExpertStats& stats = *engine->parts().expert_stats;
  HOCKET_CHECK(stats.start({ExpertRecordMode::per_pass}).has_value());
  Outbox outbox(65536);
  engine->start(outbox);
  std::map<RequestId, Answer> got;
  std::vector<RequestId> ids;
  for (RequestInput& input : uncached_traffic(8)) {
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    HOCKET_CHECK(engine->submit(std::move(input)).has_value());
  }
  const TimePoint deadline = RealClock().now() + std::chrono::seconds(60);
  const auto all_done = [&] {
    return std::ranges::all_of(ids, [&](RequestId id) { return got[id].done; });
  };
  for (collect(outbox, got); !all_done(); collect(outbox, got)) {
    HOCKET_CHECK(RealClock().now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const RequestId id : ids)
    EXPECT_EQ(got[id].summary.finish, FinishReason::length) << got[id].summary.error.message;
  HOCKET_CHECK(stats.stop().has_value());
  engine->stop();
  if (answers != nullptr)
    for (const RequestId id : ids) answers->push_back(std::move(got[id]));
  return *stats.take();
}

class ExpertRecordOfEngine : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(ExpertRecordOfEngine, CountsEveryRowOnceForEachOfItsExperts) {
  const ExpertRecord record = record_of(GetParam(), 1, "off");
  const auto engine = make_engine(base_settings(GetParam()));
  const ModelConfig& model = engine->info().model;
  EXPECT_EQ(record.num_tokens, rows_of(uncached_traffic(8)));
  ASSERT_EQ(record.num_layers, model.num_layers);
  ASSERT_EQ(record.num_experts, model.moe.num_experts);
  const auto sum = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  for (int layer = 0; layer < model.num_layers; ++layer) {
    const auto row = std::span(record.counts)
                         .subspan(static_cast<size_t>(layer * record.num_experts),
                                  static_cast<size_t>(record.num_experts));
    const bool has_experts = model.layer_is_moe[static_cast<size_t>(layer)];
    EXPECT_EQ(sum(row), has_experts ? record.num_tokens * model.moe.top_k : 0) << layer;
    // Each row chooses an expert at most once.
    for (const uint64_t count : row) EXPECT_LE(count, record.num_tokens);
  }
  ASSERT_EQ(static_cast<uint64_t>(record.num_kept()), record.num_steps);
  std::vector<uint64_t> of_passes(record.counts.size());
  uint64_t num_tokens = 0;
  for (int i = 0; i < record.num_kept(); ++i) {
    num_tokens += static_cast<uint64_t>(record.pass(i).num_tokens);
    const auto counts = record.counts_of_pass(i);
    for (size_t c = 0; c < counts.size(); ++c) of_passes[c] += counts[c];
  }
  EXPECT_EQ(of_passes, record.counts);
  EXPECT_EQ(num_tokens, record.num_tokens);
}

TEST_P(ExpertRecordOfEngine, RanksAddUpToWhatOneRankCounts) {
  const ExpertRecord one = record_of(GetParam(), 1, "off");
  for (const int num_ranks : {2, 4}) {
    const ExpertRecord many = record_of(GetParam(), num_ranks, "off");
    EXPECT_EQ(many.counts, one.counts);
    EXPECT_EQ(many.num_tokens, one.num_tokens);
    std::vector<uint64_t> by_rank(static_cast<size_t>(one.num_layers * num_ranks));
    for (size_t i = 0; i < one.counts.size(); ++i)
      by_rank[i * static_cast<size_t>(num_ranks) / static_cast<size_t>(one.num_experts)] +=
          one.counts[i];
    EXPECT_EQ(many.rank_counts, by_rank);
    std::set<int> ranks;
    for (int i = 0; i < many.num_kept(); ++i) ranks.insert(many.pass(i).rank);
    EXPECT_EQ(static_cast<int>(ranks.size()), num_ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertRecordOfEngine, ::testing::Values(kBundled, kMla),
                         [](const auto& param) { return std::string(param.param.name); });

// With overlapped scheduling, rows beyond the end of an answer are computed and counted as well.
TEST(ExpertRecordOverlapped, ChangesNoBitAndCountsWhatWasComputed) {
  log::set_level(log::Level::error);
  std::vector<Answer> answers;
  const ExpertRecord record = record_of(kBundled, 1, "on", &answers);
  ServerSettings settings = base_settings(kBundled);
  const std::vector<Answer> want = alone(settings, uncached_traffic(8));  // without a record
  ASSERT_EQ(answers.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(expect_same(answers[i], want[i]));
  EXPECT_GE(record.num_tokens, rows_of(uncached_traffic(8)));
  EXPECT_LE(record.num_tokens, rows_of(uncached_traffic(8)) + answers.size());
  log::set_level(log::Level::info);
}

TEST(ExpertRecordOfADenseModel, IsNotThere) {
  const auto engine = make_engine(base_settings(kDense));
  EXPECT_EQ(engine->parts().expert_stats, nullptr);
  EXPECT_FALSE(engine->stats().experts.has_value());
}

}  // namespace
}  // namespace hocket
