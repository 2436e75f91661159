// Tests pages that move between services: an answer is the same whether its prompt was computed
// here, or its pages came from a peer that had them or computed them; and a peer that dies, hangs,
// sends damaged bytes or has another model costs nothing but time.
#include <fstream>

#include "engine/tests/peer_services.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class PeerPagesTest : public testing::PeerServicesTest {
 protected:
  // Expects that a prompt has the same answer if another service computes it.
  void answer_apart(const Form& form, int num_ranks_there, int num_ranks_here) {
    SCOPED_TRACE(fmt::format("{}, {} ranks for {}", form.name, num_ranks_there, num_ranks_here));
    fs::remove_all(folder_);
    const Answer want = computed(plain(&form), question(3, 600));
    Service prefill(offering(plain(&form, num_ranks_there), "prefill"));
    ASSERT_TRUE(prefill.works());
    Service decode(decoding(plain(&form, num_ranks_here), port_));
    ASSERT_TRUE(decode.works());
    const Answer got = ask(decode, question(3, 600));
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 500);
    EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
    EXPECT_EQ(tier_of(decode).peer_short_prompts_total, 0u);
    EXPECT_EQ(tier_of(prefill).served_prefills_total, 1u);
  }

  // Has the bundled model's decode service answer through a proxy, which `spoil` sets up.
  void answer_through_proxy(const std::function<void(TestProxy&)>& spoil) {
    Service prefill(offering(plain(), "prefill"));
    ASSERT_TRUE(prefill.works());
    TestProxy proxy(port_);
    spoil(proxy);
    Service decode(decoding(plain(), proxy.port()));
    expect_same(ask(decode, question(1)), computed(plain(), question(1)));
    EXPECT_GT(tier_of(decode).peer_failures_total, 0u);
    // The peer is left alone from here on.
    expect_same(ask(decode, question(2)), computed(plain(), question(2)));
    EXPECT_LE(tier_of(decode).peer_prefills_total, 1u);
  }

  // Asks until the service in mode auto has others compute its prompts, and waits for the answers.
  void keep_busy(Service& service) {
    const PrefillRole& role = *service.engine().parts().role;
    for (int round = 0; round < 50 && !role.sends_prompts(); ++round) {
      RequestInput answer = long_one(next_seed_++);
      answer.sampling.max_new_tokens = 100;
      const auto id = service.submit(std::move(answer));
      ASSERT_TRUE(id.has_value());
      ASSERT_TRUE(service.read_until([&] { return service.answer(*id).tokens.size() > 4; }));
      for (int i = 0; i < 10; ++i) {
        RequestInput prompt = question(next_seed_++);
        prompt.sampling.max_new_tokens = 1;
        ASSERT_TRUE(service.submit(std::move(prompt)));
      }
      ASSERT_TRUE(service.read_all());
    }
    ASSERT_TRUE(role.sends_prompts());
  }

  int next_seed_ = 1000;
};

TEST_F(PeerPagesTest, APrefixComesFromAPeerThatHasIt) {
  const Answer want = computed(plain(), question(1));
  Service peer(offering(plain()));
  ASSERT_TRUE(peer.works());
  ask(peer, question(1));
  ASSERT_TRUE(peer.read_until([&] { return tier_of(peer).pages_written_total >= 21; }));
  Service here(asking(plain(), port_));
  const Answer got = ask(here, question(1));
  expect_same(got, want);
  EXPECT_GT(got.summary.cached_tokens, 600);
  EXPECT_EQ(tier_of(here).peer_pages_total, 21u);
  EXPECT_EQ(tier_of(peer).served_pages_total, 21u);
  RequestInput foreign = question(1);
  foreign.cache_namespace = CacheNamespace(7);
  EXPECT_EQ(ask(here, std::move(foreign)).summary.cached_tokens, 0);
}

// Peers take turns, so that either of them is asked first.
TEST_F(PeerPagesTest, APrefixComesFromTheOnePeerOfTwoThatHasIt) {
  Service holder(offering(plain()));
  const Answer want = ask(holder, question(1));
  ASSERT_TRUE(holder.read_until([&] { return tier_of(holder).pages_written_total >= 21; }));
  const std::string holder_place = fmt::format(",127.0.0.1:{}", port_);
  ServerSettings empty = offering(plain());
  empty.memory.kv_cache_dir = (folder_ / "empty").string();
  Service other(empty);
  ASSERT_TRUE(other.works());
  ServerSettings both = asking(plain(), port_);
  both.peers.kv_cache_peers += holder_place;
  Service here(both);
  for ([[maybe_unused]] const int round : {0, 1}) {
    const Answer got = ask(here, question(1));
    expect_same(got, want);
    EXPECT_GT(got.summary.cached_tokens, 600);
    ASSERT_TRUE(here.engine().flush_cache());
  }
  EXPECT_EQ(tier_of(here).peer_pages_total, 42u);
}

