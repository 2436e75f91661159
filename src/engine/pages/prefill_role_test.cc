// Tests when a service computes prompts of others, and others its own.
#include "engine/pages/prefill_role.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using namespace std::chrono_literals;

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

TEST(PrefillRole, ManyPromptsBesideAnswersAreSentAway) {
  PrefillRole role({.mode = Disaggregation::automatic, .can_prefill = true, .can_decode = true});
  TimePoint now = TimePoint{} + 1h;
  role.note_prompt(5s, 0, now);
  EXPECT_FALSE(role.sends_prompts()) << "no answer waits for it";
  role.note_prompt(100ms, 3, now += 60s);
  EXPECT_FALSE(role.sends_prompts()) << "it takes 1 % of the time";
  role.note_prompt(3s, 3, now += 1s);
  EXPECT_TRUE(role.sends_prompts());
  role.note_prompt(1s, 0, now += 5s);
  EXPECT_TRUE(role.sends_prompts()) << "it takes more than 10 %";
  role.note_prompt(500ms, 3, now += 30s);
  EXPECT_FALSE(role.sends_prompts());
}

}  // namespace
}  // namespace hocket
