#include "policy/simulation/step_model.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sstream>

namespace hocket {
namespace {

const StepModel kTruth = {.name = "truth",
                          .fixed_us = 300,
                          .row_us = 900,
                          .output_us = 250,
                          .key_us = 0.4,
                          .expert_us = 20,
                          .num_experts = 32,
                          .top_k = 4,
                          .num_moe_layers = 12};

std::string bench_lines(double wobble) {
  std::string text =
      "{\"cpu\": \"some\", \"num_experts\": 32, \"top_k\": 4, \"num_moe_layers\": 12, "
      "\"chunk_tokens\": 512}\n";
  int i = 0;
  const auto off = [&] { return 1 + (i++ % 2 == 0 ? wobble : -wobble); };
  for (const double rows : {16.0, 64.0, 300.0, 2048.0}) {
    StepWork work{.rows = rows, .outputs = 1, .keys = rows * (rows + 1) / 2};
    for (double remaining = rows; remaining > 0; remaining -= 512, ++work.passes)
      work.experts += kTruth.experts_hit(std::min(remaining, 512.0));
    text += fmt::format(
        "{{\"case\": \"prefill\", \"input_len\": {}, \"us_per_step\": {}, \"experts_hit\": {}}}\n",
        rows, kTruth.us(work) * off(), work.experts);
  }
  for (const double rows : {1.0, 4.0, 16.0, 32.0})
    for (const double context : {128.0, 4000.0}) {
      const StepWork work{.passes = 1,
                          .rows = rows,
                          .outputs = rows,
                          .keys = rows * (context + 8.5),
                          .experts = kTruth.experts_hit(rows)};
      text += fmt::format(
          "{{\"case\": \"decode\", \"batch\": {}, \"context_len\": {}, \"output_len\": 16, "
          "\"us_per_step\": {}, \"experts_hit\": {}}}\n",
          rows, context, kTruth.us(work) * off(), work.experts);
    }
  return text;
}

Result<StepModel> fit(const std::string& text) {
  std::istringstream lines(text);
  return fit_step_model(lines, "test");
}

TEST(StepModel, FitFindsWhatMadeTheNumbers) {
  const auto model = fit(bench_lines(0));
  ASSERT_TRUE(model) << describe(model.error());
  EXPECT_NEAR(model->fixed_us, kTruth.fixed_us, 0.1);
  EXPECT_NEAR(model->row_us, kTruth.row_us, 0.1);
  EXPECT_NEAR(model->output_us, kTruth.output_us, 0.1);
  EXPECT_NEAR(model->key_us, kTruth.key_us, 1e-3);
  EXPECT_NEAR(model->expert_us, kTruth.expert_us, 0.1);
  EXPECT_LT(model->max_residual, 1e-6);
}

TEST(StepModel, NoTermIsNegativeAndTheResidualIsTold) {
  const auto model = fit(bench_lines(0.2));
  ASSERT_TRUE(model) << describe(model.error());
  for (const double c :
       {model->fixed_us, model->row_us, model->output_us, model->key_us, model->expert_us})
    EXPECT_GE(c, 0);
  EXPECT_GT(model->max_residual, 0.05);
  EXPECT_LT(model->max_residual, 0.5);
}

TEST(StepModel, TooFewMeasurementsAreRefused) {
  const std::string text = bench_lines(0);
  const auto model = fit(text.substr(0, text.find("\"decode\"") - 10));
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("2 prefills and 3 decodes"), std::string::npos);
  EXPECT_FALSE(fit("{\"case\": 3"));
}

TEST(StepModel, CountsABatch) {
  std::vector<Request> requests(2);
  const Batch batch{.mode = ForwardMode::mixed,
                    .slices = {{&requests[0], 10, 5, false, -1}, {&requests[1], 99, 1, true, -1}},
                    .copies = {},
                    .num_rows = 6};
  const StepWork work = kTruth.work_of(batch);
  EXPECT_EQ(work.passes, 1);
  EXPECT_EQ(work.rows, 6);
  EXPECT_EQ(work.outputs, 1);
  EXPECT_EQ(work.keys, 11 + 12 + 13 + 14 + 15 + 100);
  EXPECT_NEAR(kTruth.experts_hit(1), 4 * 12, 1e-9);
  EXPECT_LT(work.experts, 32 * 12);
}

TEST(StepModel, TheShippedTableSaysWhatItIs) {
  const StepModel model = shipped_step_model();
  EXPECT_FALSE(model.name.empty());
  EXPECT_GT(model.us({.passes = 1, .rows = 1, .outputs = 1, .keys = 100, .experts = 48}), 1000);
  std::istringstream text(to_json(model));
  EXPECT_NE(text.str().find("fixed_us"), std::string::npos);
}

}  // namespace
}  // namespace hocket
