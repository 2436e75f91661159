// The promise of expert parallelism: how many ranks hold the experts, where a request's rows are
// computed and how they travel changes no bit of any row. By equality with one rank that holds all
// experts and sums in as many combine groups.
#include <fmt/ranges.h>
#include <unistd.h>

#include <barrier>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>

#include "base/count_allocations.h"
#include "compute/comm/testing.h"
#include "compute/models/rank_model.h"
#include "compute/moe/expert_parallel.h"
#include "compute/moe/local_dispatcher.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr int kPages = Script::kSequences * Script::kPagesEach;

struct ModelCase {
  const char* name;
  const char* folder;
  DType dtype;
  bool int8_dispatch = false;
};
std::ostream& operator<<(std::ostream& out, const ModelCase& model) {
  return out << model.name;
}

ModelConfig config_of(const ModelCase& model) {
  return value_of(read_hf_config(std::filesystem::path(HOCKET_SOURCE_DIR) / model.folder));
}

// Which experts are where.
enum class Places : uint8_t { contiguous, scattered };

// Scattered: the experts in an order without order, from a file, an equal part for each rank.
Placement placement_of(int num_experts, int num_ranks, Places places) {
  if (places == Places::contiguous) return value_of(Placement::contiguous(num_experts, num_ranks));
  std::vector<int> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0);
  std::ranges::shuffle(experts, std::mt19937(5));
  const auto file = std::filesystem::path(::testing::TempDir()) /
                    fmt::format("hocket-scattered-{}.json", static_cast<int>(getpid()));
  std::ofstream(file) << fmt::format("[{}]", fmt::join(experts, ", "));
  Placement placement = value_of(Placement::from_file(file, num_experts, num_ranks));
  std::filesystem::remove(file);
  return placement;
}

const LoadedModel& share_of(const ModelCase& model, const Placement& placement, int rank) {
  static std::map<std::tuple<std::string, DType, std::vector<int>>, LoadedModel> loaded;
  const std::span<const int> mine = placement.experts_of(rank);
  const auto key = std::tuple(std::string(model.folder), model.dtype,
                              std::vector<int>(mine.begin(), mine.end()));
  auto found = loaded.find(key);
  if (found == loaded.end()) {
    const auto folder = std::filesystem::path(HOCKET_SOURCE_DIR) / model.folder;
    found = loaded.emplace(key, LoadedModel::load(folder, model.dtype, mine)).first;
  }
  return found->second;
}

const LoadedModel& share_of(const ModelCase& model, int num_ranks, int rank) {
  const int experts = config_of(model).moe.num_experts;
  return share_of(model, placement_of(experts, num_ranks, Places::contiguous), rank);
}

enum class Travel : uint8_t { counted, slotted, by_step };

ExchangeMode mode_of(Travel travel, int step) {
  if (travel == Travel::by_step)
    return step <= Script::kLastPrefill ? ExchangeMode::counted : ExchangeMode::slotted;
  return travel == Travel::counted ? ExchangeMode::counted : ExchangeMode::slotted;
}

// Whose sequences are whose, by number of ranks: uneven, and with more than one nobody's fair
// share; the second of four has none at all.
std::vector<int> sequences_of(int rank, int num_ranks) {
  static const std::map<int, std::array<int, Script::kSequences>> homes = {
      {1, {0, 0, 0, 0, 0}}, {2, {0, 1, 0, 0, 1}}, {4, {0, 0, 2, 3, 2}}};
  std::vector<int> mine;
  for (int sequence = 0; sequence < Script::kSequences; ++sequence)
    if (homes.at(num_ranks)[sequence] == rank) mine.push_back(sequence);
  return mine;
}

