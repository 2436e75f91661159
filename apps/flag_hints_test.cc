#include "apps/flag_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "apps/flags.h"

namespace hocket {
namespace {

std::set<std::string> own_flags() {
  ServerSettings settings;
  std::set<std::string> names;
  for (const FlagGroup& group : settings_flags(settings))
    for (const Flag& flag : group.flags) names.insert("--" + flag.name);
  return names;
}

TEST(FlagHints, NameOnlyFlagsThatExistAndTranslateNone) {
  const std::set<std::string> own = own_flags();
  const std::regex flag("--[a-z0-9-]+");
  for (const auto& [name, hint] : flag_hints()) {
    EXPECT_FALSE(own.contains(std::string(name))) << name << " is a flag of hocket";
    const std::string text(hint);
    for (std::sregex_iterator found(text.begin(), text.end(), flag), end; found != end; ++found)
      EXPECT_TRUE(own.contains(found->str())) << name << ": " << text;
  }
}

// LightLLM chooses its micro-batches for each phase; its and SGLang's command lines have more that
// hocket answers.
TEST(FlagHints, AnswerTheCommandLinesOfOtherOverlaps) {
  for (const auto& [name, flag] :
       {std::pair("--enable_prefill_microbatch_overlap", "--overlap-order-prefill"),
        std::pair("--enable_decode_microbatch_overlap", "--overlap-order-decode"),
        std::pair("--enable-dbo", "--enable-two-batch-overlap"), std::pair("--tp", "--ep-size"),
        std::pair("--ep", "--ep-size"), std::pair("--disable_cudagraph", "nothing")}) {
    const std::optional<std::string_view> hint = flag_hint(name);
    ASSERT_TRUE(hint.has_value()) << name;
    EXPECT_THAT(std::string(*hint), ::testing::HasSubstr(flag)) << name;
  }
}

}  // namespace
}  // namespace hocket
