// Tests the agreement on moves of experts, with two ranks whose votes the test carries.
#include "engine/balance/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/clock_testing.h"
#include "base/log.h"
#include "engine/rank_setup.h"
#include "engine/tests/folder_copy.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

constexpr int kLookSteps = MovingSteps::kMinLikeSteps + 2;

// The clock of loading stands still, as files do that hang.
std::atomic<bool> files_hang = false;
Duration time_of_files() {
  while (files_hang) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}

// An expert is loaded between two calls, so it takes a second.
Duration a_second_more() {
  thread_local int num_calls = 0;
  time_of_files();
  return std::chrono::seconds(++num_calls);
}

struct VotingRank {
  VotingRank(const ServerSettings& settings, std::unique_ptr<Runner> of, int rank)
      : runner(std::move(of)),
        stats(runner->info().model.num_layers, runner->placement(), rank),
        mover({.model = settings.model,
               .rebalance =
                   rebalancer_of(settings.parallel, runner->choice(), runner->placement().first())
                       .value(),
               .rank = rank,
               .max_retry_time = testing::kPatience,
               .max_expert_time = std::chrono::seconds(2),
               .used_time = a_second_more},
              *runner, stats),
        rebalance({.rank = rank,
                   .num_counts = static_cast<int>(stats.num_counts()),
                   .num_iterations = kLookSteps,
                   .clock = &clock},
                  mover) {}

  const std::unique_ptr<Runner> runner;
  ExpertStats stats;
  ExpertMover mover;
  FakeClock clock;
  Rebalance rebalance;
};

class RebalanceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    ServerSettings settings = testing::settings_of(testing::kBundled, 2);
    settings.model.model_path = copy_.path;
    settings.parallel.enable_eplb = true;
    auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
    ASSERT_TRUE(runners.has_value()) << describe(runners.error());
    for (int rank = 0; rank < 2; ++rank)
      ranks_.push_back(std::make_unique<VotingRank>(
          settings, std::move((*runners)[static_cast<size_t>(rank)]), rank));
  }
  void TearDown() override { log::set_level(log::Level::info); }

  std::array<BalanceVote, 2> votes() {
    return {ranks_[0]->rebalance.vote(), ranks_[1]->rebalance.vote()};
  }
  void agree(const std::array<BalanceVote, 2>& votes) {
    StepReport report{.is_valid = 1, .step_us = 1000};
    report.compute_us[static_cast<size_t>(Op::experts)] = 1e9f;  // any move is worth it
    const std::array<StepReport, 2> reports{report, report};
    for (auto& rank : ranks_) rank->rebalance.agreed(votes, reports, {.computes = true});
  }
  // A step of each rank, whose rows choose rank 0's experts.
  void note_skewed_rows() {
    for (auto& rank : ranks_) {
      ExpertPass pass{.num_tokens = 64, .counts = {}};
      const int num_experts = rank->runner->placement().first().num_experts();
      for (size_t i = 0; i < rank->stats.num_counts(); ++i)
        pass.counts.push_back(static_cast<int>(i) % num_experts < num_experts / 2 ? 64 : 1);
      rank->rebalance.note(pass);
      rank->clock.advance(std::chrono::milliseconds(1));
    }
  }
  // Lets steps go by, in which rows choose rank 0's experts, until both ranks have loaded a layer.
  // Returns the votes that say so; no agreement follows them yet.
  std::array<BalanceVote, 2> votes_of_loaded() {
    const TimePoint deadline = RealClock().now() + testing::kPatience;
    for (;;) {
      note_skewed_rows();
      const auto said = votes();
      if (std::ranges::all_of(said, [](const BalanceVote& one) { return one.num_loaded > 0; }))
        return said;
      if (RealClock().now() > deadline) {
        ADD_FAILURE() << "nothing was loaded";
        return said;
      }
      agree(said);
    }
  }

  static bool eventually(const std::function<bool()>& so) {
    const TimePoint deadline = RealClock().now() + testing::kPatience;
    while (!so() && RealClock().now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return so();
  }

  const testing::FolderCopy copy_{testing::kBundledFolder};
  std::vector<std::unique_ptr<VotingRank>> ranks_;
};

