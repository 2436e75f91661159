// Ranks that share a model's experts and play the script of rank_model_testing.h, each on its own
// thread. Tests only.
#pragma once

#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <numeric>

#include "base/source_dir_testing.h"
#include "compute/comm/testing.h"
#include "compute/comm/ucx_testing.h"
#include "compute/models/rank_model_testing.h"
#include "compute/moe/expert_parallel.h"
#include "compute/moe/local_dispatcher.h"

namespace hocket::testing {

inline constexpr int kPages = Script::kSequences * Script::kPagesEach;

struct ModelCase {
  const char* name;
  const char* folder;
  DType dtype;
  bool int8_dispatch = false, int8_combine = false;
};
inline std::ostream& operator<<(std::ostream& out, const ModelCase& model) {
  return out << model.name;
}

inline ModelConfig config_of(const ModelCase& model) {
  return value_of(read_hf_config(source_dir() / model.folder));
}

inline constexpr ModelCase kQwen = {"qwen3_moe", "tests/golden/qwen3_moe", DType::bf16};
inline constexpr ModelCase kQwenNext = {"qwen3_next", "tests/golden/qwen3_next", DType::bf16};
inline constexpr ModelCase kQwenInt8 = {"qwen3_moe_int8", kQwen.folder, kQwen.dtype, true};
inline constexpr ModelCase kQwenInt8Sums = {"qwen3_moe_int8_sums", kQwen.folder, kQwen.dtype, false,
                                            true};
// A model with latent attention, a dense layer and shared experts.
inline constexpr ModelCase kDeepseek = {"deepseek_v3", "tests/golden/deepseek_v3_bf16",
                                        DType::bf16};

// Says how experts are spread over ranks.
enum class Places : uint8_t { contiguous, scattered, replicated };

// Returns the placement. Scattered: experts in random sequence, read from a file, about as many for
// each rank. Replicated: in another sequence in each layer, with two replicas a rank.
inline Placements placement_of(int num_experts, int num_ranks, Places places, int num_groups) {
  if (places == Places::contiguous)
    return value_of(Placement::contiguous(num_experts, num_ranks, num_groups));
  std::vector<int> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0);
  std::mt19937 random(5);
  if (places == Places::replicated) {
    std::vector<Placement> layers;
    for (int layer = 0; layer < 8; ++layer) {
      std::ranges::shuffle(experts, random);
      std::vector<int> all = experts;
      for (int i = 0; i < 2 * num_ranks; ++i) all.push_back(experts[i / 2]);
      const auto sequence = std::span(all);
      layers.push_back(Placement::of_places(sequence, num_experts, num_ranks));
    }
    return Placements(std::move(layers));
  }
  std::ranges::shuffle(experts, random);
  const auto file = std::filesystem::path(::testing::TempDir()) /
                    fmt::format("hocket-scattered-{}.json", static_cast<int>(getpid()));
  std::ofstream(file) << fmt::format("[{}]", fmt::join(experts, ", "));
  Placements placement = value_of(Placements::from_file(file, num_experts, num_ranks, 1, {}));
  std::filesystem::remove(file);
  return placement;
}

inline const LoadedModel& share_of(const ModelCase& model, const Placements& placement, int rank) {
  static std::map<std::tuple<std::string, DType, HeldExperts>, LoadedModel> loaded;
  const HeldExperts mine = placement.held_by(rank);
  const auto key = std::tuple(std::string(model.folder), model.dtype, mine);
  auto found = loaded.find(key);
  if (found == loaded.end()) {
    const auto folder = source_dir() / model.folder;
    found = loaded.emplace(key, LoadedModel::load(folder, model.dtype, mine)).first;
  }
  return found->second;
}

inline const LoadedModel& share_of(const ModelCase& model, int num_ranks, int rank) {
  const int experts = config_of(model).moe.num_experts;
  return share_of(model, placement_of(experts, num_ranks, Places::contiguous, experts), rank);
}

// Returns the sequences of a rank. Several ranks have unequal numbers, and some ranks none.
inline std::vector<int> sequences_of(int rank, int num_ranks) {
  static const std::map<int, std::array<int, Script::kSequences>> homes = {
      {1, {0, 0, 0, 0, 0}}, {2, {0, 1, 0, 0, 1}}, {3, {2, 0, 2, 1, 0}},
      {4, {0, 0, 2, 3, 2}}, {5, {4, 3, 2, 1, 0}}, {8, {0, 6, 2, 7, 2}}};
  std::vector<int> mine;
  for (int sequence = 0; sequence < Script::kSequences; ++sequence)
    if (homes.at(num_ranks)[sequence] == rank) mine.push_back(sequence);
  return mine;
}