// Full attention, latents, delta nets with states, windows, chunks.
TEST_F(PeerPagesTest, APromptThatAPeerComputesGivesTheSameAnswer) {
  for (const Form& form :
       {kMoe, kMla, kDelta, kKimiLinear, kInt8Kv, kMimo, kGptOss, kGemma4, kLlama4})
    for (const int num_ranks : {1, 2}) ASSERT_NO_FATAL_FAILURE(answer_apart(form, num_ranks, 1));
}

TEST_F(PeerPagesTest, FourRanksComputeAPromptForOneAndOneForFour) {
  for (const Form& form : {kMoe, kDelta, kMimo}) {
    ASSERT_NO_FATAL_FAILURE(answer_apart(form, 4, 1));
    ASSERT_NO_FATAL_FAILURE(answer_apart(form, 1, 4));
  }
}

TEST_F(PeerPagesTest, OnlyTheRestOfAKnownPrefixMoves) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(plain(), port_));
  ask(decode, question(1));
  const uint64_t first = tier_of(decode).peer_pages_total;
  RequestInput longer = question(1);
  for (const int token : random_tokens(2, 400)) longer.prompt.push_back(TokenId{token});
  const Answer want = computed(plain(), longer);
  expect_same(ask(decode, longer), want);
  EXPECT_GT(tier_of(decode).peer_pages_total, first);
  EXPECT_LE(tier_of(decode).peer_pages_total - first, 1100u / 32 - first);
}

TEST_F(PeerPagesTest, ManyPromptsAtOnceGetTheirOwnAnswers) {
  std::vector<Answer> want;
  for (int seed = 1; seed <= 5; ++seed) want.push_back(computed(plain(), question(seed)));
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(plain(), port_));
  std::vector<RequestId> ids;
  for (int seed = 1; seed <= 5; ++seed) ids.push_back(*decode.submit(question(seed)));
  ASSERT_TRUE(decode.read_all());
  for (size_t i = 0; i < ids.size(); ++i) expect_same(decode.answer(ids[i]), want[i]);
}

// More pages than there are buffers become known in one step; the engine waits for none of them.
TEST_F(PeerPagesTest, PagesThatFindNoBufferComeLater) {
  ServerSettings small_pages = plain();
  small_pages.memory.page_size = 1;
  small_pages.scheduler.chunked_prefill_size = -1;
  const Answer want = computed(small_pages, question(1, 1800));
  Service prefill(offering(small_pages, "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(small_pages, port_));
  const Answer got = ask(decode, question(1, 1800));
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 1799);
  EXPECT_EQ(tier_of(decode).peer_pages_total, 1799u);
  EXPECT_EQ(tier_of(prefill).num_left_out(), 0u);
}

TEST_F(PeerPagesTest, APeerThatDiesInTheMiddleCostsNoAnswer) {
  answer_through_proxy([](TestProxy& proxy) { proxy.set_after(200 << 10, TestProxy::Link::cut); });
}

// The connection ends in the greeting, at the consent to the form and to the prompt, and behind
// pages. The peer ends what it computes for nobody.
TEST_F(PeerPagesTest, APeerThatIsLostInAnyOfItsStatesCostsNoAnswer) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  int seed = 10;
  for (const int64_t bytes : {0, 1, 50, 100, 150, 200, 300, 1 << 10, 50 << 10, 200 << 10}) {
    SCOPED_TRACE(bytes);
    const RequestInput input = question(++seed);
    TestProxy proxy(port_);
    proxy.set_after(bytes, TestProxy::Link::cut);
    Service decode(decoding(plain(), proxy.port()));
    expect_same(ask(decode, input), computed(plain(), input));
    EXPECT_GT(tier_of(decode).peer_failures_total, 0u);
  }
  EXPECT_TRUE(prefill.read_until([&] {
    const SchedulerStats now = prefill.engine().stats().scheduler;
    return now.num_running + now.num_waiting == 0;
  }));
}

TEST_F(PeerPagesTest, APeerThatHangsCostsNoAnswer) {
  answer_through_proxy(
      [](TestProxy& proxy) { proxy.set_after(200 << 10, TestProxy::Link::frozen); });
}