// Files that do not answer end a move on all ranks, and the steps continue.
TEST_F(RebalanceTest, AMoveWhoseFilesHangIsGivenUp) {
  log::set_level(log::Level::off);
  files_hang = true;
  const auto has_failed = [](auto& rank) {
    return rank->mover.stats().last_error.find("not answered") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] {
    note_skewed_rows();
    agree(votes());
    return std::ranges::any_of(ranks_, has_failed);
  }));
  files_hang = false;
  for (auto& rank : ranks_) {
    EXPECT_EQ(rank->rebalance.take_move(), nullptr);
    EXPECT_EQ(rank->rebalance.vote().phase, 0) << "it counts again";
  }
}

TEST_F(RebalanceTest, ALoadedLayerChangesWithTheNextStep) {
  agree(votes_of_loaded());
  for (auto& rank : ranks_) {
    EXPECT_NE(rank->rebalance.take_move(), nullptr);
    EXPECT_EQ(rank->rebalance.take_move(), nullptr);
    rank->rebalance.moved();
  }
}

TEST_F(RebalanceTest, StepsWhileALayerIsLoadedAreComparedWithThoseBefore) {
  agree(votes_of_loaded());
  for (auto& rank : ranks_) {
    const ExpertMoveStats stats = rank->mover.stats();
    EXPECT_GT(stats.steps_total, 0u);
    EXPECT_NEAR(stats.step_seconds_total, 1e-3 * static_cast<double>(stats.steps_total), 1e-9);
    EXPECT_NEAR(stats.usual_seconds_total, stats.step_seconds_total, 1e-9);
  }
}

// Its memory is used again.
TEST_F(RebalanceTest, ALayerThatIsGivenUpDoesNotChange) {
  agree(votes_of_loaded());
  auto other = votes();
  ++other[1].check;
  agree(other);
  for (auto& rank : ranks_) {
    EXPECT_EQ(rank->rebalance.take_move(), nullptr);
    EXPECT_EQ(rank->mover.stats().num_remaining_layers, 0);
  }
}

// A step has its move already, so it changes, and no other follows.
TEST_F(RebalanceTest, ALayerOnItsWayIsTheLastWhenTheOthersAreGivenUp) {
  agree(votes_of_loaded());
  auto other = votes();
  ++other[1].check;
  for (auto& rank : ranks_) {
    EXPECT_GT(rank->mover.stats().num_remaining_layers, 1);
    rank->runner->place(*rank->rebalance.take_move());
  }
  agree(other);
  for (auto& rank : ranks_) {
    EXPECT_EQ(rank->mover.stats().num_remaining_layers, 0);
    rank->rebalance.moved();
    EXPECT_TRUE(eventually([&] { return rank->mover.stats().layers_total == 1; }));
    EXPECT_EQ(rank->mover.stats().num_remaining_layers, 0);
  }
}

// The files are away for a while: the ranks say so, and continue when they are back.
TEST_F(RebalanceTest, ExpertsComeHomeWhenTheFilesAreBack) {
  agree(votes_of_loaded());
  log::set_level(log::Level::off);
  const std::filesystem::path away = copy_.path.string() + "-away";
  std::vector<Placements> homes;
  for (auto& rank : ranks_) {
    homes.push_back(rank->runner->placement());
    rank->runner->place(*rank->rebalance.take_move());
    ASSERT_NE(rank->runner->placement().fingerprint(), homes.back().fingerprint());
  }
  std::filesystem::rename(copy_.path, away);
  for (auto& rank : ranks_) {
    EXPECT_GT(rank->mover.stats().num_remaining_layers, 0);
    rank->mover.end_epoch();
    rank->mover.load_for_epoch(RankSet::all(2));
    EXPECT_EQ(rank->mover.stats().num_remaining_layers, 0);
  }
  for (auto& rank : ranks_)
    EXPECT_TRUE(eventually([&] { return rank->mover.last_load_error().has_value(); }));
  std::filesystem::rename(away, copy_.path);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const ExpertMover& mover = ranks_[i]->mover;
    EXPECT_TRUE(eventually([&] { return mover.has_loaded(RankSet::all(2)); }));
    EXPECT_FALSE(mover.last_load_error().has_value());
    EXPECT_FALSE(mover.final_load_error().has_value());
    EXPECT_EQ(ranks_[i]->runner->placement().fingerprint(), homes[i].fingerprint());
  }
}

