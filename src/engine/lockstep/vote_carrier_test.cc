// Tests that votes arrive, whichever thread has the exchange: while passes play exchanges of their
// own, between them, and when the exchange fails.
#include "engine/lockstep/vote_carrier.h"

#include <cstring>
#include <random>
#include <semaphore>
#include <thread>

#include "compute/comm/testing.h"
#include "engine/lockstep/network.h"

namespace hocket {
namespace {

using std::chrono::microseconds;
using testing::on_ranks;

constexpr size_t kVoteBytes = 8;
constexpr size_t kRowBytes = 64;

// One rank with an exchange whose progress carries votes.
struct CarryingRank {
  CarryingRank(Transport& end, int num_ranks)
      : votes(num_ranks, kVoteBytes),
        exchange(
            *AllToAll::create(end, {.max_bytes = on_lanes(1, {kRowBytes, kRowBytes, kVoteBytes}),
                                    .stall_timeout = std::chrono::seconds(20),
                                    .watch = &watch})) {
    votes.rebind(*exchange);
    watch.carry(votes);
  }
  void post(uint64_t step) {
    const uint64_t vote = step * 100 + static_cast<uint64_t>(exchange->rank());
    votes.post({.step = step}, std::as_bytes(std::span(&vote, 1)));
  }
  void expect_votes(uint64_t step) const {
    for (int rank = 0; rank < exchange->num_ranks(); ++rank) {
      if (rank == exchange->rank()) continue;
      const std::span<const std::byte> bytes = votes.from(rank);
      ASSERT_EQ(bytes.size(), kVoteBytes);
      uint64_t vote = 0;
      std::memcpy(&vote, bytes.data(), sizeof vote);
      EXPECT_EQ(vote, step * 100 + static_cast<uint64_t>(rank));
    }
  }
  // Plays the exchanges of one layer.
  void exchange_rows(uint64_t step, uint16_t layer) {
    const std::vector<AllToAll::Parts> nothing(static_cast<size_t>(exchange->num_ranks()));
    for (const MessageKind kind : {MessageKind::dispatch, MessageKind::combine}) {
      const Stamp stamp{.step = step, .layer = layer};
      if (!exchange->start(0, kind, stamp, nothing)) return;
      exchange->progress();
      if (!exchange->wait(0, kind, stamp)) return;
      exchange->release(0, kind);
      exchange->progress();
    }
  }

  ExchangeObserver watch{nullptr};
  VoteCarrier votes;
  std::unique_ptr<AllToAll> exchange;
};

TEST(VoteCarrier, CarriesWhilePassesExchangeRows) {
  constexpr int kRanks = 3, kSteps = 100;
  LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
  on_ranks(hub, kRanks, [&](Transport& end) {
    CarryingRank rank(end, kRanks);
    std::mt19937 random(static_cast<uint32_t>(end.rank()));
    const auto dawdle = [&](std::mt19937& dice) {
      if (dice() % 3 == 0) std::this_thread::sleep_for(microseconds(dice() % 200));
    };
    std::jthread forward;
    rank.post(1);
    for (uint64_t step = 1; step <= kSteps; ++step) {
      ASSERT_TRUE(rank.votes.collect().has_value());
      rank.expect_votes(step);
      rank.votes.lend();
      // The pass before is over when its thread is joined, often long after this one was agreed on.
      forward = std::jthread([&rank, &dawdle, step, before = std::move(forward)]() mutable {
        if (before.joinable()) before.join();
        std::mt19937 dice(static_cast<uint32_t>(step));
        for (uint16_t layer = 0; layer < step % 4; ++layer) {
          rank.exchange_rows(step, layer);
          dawdle(dice);
        }
        rank.votes.give_back();
      });
      dawdle(random);
      rank.post(step + 1);
    }
    forward.join();
    EXPECT_TRUE(rank.votes.is_here());
    ASSERT_TRUE(rank.votes.collect().has_value());
    rank.expect_votes(kSteps + 1);
  });
}

// A pass that ends early, or never looks, leaves the votes to the thread that waits for them.
TEST(VoteCarrier, TakesTheExchangeBackFromAPassThatCarriedNothing) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::real);
  on_ranks(hub, 2, [&](Transport& end) {
    CarryingRank rank(end, 2);
    for (uint64_t step = 1; step < 20; ++step) {
      rank.votes.lend();
      rank.post(step);
      std::jthread forward([&] {
        std::this_thread::sleep_for(microseconds(300));
        if (step % 2 == 0) rank.exchange->progress();  // it is sent, but nobody waits for it
        rank.votes.give_back();
      });
      ASSERT_TRUE(rank.votes.collect().has_value());
      rank.expect_votes(step);
    }
  });
}