Script::Bits on_one_rank(const ModelCase& model, int combine_groups) {
  Script::Bits bits;
  const Model& whole = share_of(model, 1, 0).model;
  RankMachine machine(whole.config(), model.dtype,
                      {.max_rows = Script::kMaxRows,
                       .max_output_rows = Script::kMaxRows,
                       .max_logits_rows = Script::kMaxRows,
                       .int8_dispatch = model.int8_dispatch},
                      kPages);
  LocalDispatcher dispatcher(whole.config(), combine_groups);
  const std::vector<int> all = sequences_of(0, 1);
  const Player player = {whole, machine, dispatcher, serial_order(), all};
  for (int step = 0; step < std::ssize(Script::kSteps); ++step) {
    EXPECT_TRUE(player.play(step, ExchangeMode::counted).has_value());
    player.add_bits(bits);
  }
  return bits;
}

// Several ranks that play together, each on a thread.
class Ranks {
 public:
  Ranks(const ModelCase& model, int num_ranks, int combine_groups,
        Places places = Places::contiguous)
      : model_(model),
        num_ranks_(num_ranks),
        combine_groups_(combine_groups),
        placement_(placement_of(config_of(model).moe.num_experts, num_ranks, places)) {
    for (int rank = 0; rank < num_ranks; ++rank) share_of(model, placement_, rank);  // one thread
  }
  Duration stall_timeout = std::chrono::seconds(30);
  const Order* order = &serial_order();
  int max_slotted_rows = Script::kMaxRows;

  using Body = std::function<void(const Player&, int rank)>;
  void run(LoopbackHub& hub, const Body& body) const {
    on_ranks(hub, num_ranks_, [&](Transport& end) {
      const Model& model = share_of(model_, placement_, end.rank()).model;
      const WorkLimits limits = {
          .max_rows = Script::kMaxRows,
          .max_output_rows = Script::kMaxRows,
          .max_logits_rows = Script::kMaxRows,
          .exchange = ExpertParallelDispatcher::exchange_limits(placement_, max_slotted_rows),
          .int8_dispatch = model_.int8_dispatch};
      RankMachine machine(model.config(), model_.dtype, limits, kPages);
      const ExpertParallelDispatcher::Options options = {.model = model.config(),
                                                         .dtype = model_.dtype,
                                                         .placement = placement_,
                                                         .combine_groups = combine_groups_,
                                                         .limits = limits};
      const auto exchange = value_of(
          AllToAll::create(end, {.most_bytes = ExpertParallelDispatcher::most_bytes(options),
                                 .stall_timeout = stall_timeout}));
      const auto dispatcher = value_of(ExpertParallelDispatcher::create(options, *exchange));
      const std::vector<int> mine = sequences_of(end.rank(), num_ranks_);
      body({model, machine, *dispatcher, *order, mine}, end.rank());
    });
  }

 private:
  ModelCase model_;
  int num_ranks_, combine_groups_;
  Placement placement_;
};

// What all ranks have of the script together.
Script::Bits on_ranks_together(const Ranks& ranks, LoopbackHub& hub, Travel travel) {
  Script::Bits bits;
  ranks.run(hub, [&](const Player& player, int) {
    for (int step = 0; step < std::ssize(Script::kSteps); ++step) {
      const Result<void> played = player.play(step, mode_of(travel, step));
      ASSERT_TRUE(played.has_value()) << describe(played.error());
      player.add_bits(bits);  // of its own sequences
    }
  });
  return bits;
}

class ExpertParallel : public ::testing::TestWithParam<ModelCase> {
 protected:
  void expect_same(int num_ranks, LoopbackHub::Time time, const LinkModel& links) {
    const ModelConfig& config = share_of(GetParam(), 1, 0).model.config();
    for (const int groups : {4, config.moe.num_experts}) {
      const Script::Bits want = on_one_rank(GetParam(), groups);
      for (const Travel travel : {Travel::counted, Travel::slotted, Travel::by_step})
        for (const Order* order : {&serial_order(), &testing::order_named("four-phase")}) {
          Ranks ranks(GetParam(), num_ranks, groups);
          ranks.order = order;
          if (travel == Travel::by_step) ranks.max_slotted_rows = Script::kSequences;
          LoopbackHub hub(num_ranks, links, time);
          ASSERT_EQ(on_ranks_together(ranks, hub, travel), want)
              << num_ranks << " ranks, " << groups << " groups, " << order->name << ", travel "
              << static_cast<int>(travel);
        }
    }
  }
};

