#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "compute/weights/hf_config.h"
#include "compute/weights/test_folder.h"
#include "core/request_bounds.h"

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

}  // namespace
}  // namespace hocket
