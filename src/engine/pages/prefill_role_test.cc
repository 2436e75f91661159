// Tests how the role of a service (PrefillRole) is set.
#include "engine/pages/prefill_role.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(PrefillRole, ChangesOnlyToWhatItWasStartedFor) {
  PrefillRole none({});
  EXPECT_TRUE(none.set(Disaggregation::null));
  EXPECT_EQ(none.set(Disaggregation::prefill).error().param, "kv-cache-listen");
  EXPECT_EQ(none.set(Disaggregation::decode).error().param, "disaggregation-prefill-url");
  PrefillRole both({.can_prefill = true, .can_decode = true});
  EXPECT_FALSE(both.takes_prompts() || both.sends_prompts());
  EXPECT_TRUE(both.set(Disaggregation::prefill));
  EXPECT_TRUE(both.takes_prompts() && !both.sends_prompts());
  EXPECT_TRUE(both.set(Disaggregation::decode));
  EXPECT_TRUE(!both.takes_prompts() && both.sends_prompts());
  PrefillRole one({.can_decode = true});
  EXPECT_EQ(one.set(Disaggregation::automatic).error().param, "kv-cache-listen");
}

TEST(PrefillRole, NamesAreRead) {
  for (const char* name : {"null", "prefill", "decode", "auto"})
    EXPECT_EQ(disaggregation_name(parse_disaggregation(name).value()), name);
  EXPECT_FALSE(parse_disaggregation("both"));
}

}  // namespace
}  // namespace hocket
