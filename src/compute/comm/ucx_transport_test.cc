// Tests messages over UCX between threads, over shared memory and over TCP.
#include "compute/comm/ucx_transport.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mix.h"
#include "compute/comm/exchange_testing.h"
#include "compute/comm/testing.h"
#include "compute/comm/ucx_settings.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::channel;
using ::testing::HasSubstr;
using testing::on_ucx_ranks;
using testing::receive;
using testing::send;
using testing::wait_until_sent;
using Bytes = std::vector<std::byte>;

constexpr size_t kMax = 3'000'001;

// Returns the first bytes of the functions that UCX rewrites where it watches memory.
std::string starts_of_memory_functions() {
  std::string starts;
  for (const char* name : {"sbrk", "brk", "mmap", "munmap", "madvise"})
    starts.append(static_cast<const char*>(dlsym(RTLD_DEFAULT, name)), 16);
  return starts;
}
const std::string kStartsAtFirst = starts_of_memory_functions();

enum class Fabric : uint8_t { shared_memory, tcp };

class Ucx : public ::testing::TestWithParam<Fabric> {
 protected:
  void SetUp() override {
    if (const auto why = testing::ucx_obstacle(options()); !why.empty()) GTEST_SKIP() << why;
  }
  static UcxOptions options() {
    return GetParam() == Fabric::tcp ? testing::ucx_tcp() : testing::ucx_shared_memory();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Ucx, ::testing::Values(Fabric::shared_memory, Fabric::tcp),
                         [](const auto& param) {
                           return param.param == Fabric::tcp ? "Tcp" : "SharedMemory";
                         });

Bytes message(size_t length, uint64_t seed) {
  Bytes bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(mix64(seed + i) >> 5);
  return bytes;
}

// Waits until all ranks have arrived here, and drives transfers.
void meet(Transport& end, std::atomic<int>& count) {
  const int all = (count++ / end.num_ranks() + 1) * end.num_ranks();
  while (count < all) end.wait(200us), end.progress();
}

// Every rank sends to every other, on two lanes and in all kinds at once, messages from empty to
// the longest, in up to kMaxPieces parts of which some are empty.
void talk(Transport& end, int num_rounds) {
  const int num = end.num_ranks();
  const auto seed = [&](int from, int to, int round, int flow) {
    const int which = ((from * 8 + to) * 1000 + round) * 8 + flow;
    return mix64(static_cast<uint64_t>(which));
  };
  constexpr size_t kLengths[] = {0, 1, 63, 8192, 70'000, 600'000, kMax};
  const auto length_of = [&](uint64_t drawn) { return kLengths[(drawn >> 20) % 7]; };
  constexpr int kFlows = 2 * kNumMessageKinds;
  const auto channel_of = [](int peer, int i) {
    return channel(peer, i % 2, static_cast<MessageKind>(i / 2));
  };
  std::vector<std::vector<Bytes>> slots(static_cast<size_t>(num)), out(static_cast<size_t>(num));
  for (int peer = 0; peer < num; ++peer) {
    slots[peer].assign(kFlows, Bytes(kMax));
    out[peer].resize(kFlows);
  }
  for (int round = 0; round < num_rounds; ++round) {
    for (int peer = 0; peer < num; ++peer) {
      if (peer == end.rank()) continue;
      for (int i = 0; i < kFlows; ++i) {
        if (round > 0) wait_until_sent(end, channel_of(peer, i));
        end.expect(channel_of(peer, i), slots[peer][i]);
        const uint64_t drawn = seed(end.rank(), peer, round, i);
        out[peer][i] = message(length_of(drawn), drawn);
        const auto bytes = std::span<const std::byte>(out[peer][i]);
        std::array<std::span<const std::byte>, kMaxPieces> parts;
        parts[0] = bytes.first(std::min<size_t>(64, bytes.size()));
        for (size_t k = 1; k < kMaxPieces; ++k) {  // some are empty
          const size_t rest = bytes.size() - parts[0].size();
          const size_t begin = k == 1 ? 0 : rest * (k / 2) / 4, till = rest * ((k + 1) / 2) / 4;
          parts[k] = bytes.subspan(parts[0].size() + begin, till - begin);
        }
        const auto sending = end.send(channel_of(peer, i), parts);
        ASSERT_TRUE(sending.has_value()) << sending.error().message;
      }
    }
    for (int peer = 0; peer < num; ++peer) {
      if (peer == end.rank()) continue;
      for (int i = kFlows - 1; i >= 0; --i) {
        const auto arrival = receive(end, channel_of(peer, i));
        ASSERT_TRUE(arrival.has_value()) << arrival.error().message;
        const uint64_t drawn = seed(peer, end.rank(), round, i);
        const Bytes expected = message(length_of(drawn), drawn);
        ASSERT_EQ(arrival->num_bytes, expected.size());
        EXPECT_LE(arrival->when, end.now());
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), slots[peer][i].begin()));
      }
    }
  }
  for (int peer = 0; peer < num; ++peer) {
    for (int i = 0; i < kFlows && peer != end.rank(); ++i) {
      wait_until_sent(end, channel_of(peer, i));
    }
  }
}

