// Tests the turns of prompts that a peer computes, over a pool that has no room for all of them,
// and beside prompts that a store has.
#include <array>
#include <cstdint>
#include <vector>

#include "base/clock_testing.h"
#include "engine/tests/tier_world.h"

namespace hocket {
namespace {

using namespace testing;

class PeerTurnsTest : public testing::FolderTest {
 protected:
  static constexpr int kPages = 32, kTokens = 32;  // pages of the pool, and tokens of each
  static constexpr int64_t kPageBytes = 2 * kTokens * 128 * 2;

  static TierWorld::Options options_of(int num_pages) {
    TierWorld::Options options;
    options.page = {.num_heads = 1, .key_dim = 128, .value_dim = 128, .page_tokens = kTokens};
    options.scheduler = {.num_pages = num_pages,
                         .max_running_requests = 16,
                         .chunk_tokens = 256,
                         .max_prefill_tokens = 512,
                         .context_length = 1024,
                         .vocab_size = 1000};
    options.tier.prefetch = StoragePrefetch::wait_complete;
    return options;
  }
  void start(int num_pages = kPages) {
    TierWorld::Options options = options_of(num_pages);
    forms_ =
        std::make_shared<const PageForms>(PageForms::Parts{.pages = {.layers = {options.page}}});
    files_ = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                         FileStore::calls_for(folder_));
    const PrefillRole::Options computes{.mode = Disaggregation::prefill, .can_prefill = true};
    server_ = PageServer::create(
                  {.address = resolve({.host = "127.0.0.1"}).value().front(),
                   .forms = forms_,
                   .page_bytes = kPageBytes,
                   .files = files_,
                   .counts = std::make_shared<PageServer::Counts>(),
                   .prefills = prefills_,
                   .role = std::make_shared<PrefillRole>(computes),
                   .submit = [this](const PrefillPrompt& asked) { return take(asked.tokens); },
                   .abort = [](RequestId) {}})
                  .value();
    server_->start();
    options.tier.num_senders = TierBuffers::kMinSenders;
    options.tier.role = std::make_shared<PrefillRole>(
        PrefillRole::Options{.mode = Disaggregation::decode, .can_decode = true});
    options.tier.peers = peer();
    world_ = std::make_unique<TierWorld>(options, store_, clock_);
  }
  std::shared_ptr<PeerSource> peer() const {
    return std::make_shared<PeerSource>(
        PeerSource::Options{.peers = {{.host = "127.0.0.1", .port = server_->address().port()}},
                            .use = PeerUse::prefill,
                            .forms = forms_});
  }
  // The peer notes each prompt, and computes none.
  Result<RequestId> take(const std::vector<TokenId>& tokens) {
    const MutexLock lock(mutex_);
    taken_.push_back(std::ssize(tokens));
    const RequestId id{static_cast<uint64_t>(taken_.size())};
    EXPECT_TRUE(prefills_->begin(id));
    return id;
  }
  std::vector<ptrdiff_t> taken() const {
    const MutexLock lock(mutex_);
    return taken_;
  }
  static std::vector<TokenId> prompt_of(uint64_t id, int num_tokens) {
    return std::vector<TokenId>(static_cast<size_t>(num_tokens), TokenId{static_cast<int32_t>(id)});
  }
  void add(uint64_t id, int num_tokens) { ASSERT_TRUE(world_->add(id, prompt_of(id, num_tokens))); }