TEST_F(PeerPagesTest, ABitThatFlipsOnTheWayIsFound) {
  answer_through_proxy([](TestProxy& proxy) { proxy.damage_after(100 << 10); });
}

TEST_F(PeerPagesTest, AnotherPeerTakesOver) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  TestProxy proxy(port_);
  proxy.set_after(200 << 10, TestProxy::Link::cut);
  Service decode(decoding(plain(), fmt::format("127.0.0.1:{},127.0.0.1:{}", proxy.port(), port_)));
  const Answer got = ask(decode, question(1));
  expect_same(got, computed(plain(), question(1)));
  EXPECT_GT(got.summary.cached_tokens, 600);
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 2u);
}

TEST_F(PeerPagesTest, ADamagedFileOfThePeerIsComputedHere) {
  Service peer(offering(plain()));
  ASSERT_TRUE(peer.works());
  ask(peer, question(1));
  ASSERT_TRUE(peer.read_until([&] { return tier_of(peer).pages_written_total >= 21; }));
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(1000);
    const int byte = file.get();
    file.seekp(1000);
    file.put(static_cast<char>(byte ^ 1));
  }
  Service here(asking(plain(), port_));
  const Answer got = ask(here, question(1));
  expect_same(got, computed(plain(), question(1)));
  EXPECT_EQ(got.summary.cached_tokens, 0);
}

TEST_F(PeerPagesTest, AnotherFormIsRefused) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  ServerSettings other = plain();
  other.memory.kv_cache_dtype = "int8";
  Service decode(decoding(other, port_));
  expect_same(ask(decode, question(1)), computed(other, question(1)));
  EXPECT_EQ(tier_of(decode).peer_pages_total, 0u);
  EXPECT_EQ(tier_of(decode).peer_failures_total, 1u);
}

// Nothing is held for a client that left.
TEST_F(PeerPagesTest, AClientThatLeavesAbortsItsPrompt) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  {
    Service decode(decoding(plain(), port_));
    const auto id = decode.submit(question(1, 1900));
    ASSERT_TRUE(id.has_value());
    ASSERT_TRUE(decode.read_until([&] { return tier_of(prefill).served_prefills_total > 0; }));
  }
  EXPECT_TRUE(prefill.read_until([&] { return prefill.engine().loads()[0].num_requests == 0; }));
  expect_same(ask(prefill, question(2)), computed(plain(), question(2)));
}

// Neither service starts again. Requests that are under way end as they began.
TEST_F(PeerPagesTest, RolesChangeWhileServicesRun) {
  Service prefill(offering(plain()));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(plain(), port_));
  PrefillRole& there = *prefill.engine().parts().role;
  PrefillRole& here = *decode.engine().parts().role;
  const auto ask_for = [&](int seed) {
    expect_same(ask(decode, question(seed)), computed(plain(), question(seed)));
    return tier_of(decode).peer_prefills_total;
  };
  EXPECT_EQ(ask_for(1), 0u) << "the peer computes no prompts of others";
  EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
  EXPECT_TRUE(there.set(Disaggregation::prefill));
  EXPECT_EQ(ask_for(2), 1u);
  const auto late = decode.submit(question(3, 1900));
  ASSERT_TRUE(late.has_value());
  ASSERT_TRUE(decode.read_until([&] { return tier_of(prefill).served_prefills_total == 2; }));
  EXPECT_TRUE(there.set(Disaggregation::null));
  EXPECT_TRUE(here.set(Disaggregation::null));
  ASSERT_TRUE(decode.read_all());
  expect_same(decode.answer(*late), computed(plain(), question(3, 1900)));
  EXPECT_EQ(ask_for(4), 2u);
  EXPECT_TRUE(there.set(Disaggregation::prefill));
  EXPECT_EQ(ask_for(5), 2u) << "this service computes its own";
  EXPECT_TRUE(here.set(Disaggregation::decode));
  EXPECT_EQ(ask_for(6), 3u);
}