TEST_P(Ucx, TwoRanksBringWhatWasSent) {
  on_ucx_ranks(2, options(), [](Transport& end) { talk(end, 12); });
}

TEST_P(Ucx, FourRanksBringWhatWasSent) {
  on_ucx_ranks(4, options(), [](Transport& end) { talk(end, 4); });
}

// Plays dispatch, combine and agreement of many layers, as in all_to_all_test.cc.
TEST_P(Ucx, CarriesExchanges) {
  for (const int num_ranks : {2, 4}) {
    on_ucx_ranks(num_ranks, options(), [](Transport& end) { testing::two_halves(end, 30, 10); });
    on_ucx_ranks(num_ranks, options(),
                 [](Transport& end) { testing::two_halves(end, 2, 5, 300'000); });
  }
}

TEST_P(Ucx, KeepsAnEarlyMessage) {
  std::atomic<int> met = 0;
  on_ucx_ranks(2, options(), [&](Transport& end) {
    const Bytes bytes = message(70'000, 3);
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      meet(end, met);
      wait_until_sent(end, channel(1));
    } else {
      meet(end, met);
      std::this_thread::sleep_for(10ms);
      end.progress();
      Bytes slot(80'000);
      end.expect(channel(0), slot);
      const auto arrival = receive(end, channel(0));
      ASSERT_TRUE(arrival.has_value());
      EXPECT_EQ(arrival->num_bytes, bytes.size());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), slot.begin()));
    }
    meet(end, met);
  });
}

TEST_P(Ucx, RefusesWhatIsLongerThanItsSlot) {
  for (const size_t length : {size_t{11}, size_t{100'000}, size_t{2'000'000}}) {
    std::atomic<int> met = 0;
    on_ucx_ranks(2, options(), [&](Transport& end) {
      const Bytes bytes(length);
      Bytes slot(200, std::byte{1});
      if (end.rank() == 0) {
        meet(end, met);
        ASSERT_TRUE(send(end, channel(1), bytes).has_value());
        wait_until_sent(end, channel(1));
      } else {
        end.expect(channel(0), std::span(slot).first(10));
        meet(end, met);
        const auto arrival = receive(end, channel(0));
        ASSERT_FALSE(arrival.has_value());
        EXPECT_EQ(arrival.error().code, ErrorCode::lost_rank);
        EXPECT_THAT(arrival.error().message, HasSubstr("rank 0 sent rank 1 "));
        EXPECT_THAT(arrival.error().message, HasSubstr("bytes where 10 have room"));
        for (size_t i = 10; i < slot.size(); ++i) EXPECT_EQ(slot[i], std::byte{1});
      }
      meet(end, met);
    });
  }
}

TEST_P(Ucx, NamesWhoLeft) {
  std::atomic<int> met = 0;
  on_ucx_ranks(3, options(), [&](Transport& end) {
    Bytes slot(1000);
    const Bytes last_words(700), others(300);
    meet(end, met);
    if (end.rank() == 1) {  // its last message still arrives
      EXPECT_TRUE(send(end, channel(2), last_words).has_value());
      wait_until_sent(end, channel(2));
      return;
    }
    end.expect(channel(1), slot);
    if (end.rank() == 2) {
      const auto last = receive(end, channel(1));
      ASSERT_TRUE(last.has_value()) << last.error().message;
      EXPECT_EQ(last->num_bytes, 700u);
      end.expect(channel(1), slot);
    }
    const auto lost = receive(end, channel(1));
    ASSERT_FALSE(lost.has_value());
    EXPECT_EQ(lost.error().code, ErrorCode::lost_rank);
    EXPECT_THAT(lost.error().message, HasSubstr("rank 1 is lost: it"));
    const auto sending = send(end, channel(1), slot);
    ASSERT_FALSE(sending.has_value());
    EXPECT_THAT(sending.error().message, HasSubstr("rank 1 is lost"));
    // The other ranks continue.
    const int other = 2 - end.rank();
    ASSERT_TRUE(send(end, channel(other), others).has_value());
    end.expect(channel(other), slot);
    const auto arrival = receive(end, channel(other));
    ASSERT_TRUE(arrival.has_value()) << arrival.error().message;
    EXPECT_EQ(arrival->num_bytes, 300u);
    wait_until_sent(end, channel(other));
    static std::atomic<int> num_done;
    const int mine = ++num_done;
    while (num_done < (mine + 1) / 2 * 2) end.wait(200us), end.progress();
  });
}

TEST_P(Ucx, WithdrawForgetsWhatCameAndGivesSlotsBack) {
  std::atomic<int> met = 0;
  on_ucx_ranks(2, options(), [&](Transport& end) {
    Bytes slot(2000, std::byte{1});
    const Bytes bytes(1000, std::byte{2}), few(30);
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1, 1), bytes).has_value());
      wait_until_sent(end, channel(1, 1));
    } else {
      end.expect(channel(0, 0), slot);
      for (int i = 0; i < 50; ++i) end.wait(1ms), end.progress();
    }
    meet(end, met);
    end.withdraw();
    meet(end, met);
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1, 0), bytes).has_value());
      ASSERT_TRUE(send(end, channel(1, 1), few).has_value());
      wait_until_sent(end, channel(1, 0));
      wait_until_sent(end, channel(1, 1));
    } else {
      Bytes other(2000);
      for (int i = 0; i < 20; ++i) end.wait(1ms), end.progress();
      EXPECT_EQ(slot, Bytes(2000, std::byte{1}));
      end.expect(channel(0, 0), other);
      end.expect(channel(0, 1), slot);
      const auto first = receive(end, channel(0, 0)), second = receive(end, channel(0, 1));
      ASSERT_TRUE(first.has_value() && second.has_value());
      EXPECT_EQ(first->num_bytes, 1000u);
      EXPECT_EQ(second->num_bytes, 30u);  // the forgotten one had 1000
    }
    meet(end, met);
  });
}

