#include "compute/kv/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace hocket {
namespace {

std::span<const std::byte> part(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex(const Hmac& sum) {
  std::string text;
  for (const uint8_t byte : sum) text += fmt::format("{:02x}", byte);
  return text;
}

// RFC 4231, test case 2.
TEST(Hmac, IsThatOfTheStandardHoweverTheTextIsCut) {
  constexpr std::string_view kText = "what do ya want for nothing?";
  const std::string want = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  for (size_t at = 0; at <= kText.size(); ++at)
    EXPECT_EQ(hex(hmac_sha256("Jefe", {part(kText.substr(0, at)), part(kText.substr(at))})), want);
  EXPECT_NE(hex(hmac_sha256("jefe", {part(kText)})), want);
  EXPECT_EQ(hex(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

}  // namespace
}  // namespace hocket