TEST_F(RebalanceTest, LoadingCostsTheTimeThatItsThreadUses) {
  votes_of_loaded();
  for (auto& rank : ranks_) {
    const ExpertMoveStats stats = rank->mover.stats();
    EXPECT_GT(stats.moves_total, 0u);
    EXPECT_EQ(stats.load_seconds_total, static_cast<double>(stats.moves_total));
  }
}

// Rank 0 of four, of which two may be missing, and the ranks of an epoch without them.
class TolerantRank : public RebalanceTest {
 protected:
  TolerantRank() {
    settings_.parallel.tolerate_ranks = 2;
    two_.add(0);
    two_.add(1);
  }
  std::vector<std::unique_ptr<Runner>> load() const {
    return *load_ranks({.settings = settings_, .progress = {}, .tokenizer_eos = {}});
  }
  void expect_taken_over_and_given_back() const;

  ServerSettings settings_ = testing::settings_of(testing::kBundled, 4);
  RankSet two_;
};

// Rank 0 of two that have places for all experts is left alone, and then not: it has the weights
// that each expert has anywhere.
void TolerantRank::expect_taken_over_and_given_back() const {
  const auto runners = load(), unmoved = load();
  Runner& runner = *runners[0];
  const Placements home = runner.placement();
  ExpertStats stats(runner.info().model.num_layers, home, 0);
  ExpertMover mover({.model = settings_.model, .max_retry_time = testing::kPatience}, runner,
                    stats);
  EXPECT_TRUE(mover.has_loaded(RankSet::all(4)));
  const auto check_weights = [&] {
    const Placements now = runner.placement();
    for (int layer = 0; layer < now.num_layers(); ++layer) {
      const std::span<const int> here = now.at(layer).experts_of(0);
      ASSERT_EQ(here.size(), runner.experts(layer).size());
      for (size_t i = 0; i < here.size(); ++i) {
        const int owner = home.at(layer).rank_of(here[i]);
        const auto there = std::ranges::find(home.at(layer).experts_of(owner), here[i]);
        const auto number = there - home.at(layer).experts_of(owner).begin();
        const PackedWeight& mine = runner.experts(layer)[i].down;
        const PackedWeight& wanted =
            unmoved[static_cast<size_t>(owner)]->experts(layer)[static_cast<size_t>(number)].down;
        ASSERT_EQ(mine.data_bytes(), wanted.data_bytes());
        EXPECT_EQ(std::memcmp(mine.data, wanted.data, static_cast<size_t>(mine.data_bytes())), 0);
      }
    }
  };
  for (const RankSet& ranks : {two_, RankSet::all(4), two_}) {
    mover.load_for_epoch(ranks);
    EXPECT_TRUE(eventually([&] { return mover.has_loaded(ranks); }));
    EXPECT_EQ(runner.placement().fingerprint(), home.among(ranks).fingerprint());
    check_weights();
  }
  EXPECT_GT(mover.stats().moves_total, 0u);
}

TEST_F(TolerantRank, ExpertsOfAnAbsentRankAreLoadedAndGivenBackByAnyNumberOfThreads) {
  for (const int num_threads : {1, 3}) {
    settings_.compute.num_threads = num_threads;
    expect_taken_over_and_given_back();
  }
}

// The module's experts are in eight bits, so larger than the others, and have memory of their own.
TEST_F(TolerantRank, SoAreThoseOfTheModelsModule) {
  settings_.model.quantization = "int4";
  const int64_t without = load()[0]->plan().moving_bytes;
  settings_.speculation.algorithm = "NEXTN";
  const auto runners = load();
  const MovingMemory& moving = runners[0]->moving();
  EXPECT_GT(moving.of_modules.bytes, moving.of_layers.bytes);
  EXPECT_EQ(moving.of_modules.num, 8);
  EXPECT_EQ(runners[0]->plan().moving_bytes, without + 8 * moving.of_modules.bytes);
  EXPECT_EQ(runners[0]->placement().num_layers(), 5);
  expect_taken_over_and_given_back();
}