// No rank takes the message: its sender still gets its bytes back, and the receiver, which has a
// part of it, learns that the sender is lost.
TEST_P(Ucx, WithdrawGivesUpWhatASilentPeerDoesNotTake) {
  constexpr size_t kTooMuch = 60'000'000;  // more than the kernel's buffers hold
  std::atomic<int> met = 0;
  std::atomic<bool> has_withdrawn = false;
  UcxOptions with = options();
  with.patience = 50ms;
  on_ucx_ranks(2, with, [&](Transport& end) {
    Bytes slot(kTooMuch);
    const Bytes few(10);
    if (end.rank() == 0) {
      end.expect(channel(1), slot);
      ASSERT_TRUE(receive(end, channel(1)).has_value());  // connected
      meet(end, met);
      auto bytes = std::make_unique<Bytes>(kTooMuch, std::byte{1});
      ASSERT_TRUE(send(end, channel(1), *bytes).has_value());
      end.progress();
      const TimePoint before = end.now();
      end.withdraw();
      EXPECT_LT(end.now() - before, 5s);
      bytes.reset();
      has_withdrawn = true;
      const auto sending = send(end, channel(1), few);
      ASSERT_FALSE(sending.has_value());
      EXPECT_EQ(sending.error().message, "rank 1 is lost: rank 0 gave up what was under way");
    } else {
      ASSERT_TRUE(send(end, channel(0), few).has_value());
      wait_until_sent(end, channel(0));
      end.expect(channel(0), slot);
      meet(end, met);
      while (!has_withdrawn) std::this_thread::sleep_for(1ms);
      for (int i = 0; i < 100; ++i) end.wait(1ms), end.progress();
      if (GetParam() == Fabric::tcp) {
        const auto lost = receive(end, channel(0));
        ASSERT_FALSE(lost.has_value());
        EXPECT_THAT(lost.error().message, HasSubstr("rank 0 is lost"));
      }
    }
  });
}

