// Tests a rank over UCX to which strangers send messages: it ends while they keep its worker busy,
// and keeps none of them.
#ifdef HOCKET_HAS_UCX

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compute/comm/ucx_end.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

constexpr int kFloodTurns = 100'000;  // the flood ends then, so that a mistake fails this test
int num_turns_of_flood = 0;

unsigned progress_in_flood(ucp_worker_h worker) {
  const unsigned num_events = ucx_library().value()->ucp_worker_progress(worker);
  return ++num_turns_of_flood < kFloodTurns ? 1 : num_events;
}

TEST(UcxFlood, ARankThatIsNeverIdleLooksAtItsTimeLimit) {
  const UcxOptions options = testing::ucx_tcp();
  if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
  UcxLibrary flooded = *ucx_library().value();
  flooded.ucp_worker_progress = progress_in_flood;
  auto end = std::make_unique<UcxEnd>(flooded, 0, 2, options);
  ASSERT_TRUE(end->open().has_value());
  num_turns_of_flood = 0;
  end->withdraw();
  end.reset();
  EXPECT_GT(num_turns_of_flood, 0);
  EXPECT_LT(num_turns_of_flood, kFloodTurns / 10);
}

int num_removed = 0;

ucp_tag_message_h count_removed(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t mask, int removes,
                                ucp_tag_recv_info_t* info) {
  ucp_tag_message_h found =
      ucx_library().value()->ucp_tag_probe_nb(worker, tag, mask, removes, info);
  num_removed += removes != 0 && found != nullptr ? 1 : 0;
  return found;
}

class UcxStrangers : public ::testing::Test {
 protected:
  // Rank 0, rank 1, and one who says that it is rank 1 and knows no secret.
  enum Who : uint8_t { victim, peer, stranger };

  void SetUp() override {
    UcxOptions options = testing::ucx_tcp();
    options.patience = std::chrono::milliseconds(100);
    if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
    library_.ucp_tag_probe_nb = count_removed;
    num_removed = 0;
    for (const Who who : {victim, peer, stranger}) {
      ends_[who] = std::make_unique<UcxEnd>(library_, who == victim ? 0 : 1, 2, options);
      ASSERT_TRUE(ends_[who]->open().has_value());
    }
    connect(victim, {.in = 5, .out = 6}, peer);
    connect(peer, {.in = 6, .out = 5}, victim);
    connect(stranger, {.in = 5, .out = 6}, victim);
  }
  void connect(Who who, const UcxTransport::Secret& secret, Who with) {
    const size_t other = who == victim ? 1 : 0;
    std::array<UcxTransport::Secret, 2> secrets;
    secrets[other] = secret;
    ends_[who]->set_secrets(secrets);
    std::array<std::span<const std::byte>, 2> addresses;
    addresses[other] = ends_[with]->address();
    addresses[1 - other] = ends_[who]->address();
    ASSERT_TRUE(ends_[who]->connect(addresses).has_value());
  }
  // Moves all ends until `done`. Returns false if that takes too long.
  template <class Done>
  bool move_until(Done done) {
    for (int i = 0; i < 5000; ++i) {
      if (done()) return true;
      for (const auto& end : ends_) end->wait(std::chrono::milliseconds(1)), end->progress();
    }
    return false;
  }
  void say(Who who, int lane) {
    const Channel to{.peer = 0, .lane = lane};
    const std::span<const std::byte> parts[] = {bytes_};
    ASSERT_TRUE(ends_[who]->send(to, parts).has_value());
    EXPECT_TRUE(move_until([&] { return ends_[who]->sent(to).value_or(false); }));
  }

  UcxLibrary library_ = *ucx_library().value();
  std::array<std::unique_ptr<UcxEnd>, 3> ends_;
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(3000, std::byte{1});
};

TEST_F(UcxStrangers, TheirMessagesAreThrownAwayAndThoseOfPeersAreKept) {
  for (int i = 0; i < 100; ++i) say(stranger, i % kMaxLanes);
  EXPECT_TRUE(move_until([] { return num_removed == 100; })) << num_removed;
  say(peer, 3);  // early
  for (int i = 0; i < 5; ++i) say(stranger, i);
  std::vector<std::byte> slot(bytes_.size());
  const Channel from{.peer = 1, .lane = 3};
  ends_[victim]->expect(from, slot);
  EXPECT_TRUE(move_until([&] { return ends_[victim]->arrived(from).value().has_value(); }));
  EXPECT_EQ(slot, bytes_);
  say(stranger, 0);
  EXPECT_TRUE(move_until([] { return num_removed == 106; })) << num_removed;
}

// A turn of UCX's worker takes in a whole receive buffer of messages, however small they are.
TEST_F(UcxStrangers, ManySmallMessagesDoNotPileUp) {
  constexpr int kNumMessages = 3000;
  say(stranger, 0);
  ASSERT_TRUE(move_until([] { return num_removed == 1; }));
  for (int i = 0; i < 20; ++i)  // connections are made on both sides
    for (const auto& end : ends_) end->wait(std::chrono::milliseconds(1)), end->progress();
  const std::span<const std::byte> parts[] = {std::span(bytes_).first(1)};
  for (int i = 0; i < kNumMessages; ++i) {  // the victim takes none of them in yet
    const Channel to{.peer = 0, .lane = i % kMaxLanes};
    ASSERT_TRUE(ends_[stranger]->send(to, parts).has_value());
    for (int turn = 0; turn < 5000 && !ends_[stranger]->sent(to).value_or(false); ++turn)
      ends_[stranger]->progress();
  }
  int most = 0;
  EXPECT_TRUE(move_until([&, before = num_removed]() mutable {
    most = std::max(most, num_removed - std::exchange(before, num_removed));
    return num_removed == 1 + kNumMessages;
  })) << num_removed;
  EXPECT_GT(most, UcxContext::kMaxTurns);  // at once, not some with each look
}

}  // namespace
}  // namespace hocket

#endif