// Rank 0's first vote is under way for a second, although that of rank 1 is here.
TEST(VoteCarrier, APassDoesNotWaitUntilTheVoteBeforeIsSent) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    CarryingRank rank(end, 2);
    if (end.rank() == 0) {
      hub.spend(0, std::chrono::milliseconds(1));
      hub.set_links({.latency = std::chrono::seconds(1)});
    }
    rank.post(1);
    ASSERT_TRUE(rank.votes.collect().has_value());
    rank.expect_votes(1);
    if (end.rank() == 0) {
      const TimePoint before = end.now();
      EXPECT_EQ(testing::ns(before), 1'000'000);
      rank.votes.lend();
      rank.post(2);
      rank.exchange->progress();
      EXPECT_EQ(end.now(), before);
      hub.spend(0, std::chrono::seconds(2));
      rank.exchange->progress();
      rank.votes.give_back();
    } else {
      rank.post(2);
    }
    ASSERT_TRUE(rank.votes.collect().has_value());
    rank.expect_votes(2);
  });
}

// The pass ends only after the vote is settled.
TEST(VoteCarrier, TellsDuringAPassThatAVoteCouldNotBeSent) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::real);
  on_ranks(hub, 2, [&](Transport& end) {
    CarryingRank rank(end, 2);
    rank.post(1);
    ASSERT_TRUE(rank.votes.collect().has_value());
    if (end.rank() == 1) return;  // its end is gone
    std::binary_semaphore has_failed{0}, is_posted{0}, is_told{0};
    bool was_told_amid_the_pass = false;
    rank.votes.lend();
    std::jthread forward([&] {
      rank.exchange_rows(2, 0);
      has_failed.release();
      is_posted.acquire();
      rank.exchange->progress();
      was_told_amid_the_pass = is_told.try_acquire_for(std::chrono::seconds(10));
      rank.votes.give_back();
    });
    has_failed.acquire();
    rank.post(2);
    is_posted.release();
    const auto lost = rank.votes.collect();
    is_told.release();
    ASSERT_FALSE(lost.has_value());
    EXPECT_EQ(lost.error().code, ErrorCode::lost_rank);
    forward.join();
    EXPECT_TRUE(was_told_amid_the_pass);
  });
}

TEST(VoteCarrier, TellsThatARankIsLost) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::real);
  on_ranks(hub, 2, [&](Transport& end) {
    CarryingRank rank(end, 2);
    rank.post(1);
    ASSERT_TRUE(rank.votes.collect().has_value());
    if (end.rank() == 1) return;  // its end is gone
    rank.votes.lend();
    rank.post(2);
    std::jthread forward([&] {
      rank.exchange_rows(2, 0);
      rank.votes.give_back();
    });
    const auto lost = rank.votes.collect();
    ASSERT_FALSE(lost.has_value());
    EXPECT_EQ(lost.error().code, ErrorCode::lost_rank);
    forward.join();
    EXPECT_EQ(rank.exchange->lost_peer(), 1);
  });
}

}  // namespace
}  // namespace hocket
