// The engine against Hugging Face: every tiny reference model, the bundled model's recorded
// answers, and the sampler's distributions.
#include <gtest/gtest.h>

#include "engine/check/checker.h"
#include "engine/testing.h"

namespace hocket {
namespace {

using namespace testing;

std::unique_ptr<Runner> make_runner(const std::filesystem::path& model, const std::string& dtype) {
  ServerSettings settings = settings_for(model);
  settings.model.dtype = dtype;
  auto runner = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  if (!runner) {
    ADD_FAILURE() << describe(runner.error());
    return nullptr;
  }
  return *std::move(runner);
}

void expect_ok(const Result<std::vector<CheckLine>>& lines, size_t num_lines_min) {
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  EXPECT_GE(lines->size(), num_lines_min);
  for (const CheckLine& line : *lines) {
    EXPECT_TRUE(line.ok) << line.dtype << " " << line.way << " " << line.quantity << ": worst "
                         << line.worst << "; " << line.first_failure;
    EXPECT_GT(line.compared, 0) << line.quantity;
    std::printf("%-8s %-12s %-24s %8ld numbers  worst %.3g\n", line.dtype.c_str(), line.way.c_str(),
                line.quantity.c_str(), static_cast<long>(line.compared), line.worst);
  }
}

class GoldenModel : public ::testing::TestWithParam<const char*> {};

void check_model(const std::string& name, const std::string& dtype, size_t num_lines_min) {
  const std::filesystem::path folder = std::filesystem::path("tests/golden") / name;
  auto runner = make_runner(folder, dtype);
  ASSERT_NE(runner, nullptr);
  const auto reference = Reference::read(source_dir() / folder, runner->info().model);
  ASSERT_TRUE(reference.has_value()) << describe(reference.error());
  EXPECT_EQ(reference->prompts.size(), 6);
  expect_ok(check_reference(*runner, *reference), num_lines_min);
}

TEST_P(GoldenModel, Float32) {
  check_model(GetParam(), "float32", 1 + 3 * 9);
}

TEST_P(GoldenModel, Bf16) {
  check_model(GetParam(), "bfloat16", 1 + 3 * 2);
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenModel,
                         ::testing::Values("qwen3", "qwen3_moe", "qwen3_moe_bf16",
                                           "qwen3_moe_sparse2"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GoldenRecorded, BundledModel) {
  const std::filesystem::path folder = "models/hocket-tiny-qwen3-moe";
  const auto recorded = read_recorded(source_dir() / folder / "expected.json");
  ASSERT_TRUE(recorded.has_value()) << describe(recorded.error());
  EXPECT_EQ(recorded->size(), 30);
  auto runner = make_runner(folder, "bfloat16");  // Float32GivesTheRecordedAnswers does the other
  ASSERT_NE(runner, nullptr);
  expect_ok(check_recorded(*runner, *recorded), 6);
}

TEST(GoldenSampling, TwentyDistributions) {
  expect_ok(check_sampling(source_dir() / "tests/golden/sampling"), 6);
}

}  // namespace
}  // namespace hocket
