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
  // Has every write of a page below the folder fail, also for root.
  static void spoil(const fs::path& folder) {
    for (const auto& form : fs::directory_iterator(folder)) {
      if (!form.is_directory()) continue;
      for (int i = 0; i < 256; ++i) {
        const fs::path place = form.path() / fmt::format("{:02x}", i);
        fs::remove_all(place);
        std::ofstream(place) << "no folder";
      }
    }
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

// The first prompt ends in the middle, since its pages cannot be written; the second is not taken.
TEST_F(PeerStoresTest, APeerWhoseFolderTakesNoPagesIsAskedForNoPrompt) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  spoil(folder_);
  Service decode(decoding(plain(), port_));
  for (const int seed : {1, 2}) {
    expect_same(ask(decode, question(seed)), computed(plain(), question(seed)));
    EXPECT_EQ(tier_of(prefill).served_prefills_total, 1u);
    EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
  }
  EXPECT_EQ(tier_of(decode).peer_refusals_total, 1u);
}

}  // namespace
}  // namespace hocket