TEST_P(Ucx, AWaitLastsNoLongerThanItWasTold) {
  on_ucx_ranks(1, options(), [](Transport& end) {
    while (end.progress()) {
    }
    const TimePoint before = end.now();
    end.wait(10ms);
    EXPECT_GE(end.now() - before, 9ms);
    EXPECT_LT(end.now() - before, 5s);
  });
}

TEST_P(Ucx, AWakeEndsTheWaitUnderWayOrElseTheNextOne) {
  on_ucx_ranks(1, options(), [](Transport& end) {
    while (end.progress()) {
    }
    const TimePoint before = end.now();
    end.wake();
    end.wait(20s);
    EXPECT_LT(end.now() - before, 15s);
    const TimePoint again = end.now();
    const std::jthread other([&] {
      std::this_thread::sleep_for(20ms);
      end.wake();
    });
    end.wait(20s);
    EXPECT_GE(end.now() - again, 5ms);
    EXPECT_LT(end.now() - again, 15s);
  });
}

TEST_P(Ucx, SaysWhatItRunsOn) {
  on_ucx_ranks(1, options(), [](UcxTransport& end) {
    const bool is_tcp = GetParam() == Fabric::tcp;
    EXPECT_THAT(end.describe(), HasSubstr(is_tcp ? "| tcp on lo | eager" : "| posix,"));
    EXPECT_EQ(end.caps().name, is_tcp ? "ucx tcp" : "ucx posix");
    EXPECT_EQ(end.caps().moves_by_itself, is_tcp);
  });
}

TEST_P(Ucx, LeavesTheFunctionsOfMemoryAsTheyAre) {
  if (has_infiniband()) GTEST_SKIP() << "with InfiniBand UCX watches memory";
  const auto end = UcxTransport::create(0, 1, options());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(starts_of_memory_functions(), kStartsAtFirst);
}

TEST_P(Ucx, RefusesAddressesThatAreNotThoseOfItsPeers) {
  UcxOptions later = options();
  later.epoch = 8;
  auto end = UcxTransport::create(0, 2, options());
  auto peer = UcxTransport::create(1, 2, options()), stale = UcxTransport::create(1, 2, later);
  ASSERT_TRUE(end.has_value() && peer.has_value() && stale.has_value());
  const auto complaint = [&](std::span<const std::byte> address) {
    const auto own = (*end)->address();
    const std::span<const std::byte> all[] = {own, address};
    const auto done = (*end)->connect(all);
    if (done) return std::string("connected");
    EXPECT_EQ(done.error().rank, 1);
    EXPECT_EQ(done.error().code, ErrorCode::lost_rank);
    return done.error().message;
  };
  EXPECT_EQ(complaint({}), "connected") << "the rank is absent";
  EXPECT_EQ(complaint(Bytes(100)),
            "rank 0 cannot reach rank 1: the address that it sent cannot be read");
  EXPECT_EQ(complaint((*end)->address()),
            "rank 0 cannot reach rank 1: its address is that of rank 0");
  EXPECT_EQ(complaint((*stale)->address()),
            "rank 0 cannot reach rank 1: it is in epoch 8, this rank in epoch 0");
  Bytes old((*peer)->address().begin(), (*peer)->address().end());
  old[4] = std::byte{9};
  EXPECT_EQ(
      complaint(old),
      "rank 0 cannot reach rank 1: the address that it sent is of version 9, this rank's is 1");
  EXPECT_EQ(complaint((*peer)->address()), "connected");
}

}  // namespace
}  // namespace hocket
