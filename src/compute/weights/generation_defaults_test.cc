#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "compute/weights/hf_config.h"
#include "compute/weights/weight_folder_testing.h"
#include "core/request_bounds.h"
#include "gguf/testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

TEST(GenerationDefaults, ADefaultThatNoRequestMaySetIsRefusedByName) {
  const TestFolder folder;
  for (const SamplingNumber& one : kSamplingNumbers) {
    if (one.field == "frequency_penalty" || one.field == "presence_penalty") continue;  // not read
    const auto written = [&](double number) {
      std::ofstream(folder.path() / "generation_config.json")
          << fmt::format(R"({{"{}":{}}})", one.field, number);
      return read_generation_defaults(folder.path());
    };
    EXPECT_TRUE(written(one.range.high).has_value()) << one.field;
    for (const double number : {one.range.low - 1, one.range.high + 1}) {
      const auto refused = written(number);
      ASSERT_FALSE(refused.has_value()) << one.field << number;
      EXPECT_THAT(refused.error().message, HasSubstr(std::string(one.field)));
    }
    EXPECT_EQ(written(one.range.low).has_value(), !one.range.low_excluded) << one.field;
  }
}

// A file beside a GGUF file counts more than the metadata in it.
TEST(GenerationDefaults, GgufFilesHaveThemInTheirMetadataOrBeside) {
  const TestFolder folder;
  const auto written = [&](float temperature) {
    std::ofstream(folder.path() / "model.gguf", std::ios::binary)
        << GgufText()
               .counts(0, 2)
               .f32_value("general.sampling.temp", temperature)
               .u32_value("general.sampling.top_k", 20)
               .bytes_as_text();
    return read_generation_defaults(folder.path() / "model.gguf");
  };
  const auto defaults = written(0.6F);
  ASSERT_TRUE(defaults.has_value()) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_FALSE(defaults->top_p.has_value());
  const auto refused = written(-1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("model.gguf"));
  std::ofstream(folder.path() / "generation_config.json") << R"({"top_p":0.5})";
  const auto beside = written(-1);
  ASSERT_TRUE(beside.has_value()) << beside.error().message;
  EXPECT_EQ(beside->top_p, 0.5);
  EXPECT_FALSE(beside->temperature.has_value());
}

}  // namespace
}  // namespace hocket
