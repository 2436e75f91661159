// Tests --ep-num-redundant-experts auto on hosts with unequal memory: all ranks place as many
// replicas, or they could not meet.
#include <gmock/gmock.h>

#include <future>

#include "base/log.h"
#include "engine/plan/expert_places.h"
#include "engine/rank_setup.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr int64_t kPlenty = int64_t{1} << 34;

class AgreedReplicas : public ::testing::Test {
 protected:
  AgreedReplicas() {
    settings_.parallel.ep_size = 2;
    settings_.parallel.ep_num_redundant_experts = "auto";
    settings_.compute.num_threads = 1;
    settings_.memory.max_total_tokens = 4096;
    choice_ = *choose_model_form(settings_);
  }
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }

  // Returns the weights of a rank with `replicas` in each layer.
  int64_t bytes_with(int replicas) const {
    ModelChoice choice = choice_;
    const Placement plain =
        *Placement::contiguous(choice.model.moe.num_experts, 2, choice.combine_groups);
    choice.experts = Placements(plain.with_replicas(replicas)).held_by(0);
    return measure_weights(choice, nullptr)->bytes;
  }
  // Returns the memory of a rank of which `auto` takes `replicas`.
  int64_t memory_for(int replicas) const {
    return bytes_with(0) + 8 * replicas * (bytes_with(1) - bytes_with(0)) + 64;
  }
  RankConfig rank_with(int64_t bytes, std::optional<int> replicas) const {
    Machine machine = inspect_machine();
    machine.memory_bytes = machine.memory_available_bytes = bytes;
    return {.rank = 0, .num_ranks = 2, .machine = std::move(machine), .replicas = replicas};
  }
  std::string terms_of(const RankConfig& seat) const {
    const auto runner = Runner::create({.settings = settings_, .tokenizer_eos = {}, .seat = &seat});
    EXPECT_TRUE(runner) << describe(runner.error());
    return runner ? (*runner)->terms() : "";
  }

  ServerSettings settings_ = base_settings(kBundled);
  ModelChoice choice_;
};

TEST_F(AgreedReplicas, EachRankSaysForHowManyItHasMemory) {
  for (const int replicas : {0, 1, 3})
    EXPECT_EQ(*auto_replicas(settings_.parallel, choice_, 2, memory_for(replicas)), replicas);
  settings_.parallel.ep_num_redundant_experts = "4";
  EXPECT_EQ(*auto_replicas(settings_.parallel, choice_, 2, kPlenty), std::nullopt);
}

TEST_F(AgreedReplicas, RanksWithUnequalMemoryMeetOnOneNumber) {
  const RankConfig small = rank_with(kPlenty / 4, 2), large = rank_with(kPlenty, 2);
  const std::string terms = terms_of(small);
  EXPECT_THAT(terms, HasSubstr("20 places for experts"));
  EXPECT_EQ(terms, terms_of(large));
  const RankConfig alone = rank_with(kPlenty, std::nullopt);
  EXPECT_THAT(terms_of(alone), HasSubstr("32 places for experts"));
}

TEST_F(AgreedReplicas, TheChangeIsAnnounced) {
  const auto places = place_experts(settings_.parallel, choice_, 2, kPlenty, 3);
  ASSERT_TRUE(places);
  ASSERT_EQ(places->changes.size(), 1u);
  EXPECT_EQ(places->changes[0].flag, "--ep-num-redundant-experts");
  EXPECT_EQ(places->changes[0].to, "6");
  EXPECT_THAT(places->changes[0].why, HasSubstr("on the rank that has least"));
}

// It was started again with less memory, and the service keeps the number that it has.
TEST_F(AgreedReplicas, ARankWithoutMemoryForThemIsRefusedWithTheNumbers) {
  EXPECT_TRUE(place_experts(settings_.parallel, choice_, 2, bytes_with(4), 4));
  const auto refused = place_experts(settings_.parallel, choice_, 2, bytes_with(4) - 1, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message, HasSubstr("8 replicas"));
  EXPECT_THAT(refused.error().fix, HasSubstr("restart all ranks"));
}

// Another rank says the number, which may be any.
TEST_F(AgreedReplicas, ANumberThatCannotBeIsRefused) {
  for (const int replicas : {17, kMaxReplicas}) {
    const auto refused = place_experts(settings_.parallel, choice_, 2, kPlenty, replicas);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
  }
}

TEST_F(AgreedReplicas, ARankWaitsForTheOthersOnlySoLong) {
  const ClusterOptions at{.init_addr = {"127.0.0.1", 0}, .token = "a token of sixteen"};
  const auto zero = ControlPlane::join(at, {.rank = 0, .num_ranks = 2});
  ASSERT_TRUE(zero) << zero.error().message;
  settings_.parallel.rank_wait_s = 0.1;
  const auto waited = join_before_loading(**zero, settings_, Duration{});
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(waited.error().message, HasSubstr("after 0.1 s: rank 1"));
  EXPECT_EQ(waited.error().param, "rank-wait");
}

TEST_F(AgreedReplicas, RanksInProcessesSettleBeforeTheyLoad) {
  ClusterOptions at{.init_addr = {"127.0.0.1", 0}, .token = "a token of sixteen"};
  const auto zero = ControlPlane::join(at, {.rank = 0, .num_ranks = 2});
  ASSERT_TRUE(zero) << zero.error().message;
  at.init_addr.port = (*zero)->port();
  auto waits =
      std::async(std::launch::async, [&] { return join_before_loading(**zero, settings_); });
  const auto one = ControlPlane::join(at, {.rank = 1, .num_ranks = 2});
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ((*one)->wait_replicas(Duration{}).error().code, ErrorCode::timed_out);
  (*one)->own_heartbeat().set_max_replicas(2);
  const auto config = waits.get();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->replicas, 2);
  EXPECT_EQ(*(*one)->wait_replicas(std::chrono::seconds(10)), 2);
  settings_.parallel.ep_num_redundant_experts = "4";
  EXPECT_EQ(join_before_loading(**zero, settings_)->replicas, std::nullopt);
}

}  // namespace
}  // namespace hocket