  FakeClock clock_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  const std::shared_ptr<PrefillWatch> prefills_ = std::make_shared<PrefillWatch>();
  mutable Mutex mutex_;
  std::vector<ptrdiff_t> taken_ HOCKET_GUARDED_BY(mutex_);
  std::shared_ptr<const PageForms> forms_;
  std::shared_ptr<FileStore> files_;
  std::unique_ptr<PageServer> server_;
  std::unique_ptr<TierWorld> world_;
};

// The small prompt that comes later would find room beside the first one.
TEST_F(PeerTurnsTest, ALargePromptWaitsForNoneThatCameLater) {
  start();
  add(1, 330);
  ASSERT_TRUE(world_->wait_until([&] { return taken().size() == 1; }));
  add(2, 800);
  add(3, 340);
  for (uint64_t ended = 1; ended <= 3; ++ended) {
    ASSERT_TRUE(world_->run_until([&] { return taken().size() == ended; }));
    prefills_->end(RequestId{ended});
    ASSERT_TRUE(world_->run_until([&] { return world_->ended().contains(ended); }));
  }
  EXPECT_EQ(taken(), (std::vector<ptrdiff_t>{330, 800, 340}));
  EXPECT_EQ(world_->tier().stats().peer_short_prompts_total, 3u) << "the peer has computed none";
}

// The third prompt finds no room beside the second one; the fourth needs none behind the first.
TEST_F(PeerTurnsTest, APromptThatTheCacheHasByNowWaitsForNoRoom) {
  start(48);
  add(1, 330);
  ASSERT_TRUE(world_->wait_until([&] { return taken().size() == 1; }));
  add(2, 700);
  ASSERT_TRUE(world_->wait_until([&] { return taken().size() == 2; }));
  add(3, 900);
  ASSERT_TRUE(world_->add(4, prompt_of(1, 330)));
  prefills_->end(RequestId{1});
  ASSERT_TRUE(world_->run_until([&] { return world_->ended().contains(4); }));
  EXPECT_EQ(world_->ended().at(4).cached, 320);
  EXPECT_EQ(taken().size(), 2u);
  prefills_->end(RequestId{2});
  ASSERT_TRUE(world_->run_until([&] { return taken().size() == 3; }));
  prefills_->end(RequestId{3});
  ASSERT_TRUE(world_->run_all());
}

// The turn of a prompt whose client has left goes to the next one.
TEST_F(PeerTurnsTest, APromptThatIsForgottenHoldsUpNobody) {
  start();
  add(1, 330);
  ASSERT_TRUE(world_->wait_until([&] { return taken().size() == 1; }));
  add(2, 800);
  add(3, 340);
  world_->abort(2);
  ASSERT_TRUE(world_->run_until([&] { return taken().size() == 2; }));
  EXPECT_EQ(taken(), (std::vector<ptrdiff_t>{330, 340}));
  for (const uint64_t id : {1, 2}) prefills_->end(RequestId{id});
  ASSERT_TRUE(world_->run_all());
}

// The peer would compute it, and its pages would find no room.
TEST_F(PeerTurnsTest, APromptIsSentWhenThePoolHasRoomBesideARunningAnswer) {
  start();
  ASSERT_TRUE(world_->add(1, prompt_of(1, 200), 700));
  ASSERT_TRUE(world_->run_until([&] { return world_->scheduler().stats().num_free_pages < 12; }));
  ASSERT_EQ(world_->scheduler().stats().num_running, 1);
  add(2, 800);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world_->step());
  EXPECT_EQ(world_->tier().stats().num_waiting[static_cast<size_t>(PageWait::room)], 1);
  EXPECT_TRUE(taken().empty());
  world_->abort(1);
  ASSERT_TRUE(world_->run_until([&] { return taken().size() == 1; }));
  prefills_->end(RequestId{1});
  ASSERT_TRUE(world_->run_all());
  EXPECT_EQ(taken(), (std::vector<ptrdiff_t>{800}));
}

// Each prompt under way at a peer takes one of as many threads.
TEST_F(PeerTurnsTest, PromptsThatPeersComputeKeepNoOtherFromItsPages) {
  constexpr uint64_t kSent = TierBuffers::kMinSenders;
  {
    TierWorld writer(options_of(128), store_, clock_);
    ASSERT_TRUE(writer.add(kSent + 1, prompt_of(kSent + 1, 330)));
    ASSERT_TRUE(writer.run_all());
    ASSERT_TRUE(writer.wait_until([&] { return store_->size() == 10; }));
  }
  start(128);
  for (uint64_t id = 1; id <= kSent; ++id) add(id, 330);
  ASSERT_TRUE(world_->wait_until([&] { return taken().size() == kSent; }));
  add(kSent + 1, 330);
  ASSERT_TRUE(world_->run_until([&] { return world_->ended().contains(kSent + 1); }));
  EXPECT_EQ(world_->ended().at(kSent + 1).cached, 320);
  EXPECT_EQ(taken().size(), kSent);
  EXPECT_EQ(world_->tier().stats().peer_short_prompts_total, 0u);
  for (uint64_t id = 1; id <= kSent; ++id) prefills_->end(RequestId{id});
  ASSERT_TRUE(world_->run_all());
}

// All of its pages may have come, but it goes on from an earlier state.
TEST_F(PeerTurnsTest, APromptThatLacksItsLastStateAloneIsShort) {
  start();
  constexpr PageKey kEarlier = {1}, kLast = {2};
  const std::vector<std::byte> bytes(kPageBytes, std::byte{5});
  const auto source = peer();
  const auto num_held = [&](uint64_t id) -> size_t {
    const std::vector<TokenId> prompt = prompt_of(id, 330);
    const auto pages =
        source->open({.prompt = prompt, .computes = true, .is_over = [] { return false; }});
    if (!pages || *pages == nullptr) return SIZE_MAX;
    prefills_->end(RequestId{id});
    return (*pages)->last_held(std::array{kEarlier, kLast}).value_or(SIZE_MAX);
  };
  const auto put = [&](const PageKey& key) {
    const PageStore::Page one{.key = key, .bytes = bytes};
    return files_->put({&one, 1}, [] { return false; }).value_or(0);
  };
  ASSERT_EQ(put(kEarlier), 1u);
  EXPECT_EQ(num_held(1), 1u);
  EXPECT_EQ(source->counts().peer_short_prompts_total, 1u);
  ASSERT_EQ(put(kLast), 1u);
  EXPECT_EQ(num_held(2), 2u);
  EXPECT_EQ(source->counts().peer_short_prompts_total, 1u);
}

}  // namespace
}  // namespace hocket