// Both have more prompts than they can take beside their answers.
TEST_F(PeerPagesTest, APromptIsNotSentBack) {
  const uint16_t ports[] = {TestProxy::free_port(), TestProxy::free_port()};
  const auto settings = [&](size_t mine) {
    ServerSettings s = offering(plain(), "auto");
    s.memory.kv_cache_dir = (folder_ / fmt::format("{}", mine)).string();
    s.peers.kv_cache_listen = fmt::format("127.0.0.1:{}", ports[mine]);
    s.peers.disaggregation_prefill_url = fmt::format("127.0.0.1:{}", ports[1 - mine]);
    return s;
  };
  Service one(settings(0)), other(settings(1));
  ASSERT_TRUE((one.works() && other.works()));
  const Answer want = computed(plain(), question(1));
  // One has asked the other for prompts by then, perhaps.
  keep_busy(one), keep_busy(other);
  const CacheTierStats before = tier_of(one), before_there = tier_of(other);
  expect_same(ask(one, question(1)), want);
  EXPECT_EQ(tier_of(one).peer_prefills_total, before.peer_prefills_total + 1);
  EXPECT_EQ(tier_of(other).peer_prefills_total, before_there.peer_prefills_total);
  EXPECT_EQ(tier_of(other).served_prefills_total, before_there.served_prefills_total + 1);
}

// One client must not take the peer away from all others.
TEST_F(PeerPagesTest, APromptThatThePeerRefusesLeavesThePeerInUse) {
  ServerSettings small = plain();
  small.memory.max_total_tokens = small.model.context_length = 1024;
  Service prefill(offering(small, "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(plain(), port_));
  expect_same(ask(decode, question(1, 1500)), computed(plain(), question(1, 1500)));
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 0u);
  expect_same(ask(decode, question(2)), computed(plain(), question(2)));
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
  EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
}

TEST_F(PeerPagesTest, AClientThatLeavesIsNoFailureOfThePeer) {
  Service prefill(offering(plain(), "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(plain(), port_));
  const auto id = decode.submit(question(1, 1900));
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(decode.read_until([&] { return tier_of(prefill).served_prefills_total > 0; }));
  decode.engine().abort(*id);
  ASSERT_TRUE(decode.read_all());
  expect_same(ask(decode, question(2)), computed(plain(), question(2)));
  EXPECT_EQ(tier_of(decode).peer_failures_total, 0u);
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 2u);
}

TEST_F(PeerPagesTest, AStrangerWithoutTheTokenGetsNothing) {
  fs::create_directories(folder_);
  const fs::path token = folder_ / "token", other = folder_ / "other";
  std::ofstream(token) << "0123456789abcdef0123";
  std::ofstream(other) << "another token of some length";
  ServerSettings with_token = offering(plain(), "prefill");
  with_token.parallel.cluster_token_file = token.string();
  Service prefill(with_token);
  ASSERT_TRUE(prefill.works());
  ServerSettings stranger = decoding(plain(), port_);
  stranger.parallel.cluster_token_file = other.string();
  {
    Service decode(stranger);
    expect_same(ask(decode, question(1)), computed(plain(), question(1)));
    EXPECT_EQ(tier_of(decode).peer_prefills_total, 0u);
  }
  stranger.parallel.cluster_token_file = token.string();
  Service decode(stranger);
  EXPECT_GT(ask(decode, question(1)).summary.cached_tokens, 600);
}

TEST_F(PeerPagesTest, FlagsThatMeanNothingAreRefused) {
  const auto param = [](const ServerSettings& s) {
    return Engine::create({.settings = s}).error().param;
  };
  ServerSettings s = plain();
  s.peers.disaggregation_mode = "both";
  EXPECT_EQ(param(s), "disaggregation-mode");
  s.peers.disaggregation_mode = "decode";
  EXPECT_EQ(param(s), "disaggregation-prefill-url");
  s.peers.disaggregation_mode = "prefill";
  EXPECT_EQ(param(s), "kv-cache-listen");
  s.peers.disaggregation_mode = "auto";
  s.peers.disaggregation_prefill_url = "127.0.0.1:1";
  EXPECT_EQ(param(s), "kv-cache-listen");
  s.peers.kv_cache_peers = "127.0.0.1:1";
  s.peers.disaggregation_mode = "decode";
  EXPECT_EQ(param(s), "kv-cache-peers");
  s = plain();
  s.peers.disaggregation_mode = "prefill";
  s.peers.kv_cache_listen = "127.0.0.1:0";
  EXPECT_EQ(param(s), "kv-cache-dir");
  s = offering(plain());
  s.peers.kv_cache_listen = "0.0.0.0:0";  // open to others, and no token
  EXPECT_EQ(param(s), "kv-cache-listen");
  s = plain();
  s.peers.kv_cache_peers = "nobody";
  EXPECT_EQ(param(s), "kv-cache-peers");
}

}  // namespace
}  // namespace hocket
