// Tests prompts that a peer could compute beside stores: what stores have here is not sent, and a
// peer whose folder takes no pages says so.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

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
  static std::set<std::string> all_subfolders() {
    std::set<std::string> all;
    for (int i = 0; i < 256; ++i) all.insert(fmt::format("{:02x}", i));
    return all;
  }
  // Returns the folders in which there are pages, by their names.
  std::set<std::string> subfolders_of_pages() const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (is_page(entry)) found.insert(entry.path().parent_path().filename().string());
    return found;
  }
  // Has every write of a page to one of these folders fail, also for root.
  static void spoil(const fs::path& folder, const std::set<std::string>& subfolders) {
    for (const auto& form : fs::directory_iterator(folder)) {
      if (!form.is_directory()) continue;
      for (const std::string& subfolder : subfolders) {
        fs::remove_all(form.path() / subfolder);
        std::ofstream(form.path() / subfolder) << "no folder";
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
  spoil(folder_, all_subfolders());
  Service decode(decoding(plain(), port_));
  for (const int seed : {1, 2}) {
    expect_same(ask(decode, question(seed)), computed(plain(), question(seed)));
    EXPECT_EQ(tier_of(prefill).served_prefills_total, 1u);
    EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
  }
  EXPECT_EQ(tier_of(decode).peer_refusals_total, 1u);
}

// Only the first half of the pages can be written. They are used, and the others are computed by
// the service that asked; no more prompts are sent.
TEST_F(PeerStoresTest, ADiskThatGetsFullAtAPeerEndsItsPromptsAtOnce) {
  {
    Service service(offering(plain()));
    RequestInput half = question(1);
    half.prompt.resize(352);
    ask(service, std::move(half));
  }
  const std::set<std::string> early = subfolders_of_pages();
  {
    Service service(offering(plain()));
    ask(service, question(1));
  }
  std::set<std::string> late;
  std::ranges::set_difference(subfolders_of_pages(), early, std::inserter(late, late.end()));
  ASSERT_FALSE(late.empty());
  fs::remove_all(folder_);
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  spoil(folder_, late);
  Service decode(decoding(plain(), port_));
  const Answer first = ask(decode, question(1));
  expect_same(first, computed(plain(), question(1)));
  EXPECT_GT(first.summary.cached_tokens, 200);
  EXPECT_LT(first.summary.cached_tokens, 600);
  EXPECT_EQ(tier_of(decode).peer_short_prompts_total, 1u);
  expect_same(ask(decode, question(2)), computed(plain(), question(2)));
  EXPECT_EQ(tier_of(decode).peer_refusals_total, 1u);
  EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
  EXPECT_EQ(tier_of(prefill).served_prefills_total, 1u);
}

}  // namespace
}  // namespace hocket
