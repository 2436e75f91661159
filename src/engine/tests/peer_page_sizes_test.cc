// Tests services whose pages have different sizes: an answer has the same bits, whatever the sizes
// of the pages in which its prompt was computed and taken.
#include "engine/tests/peer_services.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class PeerPageSizesTest : public testing::PeerServicesTest {
 protected:
  struct Sizes {
    int there, here;
  };
  static constexpr Sizes kSizes[] = {{32, 64}, {32, 128}, {128, 32}, {1, 32}, {32, 1}, {16, 64}};

  static ServerSettings with_pages(ServerSettings settings, int page_tokens) {
    settings.memory.page_size = page_tokens;
    int& chunk = settings.scheduler.chunked_prefill_size;
    if (chunk > 0) chunk = std::max(chunk, page_tokens);
    return settings;
  }
};

// Full attention, latents, delta nets with states, windows, keys of eight bits; the prefill service
// has two ranks or one, and so has the service that answers.
TEST_F(PeerPageSizesTest, APromptThatAPeerComputesGivesTheSameAnswer) {
  for (const Form& form : {kMoe, kMla, kDelta, kInt8Kv, kMimo}) {
    const RequestInput input = question(3, 600);
    const Answer want = computed(plain(&form), input);
    int num_ranks = 1;
    for (const auto [there, here] : kSizes) {
      SCOPED_TRACE(fmt::format("{}, {} tokens to {}, {} ranks", form.name, there, here, num_ranks));
      fs::remove_all(folder_);
      Service prefill(offering(with_pages(plain(&form, num_ranks), there), "prefill"));
      ASSERT_TRUE(prefill.works());
      num_ranks = 3 - num_ranks;
      Service decode(decoding(with_pages(plain(&form, num_ranks), here), port_));
      ASSERT_TRUE(decode.works());
      const Answer got = ask(decode, input);
      expect_same(got, want);
      EXPECT_GE(got.summary.cached_tokens, 512);
      EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
      EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
      EXPECT_EQ(tier_of(prefill).num_left_out(), 0u);
    }
  }
}

// The rows of a module are part of a page, too.
TEST_F(PeerPageSizesTest, TheModuleDraftsBehindAPromptThatAPeerComputes) {
  for (const Form& form : {kBundled, kMimo}) {
    for (const auto [there, here] : {Sizes{32, 64}, Sizes{64, 32}, Sizes{1, 32}}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens to {}", form.name, there, here));
      fs::remove_all(folder_);
      ServerSettings drafting = plain(&form);
      drafting.scheduler.chunked_prefill_size = -1;
      drafting.speculation = {.algorithm = "NEXTN", .num_steps = 2};
      RequestInput input = question(1, 600);
      input.sampling.max_new_tokens = 30;
      const Answer want = computed(plain(&form), input);
      Service prefill(offering(with_pages(drafting, there), "prefill"));
      ASSERT_TRUE(prefill.works());
      Service decode(decoding(with_pages(drafting, here), port_));
      ASSERT_TRUE(decode.works());
      const Answer got = ask(decode, input);
      expect_same(got, want);
      EXPECT_GE(got.summary.cached_tokens, 512);
      EXPECT_GT(decode.engine().stats().scheduler.num_verified_total, 5u);
    }
  }
}

// No prompt is computed for the service that asks.
TEST_F(PeerPageSizesTest, APrefixComesFromAPeerThatHasItInOtherPages) {
  const Answer want = computed(plain(), question(1));
  Service peer(offering(plain()));
  ASSERT_TRUE(peer.works());
  ask(peer, question(1));
  ASSERT_TRUE(peer.read_until([&] { return tier_of(peer).pages_written_total >= 21; }));
  for (const int here : {1, 64, 128}) {
    SCOPED_TRACE(here);
    Service service(asking(with_pages(plain(), here), port_));
    const Answer got = ask(service, question(1));
    expect_same(got, want);
    // The peer has 21 pages of 32 tokens of the 699.
    EXPECT_GE(got.summary.cached_tokens, 672 / here * here);
    EXPECT_EQ(tier_of(service).peer_pages_total, static_cast<uint64_t>(672 / here * here / 32));
  }
}