TEST_P(ExpertParallel, OneRankOverTheExchange) {
  expect_same(1, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, TwoRanks) {
  expect_same(2, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, FourRanks) {
  expect_same(4, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, FourRanksOverSlowLinks) {
  expect_same(4, LoopbackHub::Time::virtual_time,
              {.bytes_per_s = 1e8,
               .latency = std::chrono::microseconds(20),
               .jitter = std::chrono::microseconds(200),
               .seed = 7});
}

INSTANTIATE_TEST_SUITE_P(
    Models, ExpertParallel,
    ::testing::Values(ModelCase{"qwen3_moe", "tests/golden/qwen3_moe", DType::bf16},
                      ModelCase{"qwen3_moe_fp32", "tests/golden/qwen3_moe", DType::f32},
                      ModelCase{"deepseek_v3", "tests/golden/deepseek_v3_bf16", DType::bf16},
                      ModelCase{"deepseek_v3_fp32", "tests/golden/deepseek_v3", DType::f32},
                      ModelCase{"bundled", "models/hocket-tiny-qwen3-moe", DType::bf16},
                      ModelCase{"qwen3_moe_int8", "tests/golden/qwen3_moe", DType::bf16, true},
                      ModelCase{"deepseek_v3_fp32_int8", "tests/golden/deepseek_v3", DType::f32,
                                true}),
    [](const auto& param) { return std::string(param.param.name); });

constexpr ModelCase kQwen = {"qwen3_moe", "tests/golden/qwen3_moe", DType::bf16};

constexpr ModelCase kQwenInt8 = {"qwen3_moe_int8", kQwen.folder, kQwen.dtype, true};

// Or the tests above prove nothing.
TEST(ExpertParallelForms, ChangeBits) {
  EXPECT_NE(on_one_rank(kQwen, 1), on_one_rank(kQwen, 4));
  EXPECT_NE(on_one_rank(kQwen, 4), on_one_rank(kQwenInt8, 4));
}

TEST(ExpertParallelPlacement, SingleExpertsMayBeAnywhere) {
  const int experts = config_of(kQwen).moe.num_experts;
  for (const ModelCase& model : {kQwen, kQwenInt8}) {
    const Script::Bits want = on_one_rank(model, experts);
    for (const int num_ranks : {2, 4}) {
      const Ranks ranks(model, num_ranks, experts, Places::scattered);
      LoopbackHub hub(num_ranks, {}, LoopbackHub::Time::real);
      EXPECT_EQ(on_ranks_together(ranks, hub, Travel::by_step), want) << num_ranks;
    }
  }
  EXPECT_NE(placement_of(experts, 2, Places::scattered).fingerprint(),
            placement_of(experts, 2, Places::contiguous).fingerprint());
}

TEST(ExpertParallelWeights, ARankLoadsItsOwnExperts) {
  const auto bytes = [](int num_ranks, int rank) {
    return share_of(kQwen, num_ranks, rank).memory.bytes();
  };
  const ModelConfig& config = share_of(kQwen, 1, 0).model.config();
  const int64_t experts = bytes(1, 0) - bytes(4, 0);
  EXPECT_EQ(bytes(4, 0), bytes(4, 3));
  EXPECT_EQ(experts / 3 * 2, bytes(1, 0) - bytes(2, 1));
  const int64_t numbers = 3 * int64_t{config.hidden_size} * config.moe.intermediate_size;
  const int64_t moe_layers = std::ranges::count(config.layer_is_moe, true);
  EXPECT_EQ(experts, moe_layers * config.moe.num_experts * 3 / 4 * numbers * 2);
}

// Breaks something in the middle of a pass.
class Breaker final : public ForwardProbe {
 public:
  explicit Breaker(std::function<void()> act) : act_(std::move(act)) {}
  void after(int layer, Op op, const Half& half) override {
    if (layer == 2 && op == Op::dispatch_wait && half.index == 0) act_();
  }

 private:
  std::function<void()> act_;
};

// What every rank has to say after rank 2 was broken.
std::vector<std::string> after(const std::function<void(LoopbackHub&)>& breaking,
                               Duration stall_timeout, Duration& took) {
  constexpr int kRanks = 4;
  Ranks ranks(kQwen, kRanks, 4);
  ranks.stall_timeout = stall_timeout;
  ranks.order = &testing::order_named("four-phase");
  LoopbackHub hub(kRanks, {.latency = milliseconds(1)}, LoopbackHub::Time::virtual_time);
  std::vector<std::string> said(kRanks);
  TimePoint broken{};
  std::mutex mutex;
  took = {};
  ranks.run(hub, [&](Player player, int rank) {
    Breaker breaker([&] {
      broken = hub.now();
      breaking(hub);
    });
    ASSERT_TRUE(player.play(0, ExchangeMode::counted).has_value());
    if (rank == 2) player.probe = &breaker;
    const Result<void> played = player.play(1, ExchangeMode::counted);
    if (!played && played.error().code == ErrorCode::lost_rank) said[rank] = played.error().message;
    const Result<void> again =
        player.play(2, ExchangeMode::slotted);  // ends at once, with the same
    EXPECT_EQ(again.has_value() ? "" : again.error().message, said[rank]);
    const std::lock_guard lock(mutex);
    took = std::max(took, hub.now() - broken);
  });
  return said;
}

TEST(ExpertParallelFaults, ALostRankEndsThePassOfAllByName) {
  Duration took{};
  const auto said = after([](LoopbackHub& hub) { hub.lose(2); }, milliseconds(500), took);
  for (const int rank : {0, 1, 3}) EXPECT_NE(said[rank].find("rank 2"), std::string::npos) << rank;
  EXPECT_FALSE(said[2].empty());
  EXPECT_LE(took, milliseconds(50));
}

TEST(ExpertParallelFaults, ASilentRankEndsThePassOfAllWithinTheStallTimeout) {
  Duration took{};
  const auto said = after([](LoopbackHub& hub) { hub.cut(2, true); }, milliseconds(500), took);
  for (const int rank : {0, 1, 3}) EXPECT_NE(said[rank].find("rank 2"), std::string::npos) << rank;
  EXPECT_FALSE(said[2].empty());
  EXPECT_LE(took, milliseconds(550));
}

void expect_no_allocations(const ModelCase& model) {
  constexpr int kRanks = 2;
  for (const ExchangeMode mode : {ExchangeMode::counted, ExchangeMode::slotted}) {
    Ranks ranks(model, kRanks, 4);
    ranks.order = &testing::order_named("four-phase");
    LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
    std::barrier together(kRanks);
    int64_t made = -1;
    ranks.run(hub, [&](const Player& player, int rank) {
      for (int step = 0; step < 2; ++step) EXPECT_TRUE(player.play(step, mode).has_value());
      together.arrive_and_wait();
      const int64_t before = num_allocations;
      together.arrive_and_wait();
      for (int step = 2; step < std::ssize(Script::kSteps); ++step)
        HOCKET_CHECK(player.play(step, mode).has_value());
      together.arrive_and_wait();
      if (rank == 0) made = num_allocations - before;
      together.arrive_and_wait();
    });
    EXPECT_EQ(made, 0);
  }
}

TEST(ExpertParallelAllocation, AStepAllocatesNothing) {
  expect_no_allocations(kQwen);
  expect_no_allocations(kQwenInt8);
}

}  // namespace
}  // namespace hocket