// A file of --weight-cache keeps its experts: those that are taken over have memory in the plan,
// and those that come home are not loaded.
TEST_F(TolerantRank, ExpertsTakenOverFitThePlanBesideAFileOfWeights) {
  const int64_t without = load()[0]->plan().moving_bytes;
  const auto folder = std::filesystem::path(::testing::TempDir()) / "hocket-kept-experts";
  std::filesystem::remove_all(folder);
  settings_.model.weight_cache = folder.string();
  settings_.speculation.algorithm = "NEXTN";
  load();  // writes the file
  const auto runners = load();
  Runner& runner = *runners[0];
  ASSERT_TRUE(runner.maps_weights());
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  ExpertMover mover({.model = settings_.model, .max_retry_time = testing::kPatience}, runner,
                    stats);
  mover.load_for_epoch(two_);
  ASSERT_TRUE(eventually([&] { return mover.has_loaded(two_); }));
  const ExpertMoveStats taken = mover.stats();
  ASSERT_GT(taken.moves_total, 0u);
  EXPECT_GE(runner.plan().moving_bytes, without + static_cast<int64_t>(taken.bytes_total));
  mover.load_for_epoch(RankSet::all(4));
  ASSERT_TRUE(eventually([&] { return mover.has_loaded(RankSet::all(4)); }));
  EXPECT_EQ(mover.stats().moves_total, taken.moves_total);
  std::filesystem::remove_all(folder);
}

TEST_F(TolerantRank, LoadingThatHangsIsGivenUp) {
  const auto runners = load();
  Runner& runner = *runners[0];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  files_hang = true;
  {
    ExpertMover mover({.model = settings_.model,
                       .max_retry_time = testing::kPatience,
                       .max_expert_time = std::chrono::milliseconds(50),
                       .used_time = time_of_files},
                      runner, stats);
    EXPECT_GT(mover.load_for_epoch(two_), Duration{});
    EXPECT_EQ(mover.load_for_epoch(two_), Duration{}) << "it is under way";
    EXPECT_TRUE(eventually([&] {
      mover.check_progress();
      return mover.final_load_error().has_value();
    }));
    EXPECT_NE(mover.final_load_error()->message.find("files do not answer"), std::string::npos);
    files_hang = false;
  }
}

// An epoch is over before its experts are loaded: those count for no other one.
TEST_F(TolerantRank, AnEpochBeginsWithItsOwnPlaces) {
  const auto runners = load();
  Runner& runner = *runners[0];
  const Placements home = runner.placement();
  ExpertStats stats(runner.info().model.num_layers, home, 0);
  ExpertMover mover({.model = settings_.model, .max_retry_time = testing::kPatience}, runner,
                    stats);
  const RankSet all = RankSet::all(4);
  for (int i = 0; i < 40; ++i) {
    mover.load_for_epoch(two_);
    std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    mover.load_for_epoch(all);
    ASSERT_TRUE(eventually([&] { return mover.has_loaded(all); }));
    ASSERT_EQ(runner.placement().fingerprint(), home.fingerprint()) << i;
  }
}

// Rank 0 of four takes over 8 of the 16 experts of each layer with rank 1; it has places for 8.
TEST_F(TolerantRank, TheTimeOfLoadingFollowsFromWhatIsLacking) {
  const auto runners = load();
  Runner& runner = *runners[0];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  ExpertMover mover({.model = settings_.model, .max_retry_time = testing::kPatience}, runner,
                    stats);
  int64_t lacking = 0;
  for (int rank = 0; rank < 2; ++rank) {
    int64_t here = 0;
    for (int layer = 0; layer < runner.info().model.num_layers; ++layer) {
      const Placement home = runner.placement().at(layer), there = home.among(two_);
      for (const int expert : there.experts_of(rank))
        here += std::ranges::binary_search(home.experts_of(rank), expert) ? 0 : 1;
    }
    lacking = std::max(lacking, here);
  }
  ASSERT_GT(lacking, 0);
  const double byte = mover.seconds_per_byte();
  EXPECT_EQ(mover.load_for_epoch(two_),
            from_seconds(byte * static_cast<double>(lacking * mover.expert_bytes())));
  EXPECT_TRUE(eventually([&] { return mover.has_loaded(two_); }));
}

}  // namespace
}  // namespace hocket