// Returns the results of the script on one rank with all experts.
inline Script::Bits on_one_rank(const ModelCase& model, int combine_groups,
                                const std::function<StepPlan(int step)>& step_plan = {}) {
  Script::Bits bits;
  const Model& whole = share_of(model, 1, 0).model;
  RankMachine machine(whole.config(), model.dtype,
                      {.max_rows = Script::kMaxRows,
                       .max_output_rows = Script::kMaxRows,
                       .max_logits_rows = Script::kMaxRows,
                       .int8_dispatch = model.int8_dispatch,
                       .int8_combine = model.int8_combine},
                      kPages);
  LocalDispatcher dispatcher(whole.config(), combine_groups);
  const std::vector<int> all = sequences_of(0, 1);
  const Player player = {whole, machine, dispatcher, all};
  for (int step = 0; step < std::ssize(Script::kSteps); ++step) {
    EXPECT_TRUE(player.play(step, step_plan ? step_plan(step) : StepPlan{}).has_value());
    player.add_bits(bits);
  }
  return bits;
}

// Several ranks that play together, each on its own thread.
class Ranks {
 public:
  Ranks(const ModelCase& model, int num_ranks, int combine_groups,
        Places places = Places::contiguous)
      : model_(model),
        num_ranks_(num_ranks),
        combine_groups_(combine_groups),
        placement_(
            placement_of(config_of(model).moe.num_experts, num_ranks, places, combine_groups)) {
    // Loaded by one thread.
    for (int rank = 0; rank < num_ranks; ++rank) share_of(model, placement_, rank);
  }
  Duration stall_timeout = std::chrono::seconds(30);
  int max_decode_rows = Script::kMaxRows;
  int max_parts = kMaxParts;

  using Body = std::function<void(const Player&, int rank)>;
  void run(LoopbackHub& hub, const Body& body) const {
    on_ranks(hub, num_ranks_, [&](Transport& end) { run_one(end, body); });
  }
  void run(const UcxOptions& ucx, const Body& body) const {
    on_ucx_ranks(num_ranks_, ucx, [&](Transport& end) { run_one(end, body); });
  }

 private:
  void run_one(Transport& end, const Body& body) const {
    const Model& model = share_of(model_, placement_, end.rank()).model;
    const WorkLimits limits = {.max_rows = Script::kMaxRows,
                               .max_output_rows = Script::kMaxRows,
                               .max_logits_rows = Script::kMaxRows,
                               .exchange = ExpertParallelDispatcher::exchange_limits(
                                   placement_, max_decode_rows, max_parts),
                               .int8_dispatch = model_.int8_dispatch,
                               .int8_combine = model_.int8_combine};
    RankMachine machine(model.config(), model_.dtype, limits, kPages);
    const ExpertParallelDispatcher::Options options = {.model = model.config(),
                                                       .dtype = model_.dtype,
                                                       .placement = placement_,
                                                       .combine_groups = combine_groups_,
                                                       .limits = limits};
    const auto exchange =
        value_of(AllToAll::create(end, {.max_bytes = ExpertParallelDispatcher::max_bytes(options),
                                        .stall_timeout = stall_timeout}));
    const auto dispatcher = value_of(ExpertParallelDispatcher::create(options, *exchange));
    const std::vector<int> mine = sequences_of(end.rank(), num_ranks_);
    body({model, machine, *dispatcher, mine}, end.rank());
  }

  ModelCase model_;
  int num_ranks_, combine_groups_;
  Placements placement_;
};

// Returns the results of the script on all ranks together.
using StepPlanOf = std::function<StepPlan(int step, const Player& player, int rank)>;
template <class Network>
Script::Bits on_ranks_together(const Ranks& ranks, Network& network, const StepPlanOf& step_plan) {
  Script::Bits bits;
  ranks.run(network, [&](const Player& player, int rank) {
    for (int step = 0; step < std::ssize(Script::kSteps); ++step) {
      const Result<void> played = player.play(step, step_plan(step, player, rank));
      ASSERT_TRUE(played.has_value()) << describe(played.error());
      player.add_bits(bits);  // the bits of its own sequences
    }
  });
  return bits;
}

}  // namespace hocket::testing
