// Tests which of several services that compute prompts gets the next turn of a conversation.
#include <algorithm>
#include <vector>

#include "engine/tests/peer_services.h"

namespace hocket {
namespace {

using namespace testing;

class PeerChoiceTest : public testing::PeerServicesTest {
 protected:
  // A service that computes prompts, with files of its own.
  ServerSettings computing(const std::string& name) {
    ServerSettings settings = offering(plain(), "prefill");
    settings.memory.kv_cache_dir = (folder_ / name).string();
    return settings;
  }
  static RequestInput turn(int conversation, int number) {
    RequestInput input = question(conversation, 600);
    if (number == 1) return input;
    for (const int token : random_tokens(100 + conversation, 300))
      input.prompt.push_back(TokenId{token});
    return input;
  }
};

// Without a load, services take turns: three conversations alternate, and so would their next ones.
TEST_F(PeerChoiceTest, TheNextTurnGoesToTheServiceThatHasTheFirstOne) {
  Service first(computing("first"));
  const std::string place = fmt::format("127.0.0.1:{},", port_);
  Service second(computing("second"));
  ASSERT_TRUE((first.works() && second.works()));
  Service decode(decoding(plain(), place + fmt::format("127.0.0.1:{}", port_)));
  ASSERT_TRUE(decode.works());
  const auto goes_to_first = [&](const RequestInput& input) {
    const uint64_t before = tier_of(first).served_prefills_total;
    ask(decode, input);
    return tier_of(first).served_prefills_total > before;
  };
  std::vector<bool> places;
  for (int i = 1; i <= 3; ++i) places.push_back(goes_to_first(turn(i, 1)));
  const auto num_first = std::ranges::count(places, true);
  EXPECT_TRUE(num_first == 1 || num_first == 2) << num_first;
  ASSERT_TRUE(decode.engine().flush_cache());
  for (int i = 1; i <= 3; ++i)
    EXPECT_TRUE(goes_to_first(turn(i, 2)) == places[static_cast<size_t>(i - 1)]) << i;
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 6u);
}

}  // namespace
}  // namespace hocket
