#include "server/access/api_key.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Auth, ComparesWholeKeys) {
  EXPECT_TRUE(same_key("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "bbc", "abcabc"})
    EXPECT_FALSE(same_key(other, "abc")) << other;
}

}  // namespace
}  // namespace hocket
