#include "engine/plan/model_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/server_settings.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

// A folder that holds config.json of a model with `num_experts`.
class ModelOfExperts {
 public:
  explicit ModelOfExperts(int num_experts)
      : path_(std::filesystem::path(::testing::TempDir()) /
              fmt::format("model_of_experts_{}_{}", num_experts, getpid())) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << fmt::format(
        R"({{"architectures":["Qwen3MoeForCausalLM"],"vocab_size":512,"hidden_size":64,
            "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":1024,
            "moe_intermediate_size":32,"num_experts":{},"num_experts_per_tok":3}})",
        num_experts);
  }
  ~ModelOfExperts() { std::filesystem::remove_all(path_); }

  Result<ModelChoice> choice(int num_ranks, int combine_groups = 0) const {
    ServerSettings settings;
    settings.model.model_path = path_.string();
    settings.parallel.ep_size = num_ranks;
    settings.compute.combine_groups = combine_groups;
    return choose_model_form(settings);
  }

 private:
  std::filesystem::path path_;
};

TEST(ModelChoice, ARankHasAtMostTheExpertsThatKernelsCount) {
  EXPECT_TRUE(ModelOfExperts(1024).choice(1).has_value());
  const ModelOfExperts model(1026);
  const auto one = model.choice(1);
  ASSERT_FALSE(one.has_value());
  EXPECT_EQ(one.error().code, ErrorCode::bad_value);
  EXPECT_THAT(one.error().message, HasSubstr("a rank would have 1026 experts of a layer"));
  EXPECT_EQ(one.error().param, "ep-size");
  EXPECT_EQ(one.error().fix, "--ep-size 2 or more");
  EXPECT_TRUE(model.choice(2).has_value());
  // The experts are three groups, and one of two ranks has two of them.
  EXPECT_TRUE(model.choice(2, 3).has_value());
  const auto half = ModelOfExperts(2049).choice(2, 3);
  ASSERT_FALSE(half.has_value());
  EXPECT_THAT(half.error().message, HasSubstr("a rank would have 1366 experts of a layer"));
  EXPECT_EQ(half.error().fix, "--ep-size 3 or more, and --combine-groups 0");
}

}  // namespace
}  // namespace hocket
