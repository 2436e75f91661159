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

// All ranks keep the same change, in whichever order they learn of them.
TEST(PrefillRole, AChangeThatArrivesLateChangesNothing) {
  const RoleChange first = {.mode = Disaggregation::prefill, .number = 1};
  const RoleChange at_once = {.mode = Disaggregation::decode, .number = 1};
  const RoleChange second = {.mode = Disaggregation::null, .number = 2};
  PrefillRole forth({.can_prefill = true, .can_decode = true});
  PrefillRole back({.can_prefill = true, .can_decode = true});
  for (const RoleChange& change : {first, at_once, second}) EXPECT_TRUE(forth.take(change));
  for (const RoleChange& change : {second, at_once, first}) EXPECT_TRUE(back.take(change));
  EXPECT_EQ(forth.mode(), Disaggregation::null);
  EXPECT_EQ(back.mode(), Disaggregation::null);
  EXPECT_TRUE(back.set(Disaggregation::prefill));
  EXPECT_EQ(back.last_change().number, 3u);
  PrefillRole one({.can_prefill = true, .can_decode = true});
  for (const RoleChange& change : {at_once, first}) EXPECT_TRUE(one.take(change));
  EXPECT_EQ(one.mode(), Disaggregation::decode);
  EXPECT_FALSE(one.take({.number = RoleChange::kMaxNumber + 1})) << "no number would come after";
  EXPECT_FALSE(PrefillRole({}).take(first)) << "it was started without what the mode needs";
}

// A rank with a wrong number must not bring the others to one that all of them refuse.
TEST(PrefillRole, BehindTheLargestNumberNoChangeIsMade) {
  PrefillRole role({.can_prefill = true, .can_decode = true});
  const RoleChange last = {.mode = Disaggregation::prefill, .number = RoleChange::kMaxNumber};
  ASSERT_TRUE(role.take(last));
  const auto changed = role.set(Disaggregation::decode);
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().fix.find("start"), std::string::npos);
  EXPECT_EQ(role.mode(), Disaggregation::prefill);
  EXPECT_EQ(role.last_change().number, RoleChange::kMaxNumber);
}

TEST(PrefillRole, NamesAreRead) {
  for (const char* name : {"null", "prefill", "decode", "auto"})
    EXPECT_EQ(disaggregation_name(parse_disaggregation(name).value()), name);
  EXPECT_FALSE(parse_disaggregation("both"));
}

}  // namespace
}  // namespace hocket
