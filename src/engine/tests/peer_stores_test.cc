// Tests prompts that a peer could compute beside stores: what stores have here is not sent, and a
// peer whose folder takes no pages says so.
#include <fstream>

#include "engine/tests/peer_services.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class PeerStoresTest : public testing::PeerServicesTest {
 protected:
  // A decode service with files of its own.
  ServerSettings decoding_with_files(const ServerSettings& settings) const {
    ServerSettings mine = decoding(settings, port_);
    mine.memory.kv_cache_dir = (folder_ / "here").string();
    return mine;
  }
};

// In a model with states a prompt of 19 or 21 whole pages has its last state behind 18 or 20.
TEST_F(PeerStoresTest, APromptThatFilesHaveIsSentToNoPeer) {
  for (const Form* form : {&kBundled, &kDelta, &kMimo}) {
    for (const int num_tokens : {640, 700}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens", form->name, num_tokens));
      fs::remove_all(folder_);
      Service prefill(offering(plain(form), "prefill"));
      ASSERT_TRUE(prefill.works());
      const ServerSettings here = decoding_with_files(plain(form));
      Answer want;
      {
        ServerSettings alone = here;
        alone.peers = {};
        Service first(alone);
        want = ask(first, question(3, num_tokens));
      }
      Service decode(here);
      ASSERT_TRUE(decode.works());
      const Answer got = ask(decode, question(3, num_tokens));
      expect_same(got, want);
      EXPECT_GE(got.summary.cached_tokens, num_tokens - 64 - 32);
      EXPECT_EQ(tier_of(prefill).served_prefills_total, 0u);
      RequestInput longer = question(3, num_tokens);
      for (const int token : random_tokens(4, 300)) longer.prompt.push_back(TokenId{token});
      ask(decode, std::move(longer));
      EXPECT_EQ(tier_of(prefill).served_prefills_total, 1u) << "so much is worth a peer";
    }
  }
}

}  // namespace
}  // namespace hocket