// The peer keeps the windows of its own borders alone, and these make no window in larger pages.
TEST_F(PeerPageSizesTest, NoPagesTravelForAWindowThatThePeerHasInPart) {
  constexpr int kPrompt = 673;  // its last border at the peer, 672, is an end of a page here
  Service peer(offering(with_pages(plain(&kMimo), 1)));
  ASSERT_TRUE(peer.works());
  const Answer want = ask(peer, question(1, kPrompt));
  ASSERT_TRUE(peer.read_until([&] { return tier_of(peer).pages_written_total > kPrompt; }));
  Service service(asking(with_pages(plain(&kMimo), 32), port_));
  const Answer got = ask(service, question(1, kPrompt));
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 0);
  EXPECT_EQ(tier_of(service).peer_pages_total, 0u);
}

// The prefill service has computed the prompt for a client of its own.
TEST_F(PeerPageSizesTest, APromptThatThePeerKnowsComesWithAState) {
  const Answer want = computed(plain(&kDelta), question(3, 600));
  Service prefill(offering(with_pages(plain(&kDelta), 32), "prefill"));
  ASSERT_TRUE(prefill.works());
  expect_same(ask(prefill, question(3, 600)), want);
  Service decode(decoding(with_pages(plain(&kDelta), 128), port_));
  const Answer got = ask(decode, question(3, 600));
  expect_same(got, want);
  EXPECT_GE(got.summary.cached_tokens, 512);
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
}

// The prefill service knows the prompt, with the window at its end, and has evicted those before it
// from which one is made in larger pages. It computes them again once; then its files have them.
TEST_F(PeerPageSizesTest, WindowsThatThePeerHasEvictedAreComputedAgain) {
  // Where a message ends, the next turn may begin, so all windows behind an end token would be
  // kept.
  const auto without_ends = [](RequestInput asked) {
    std::ranges::replace(asked.prompt, TokenId{2}, TokenId{3});
    return asked;
  };
  const RequestInput input = without_ends(question(3, 530));
  ServerSettings few = with_pages(plain(&kMimo), 32);
  few.memory.max_total_tokens = 4096;  // no page of other layers is evicted
  few.memory.swa_full_tokens_ratio = 0.1;
  Service prefill(offering(few, "prefill"));
  ASSERT_TRUE(prefill.works());
  const Answer want = ask(prefill, input);
  ask(prefill, without_ends(question(4, 600)));
  const auto recomputed = [&] {
    return prefill.engine().stats().scheduler.recomputed_tokens_total;
  };
  ASSERT_EQ(recomputed(), 0u);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    Service decode(decoding(with_pages(plain(&kMimo), 128), port_));
    const Answer got = ask(decode, input);
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 512);
    EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
    EXPECT_GE(recomputed(), 128u);
    EXPECT_LE(recomputed(), 600u) << "the second time its files have them";
  }
}

// A prompt that goes on behind a known one asks for the rest alone.
TEST_F(PeerPageSizesTest, OnlyTheRestOfAKnownPrefixMoves) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(with_pages(plain(), 64), port_));
  ask(decode, question(1));
  const uint64_t first = tier_of(decode).peer_pages_total;
  EXPECT_EQ(first, 640u / 32);
  RequestInput longer = question(1);
  for (const int token : random_tokens(2, 400)) longer.prompt.push_back(TokenId{token});
  expect_same(ask(decode, longer), computed(plain(), longer));
  EXPECT_EQ(tier_of(decode).peer_pages_total - first, (1088u - 640u) / 32);
}

// The next turn of a conversation continues from the states that the last prompt left.
TEST_F(PeerPageSizesTest, TurnsOfAConversationFindTheirStates) {
  for (const Form& form : {kDelta, kMimo}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    Service prefill(offering(with_pages(plain(&form), 32), "prefill"));
    ASSERT_TRUE(prefill.works());
    Service decode(decoding(with_pages(plain(&form), 128), port_));
    RequestInput input = question(1, 400);
    for (int turn = 0; turn < 3; ++turn) {
      const Answer got = ask(decode, input);
      expect_same(got, computed(plain(&form), input));
      EXPECT_GE(got.summary.cached_tokens, static_cast<int>(input.prompt.size() - 1) / 128 * 128);
      for (const int token : got.tokens) input.prompt.push_back(TokenId{token});
      for (const int token : random_tokens(10 + turn, 280)) input.prompt.push_back(TokenId{token});
    }
  }
}

}  // namespace
}  // namespace hocket
