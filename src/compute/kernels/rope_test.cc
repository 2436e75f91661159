#include "compute/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compute/kernels/cases/row_cases.h"

namespace hocket {
namespace {

using Scaling = RopeConfig::Scaling;

// Frequencies of the reference implementation, for the golden models llama, qwen3, qwen3_moe,
// gpt_oss, deepseek_v2_lite and gemma4_moe.
struct Golden {
  RopeConfig config;
  std::vector<float> inv_freq;
  double attention_factor;
};

const Golden kGolden[] = {
    {{.scaling = Scaling::llama3,
      .theta = 5e5,
      .rotary_dim = 16,
      .factor = 8,
      .original_context = 64},
     {1.0f, 0.07940301299095154f, 0.004700753837823868f, 0.0009115831344388425f,
      0.00017677668074611574f, 3.428102354519069e-05f, 6.647869668086059e-06f,
      1.289173155782919e-06f},
     1},
    {{.scaling = Scaling::yarn,
      .theta = 1e6,
      .rotary_dim = 32,
      .factor = 4,
      .original_context = 64},
     {1.0f, 0.3162723779678345f, 0.08891396969556808f, 0.018747353926301003f, 0.007905694656074047f,
      0.0033338037319481373f, 0.0014058533124625683f, 0.0005928434547968209f,
      0.0002500000118743628f, 0.00010542412201175466f, 4.4456985051510856e-05f,
      1.8747356079984456e-05f, 7.905693564680405e-06f, 3.3338035336782923e-06f,
      1.405853367941745e-06f, 5.928434347879374e-07f},
     1.138629436111989},
    {{.theta = 1e6, .rotary_dim = 32},
     {1.0f, 0.4216965138912201f, 0.17782793939113617f, 0.07498941570520401f, 0.03162277862429619f,
      0.01333521492779255f, 0.005623413249850273f, 0.0023713738191872835f, 0.0010000000474974513f,
      0.00042169648804701865f, 0.00017782794020604342f, 7.498942431993783e-05f,
      3.162277425872162e-05f, 1.333521413471317e-05f, 5.62341347176698e-06f,
      2.3713737391517498e-06f},
     1},
    {{.scaling = Scaling::yarn,
      .theta = 150000,
      .rotary_dim = 16,
      .factor = 4,
      .original_context = 64,
      .truncate = false},
     {1.0f, 0.11690013855695724f, 0.012703318148851395f, 0.0028635566122829914f,
      0.0006454972317442298f, 0.00014550669584423304f, 3.2799827749840915e-05f,
      7.3936716944444925e-06f},
     1.138629436111989},
    {{.scaling = Scaling::yarn,
      .rotary_dim = 16,
      .factor = 4,
      .original_context = 256,
      .mscale = 0.707,
      .mscale_all_dim = 0.707},
     {1.0f, 0.2569350600242615f, 0.0625f, 0.013834965415298939f, 0.0024999999441206455f,
      0.0007905694656074047f, 0.0002500000118743628f, 7.905694656074047e-05f},
     1},
    {{.scaling = Scaling::proportional, .theta = 1e6, .rotary_dim = 32, .turning_dim = 8},
     {1.0f, 0.421696514f, 0.177827939f, 0.0749894157f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     1},
};

float ulp(float x) {
  return std::nextafter(x, 1e30f) - x;
}

TEST(RopeTest, FrequenciesAreThoseOfTheReference) {
  for (const Golden& golden : kGolden) {
    const RopeFrequencies got = rope_frequencies(golden.config);
    ASSERT_EQ(got.inv_freq.size(), golden.inv_freq.size());
    for (size_t i = 0; i < got.inv_freq.size(); ++i)
      EXPECT_NEAR(got.inv_freq[i], golden.inv_freq[i], 1.01f * ulp(golden.inv_freq[i])) << i;
    EXPECT_EQ(got.attention_factor, static_cast<float>(golden.attention_factor));
  }
}

TEST(RopeTest, Llama3AtFullSize) {
  const auto f = rope_frequencies({.scaling = Scaling::llama3,
                                   .theta = 5e5,
                                   .rotary_dim = 128,
                                   .factor = 8,
                                   .original_context = 8192})
                     .inv_freq;
  const std::pair<int, double> anchors[] = {{28, .003211446},   {29, .0021665708},
                                            {30, .0013718936},  {34, .00017850781},
                                            {35, 9.5562124e-5}, {36, 7.7846553e-5}};
  for (const auto& [i, want] : anchors) EXPECT_NEAR(f[i], want, 1e-7 * want) << i;
}

TEST(RopeTest, YarnAtFullSize) {
  RopeConfig config = {.scaling = Scaling::yarn,
                       .theta = 1e4,
                       .rotary_dim = 64,
                       .factor = 40,
                       .original_context = 4096};
  const RopeFrequencies got = rope_frequencies(config);
  EXPECT_NEAR(got.inv_freq[16], 0.0055, 1e-7);
  EXPECT_NEAR(got.inv_freq[23], 3.3338e-5, 1e-9);
  EXPECT_NEAR(got.attention_factor, 0.1 * std::log(40.0) + 1, 1e-6);
  config.mscale = 1;
  config.mscale_all_dim = 0.5;
  EXPECT_NEAR(rope_frequencies(config).attention_factor,
              (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1), 1e-6);
  config.attention_factor = 0.75;
  EXPECT_EQ(rope_frequencies(config).attention_factor, 0.75f);
}

TEST(RopeTest, LinearDividesByTheFactor) {
  const auto plain = rope_frequencies({.rotary_dim = 8}).inv_freq;
  const auto scaled =
      rope_frequencies({.scaling = Scaling::linear, .rotary_dim = 8, .factor = 4}).inv_freq;
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

TEST(RopeTest, QueriesAreScaledByTheirShiftedPosition) {
  const RopeConfig config{
      .rotary_dim = 0, .original_context = 16, .query_beta = 0.1, .query_shift = 1};
  EXPECT_TRUE(rope_frequencies(config).inv_freq.empty());
  const std::vector<int32_t> positions = {0, 14, 15, 47};
  std::vector<float> factors(positions.size());
  query_factors(config, positions, View<float>(factors.data(), 4, 1));
  EXPECT_EQ(factors[0], 1);
  EXPECT_EQ(factors[1], 1);
  EXPECT_NEAR(factors[2], 1 + 0.1 * std::log(2.0), 1e-6);
  EXPECT_NEAR(factors[3], 1 + 0.1 * std::log(4.0), 1e-6);
}

TEST(RopeTest, AnglesOfEveryRow) {
  WorkerPool workers({.num_workers = 2});
  Backend backend = *Backend::create(detect_isa(), workers, 64);
  const RopeFrequencies frequencies = rope_frequencies(kGolden[1].config);
  std::vector<int32_t> positions(300);
  for (int i = 0; i < 300; ++i) positions[i] = 700 * i;
  std::vector<float> cos(300 * 20), sin(300 * 16);
  rope_angles(backend, frequencies, positions, View<float>(cos.data(), 300, 16, 20),
              View<float>(sin.data(), 300, 16));
  for (int r = 0; r < 300; ++r) {
    for (int i = 0; i < 16; ++i) {
      const float angle = static_cast<float>(positions[r]) * frequencies.inv_freq[i];
      ASSERT_NEAR(cos[r * 20 + i], std::cos(double{angle}) * 1.138629436111989, 2.5e-7);
      ASSERT_NEAR(sin[r * 16 + i], std::sin(double{angle}) * 1.138629436111989, 2.5e-7);
    }
  }
}

}  // namespace
}  // namespace hocket
