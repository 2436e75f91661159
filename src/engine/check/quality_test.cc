// Tests how far rounded forms of the bundled model are from it, and the arithmetic of the distance.
#include "engine/check/quality.h"

#include <cmath>

#include "compute/weights/hf_config.h"
#include "engine/check/checker.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;

TEST(LogitDistance, IsWhatItsDefinitionSays) {
  const LogitTable plain = {.vocab_size = 2, .values = {0, 0, 3, 0}};
  const LogitTable rounded = {.vocab_size = 2, .values = {std::log(3.0f), 0, 0, 1}};
  const LogitDistance found = distance(plain, rounded);
  EXPECT_EQ(found.rows, 2);
  // p = (1/2, 1/2), q = (3/4, 1/4): KL = ln 2 - ln 3 / 2; then p = (e^3, 1), q = (1, e).
  const double first = std::log(2.0) - std::log(3.0) / 2;
  const double p = std::exp(3.0) / (std::exp(3.0) + 1), q = 1 / (1 + std::exp(1.0));
  const double second = p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q));
  EXPECT_NEAR(found.kl_mean, (first + second) / 2, 1e-7);
  EXPECT_EQ(found.sure_rows, 1);
  EXPECT_EQ(found.sure_changed, 1);
  EXPECT_NEAR(found.diff_mean, (std::log(3.0) + 3 + 1) / 4, 1e-7);
  EXPECT_EQ(found.max_diff, 3);
}

TEST(Recorded, AFileWithoutAnEndIsRefusedAndSoIsAFolder) {
  EXPECT_EQ(read_recorded("/dev/zero").error().code, ErrorCode::bad_value);
  EXPECT_EQ(read_recorded("/").error().code, ErrorCode::io);
  EXPECT_EQ(read_recorded("/nowhere").error().code, ErrorCode::model_not_found);
}

TEST(LogitDistance, OfEqualTablesIsNothing) {
  const LogitTable table = {.vocab_size = 3, .values = {1, -7, 2, 0, 0, 9}};
  const LogitDistance found = distance(table, table);
  EXPECT_EQ(found.kl_mean, 0);
  EXPECT_EQ(found.sure_changed, 0);
  EXPECT_EQ(found.max_diff, 0);
}

TEST(LogitDistance, ANanIsNoSmallDistance) {
  const LogitTable plain = {.vocab_size = 2, .values = {0, 1}};
  const LogitTable broken = {.vocab_size = 2, .values = {0, std::nanf("")}};
  EXPECT_FALSE(distance(plain, broken).kl_mean <= 1e9);
}

// Magnitudes that differ from block to block let the experts' results drown the row that they are
// added to, and with it int4 is ten times farther off than in the folder whose blocks are alike.
// The float32 copy of these files is equally far, rounded here or by nearest numbers elsewhere.
TEST(Quality, BlocksThatAreRoundedAgainAreWithinTheBoundsOfInt4) {
  ServerSettings settings = settings_for("tests/golden/deepseek_v3_fp8");
  settings.model.quantization = "int4";
  const std::filesystem::path folder = settings.model.model_path;
  const auto config = read_hf_config(folder);
  ASSERT_TRUE(config.has_value()) << describe(config.error());
  const auto reference = Reference::read(folder, *config);
  ASSERT_TRUE(reference.has_value()) << describe(reference.error());
  const auto lines =
      check_quality({.settings = settings, .against = {}, .progress = {}}, scripts_of(*reference));
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  ASSERT_EQ(lines->size(), 4);
  for (const CheckLine& line : *lines) EXPECT_TRUE(line.ok) << line.quantity << " " << line.worst;
  EXPECT_LT((*lines)[0].worst, 0.08);  // KL
  // Four tokens are sure, of which one may change.
  EXPECT_EQ((*lines)[1].compared, 4);
  EXPECT_EQ((*lines)[1].tolerance.atol, 0.25);
}

// Blocks of GGUF files, with rows in int8, against the same file in float32. Each bound is three
// times the figure of docs/models.md.
TEST(GgufQuality, InTheFormThatFilesAreServedIn) {
  const std::pair<const char*, double> kFiles[] = {
      {"gguf_llama", 4e-5}, {"gguf_qwen3moe", 0.0088}, {"gguf_deepseek2", 0.0033}};
  for (const auto& [name, bound] : kFiles) {
    SCOPED_TRACE(name);
    const ServerSettings settings = settings_for(std::filesystem::path("tests/golden") / name);
    const std::filesystem::path folder = settings.model.model_path;
    const auto config = read_hf_config(folder);
    ASSERT_TRUE(config.has_value()) << describe(config.error());
    const auto reference = Reference::read(folder, *config);
    ASSERT_TRUE(reference.has_value()) << describe(reference.error());
    const auto lines = check_quality({.settings = settings, .against = {}, .progress = {}},
                                     scripts_of(*reference));
    ASSERT_TRUE(lines.has_value()) << describe(lines.error());
    ASSERT_FALSE(lines->empty());
    const CheckLine& divergence = lines->front();
    std::printf("%-16s mean KL %.3g\n", name, divergence.worst);
    EXPECT_EQ(divergence.measure, std::string("mean"));
    EXPECT_GT(divergence.worst, 0);
    EXPECT_LT(divergence.worst, bound);
  }
}

struct RoundingCase {
  const char* name;
  const char* quantization = "none";
  const char* kv_cache_dtype = "auto";
  const char* dispatch_dtype = "auto";
  const char* combine_dtype = "auto";
};
class GoldenQuality : public ::testing::TestWithParam<RoundingCase> {};

TEST_P(GoldenQuality, OfTheBundledModel) {
  ServerSettings settings = settings_for("models/hocket-tiny-qwen3-moe");
  const auto recorded =
      read_recorded(std::filesystem::path(settings.model.model_path) / "expected.json");
  ASSERT_TRUE(recorded.has_value()) << describe(recorded.error());
  settings.model.quantization = GetParam().quantization;
  settings.memory.kv_cache_dtype = GetParam().kv_cache_dtype;
  settings.parallel.dispatch_dtype = GetParam().dispatch_dtype;
  settings.parallel.combine_dtype = GetParam().combine_dtype;
  const auto lines =
      check_quality({.settings = settings, .against = {}, .progress = {}}, scripts_of(*recorded));
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  EXPECT_EQ(lines->size(), 4);
  for (const CheckLine& line : *lines) {
    std::printf("%-8s %s %-24s %5ld rows, %s %.3g of %.3g\n", line.dtype.c_str(), line.way.c_str(),
                line.quantity.c_str(), static_cast<long>(line.compared), line.measure, line.worst,
                line.tolerance.atol);
    EXPECT_TRUE(line.ok) << line.quantity;
    if (line.quantity != "sure tokens changed") {
      EXPECT_GT(line.worst, 0) << line.quantity;
    }
    EXPECT_GT(line.compared, 1000) << line.quantity;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GoldenQuality,
    ::testing::Values(RoundingCase{"int8", "int8", "auto"}, RoundingCase{"int4", "int4", "auto"},
                      RoundingCase{"int8_kv", "none", "int8"},
                      RoundingCase{"int8_dispatch", "none", "auto", "int8"},
                      RoundingCase{"int8_combine", "none", "auto", "auto", "int8"}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
