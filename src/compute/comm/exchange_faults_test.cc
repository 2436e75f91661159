// Tests the errors of an exchange when a rank, a link or a message fails: lost_rank, with the names
// of the ranks concerned, within its limits, in real and in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/comm/exchange_faults_testing.h"
#include "compute/comm/loopback.h"
#include "compute/comm/message_head.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::exchange_once;
using testing::expect_lost;
using ::testing::HasSubstr;
using testing::kStamp;
using testing::make;
using testing::on_ranks;
using testing::options;
using testing::start;
using Kind = MessageKind;
using Time = LoopbackHub::Time;

// Virtual time has a longer limit: it costs nothing there.
Duration stall_timeout(Time time) {
  return time == Time::real ? Duration(300ms) : Duration(30s);
}

class ExchangeFaults : public ::testing::TestWithParam<Time> {};
INSTANTIATE_TEST_SUITE_P(Comm, ExchangeFaults, ::testing::Values(Time::real, Time::virtual_time),
                         [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

TEST_P(ExchangeFaults, StallsEndAndNameAllWhoAreMissing) {
  LoopbackHub hub(4, {}, GetParam());
  std::atomic<int> num_done = 0;
  on_ranks(hub, 4, [&](Transport& end) {
    const Duration limit = stall_timeout(GetParam());
    auto exchange = make(end, options(limit));
    if (end.rank() % 2 == 0) {
      EXPECT_TRUE(start(*exchange, Kind::combine).has_value());
      const TimePoint before = end.now();
      EXPECT_FALSE(exchange->ready(0, Kind::combine));
      expect_lost(exchange->wait(0, Kind::combine, kStamp),
                  ::testing::StrEq(fmt::format("rank 1, rank 3 owe the combine of step 7, layer 2 "
                                               "(lane 0) to rank {} since {:.3f} s",
                                               end.rank(), to_seconds(limit))));
      EXPECT_GE(end.now() - before, limit);
      if (GetParam() == Time::virtual_time) {
        EXPECT_EQ(end.now() - before, limit);
      }
      EXPECT_EQ(exchange->lost_peer(), 1);
      // The first error stays, and the pass can be played to its end.
      EXPECT_TRUE(exchange->ready(0, Kind::combine));
      exchange->release(0, Kind::combine);
      expect_lost(start(*exchange, Kind::dispatch, kStamp, 1), HasSubstr("rank 1, rank 3"));
      expect_lost(exchange->wait(1, Kind::dispatch, kStamp), HasSubstr("rank 1, rank 3"));
      EXPECT_TRUE(exchange->from(1, Kind::dispatch, 1).empty());
      ++num_done;
    }
    while (num_done < 2) end.wait(1ms), end.progress();
  });
}

TEST_P(ExchangeFaults, ALostRankIsNamedAtOnce) {
  LoopbackHub hub(3, {}, GetParam());
  // A rank that ends is lost to the others, and must not be named instead.
  std::atomic<int> num_done = 0;
  on_ranks(hub, 3, [&](Transport& end) {
    auto exchange = make(end, options());
    EXPECT_TRUE(exchange_once(*exchange, Kind::agree).has_value());
    if (end.rank() == 1) {
      hub.lose(1);
      expect_lost(exchange_once(*exchange, Kind::dispatch), HasSubstr("rank 1"));
      return;
    }
    const TimePoint before = end.now();
    expect_lost(exchange_once(*exchange, Kind::dispatch),
                AllOf(HasSubstr("rank 1 is lost"), HasSubstr("dispatch of step 7, layer 2")));
    EXPECT_LT(end.now() - before, 20s);  // not only after the timeout
    EXPECT_EQ(exchange->lost_peer(), 1);
    ++num_done;
    while (num_done < 2) end.wait(1ms), end.progress();
  });
}

TEST_P(ExchangeFaults, ACutLinkIsAStallOfAllThatItConcerns) {
  LoopbackHub hub(3, {}, GetParam());
  std::atomic<int> num_agreed = 0, num_done = 0;
  on_ranks(hub, 3, [&](Transport& end) {
    auto exchange = make(end, options(stall_timeout(GetParam())));
    EXPECT_TRUE(exchange_once(*exchange, Kind::agree).has_value());
    ++num_agreed;
    while (num_agreed < 3) end.wait(1ms), end.progress();
    hub.cut(2, true);
    expect_lost(exchange_once(*exchange, Kind::dispatch),
                end.rank() == 2 ? HasSubstr("rank 0, rank 1 owe the") : HasSubstr("rank 2 owes"));
    ++num_done;
    while (num_done < 3) end.wait(1ms), end.progress();
  });
}

TEST_P(ExchangeFaults, DroppedMessagesAreAStall) {
  LoopbackHub hub(2, {.drop = 1}, GetParam());
  std::atomic<int> num_done = 0;
  on_ranks(hub, 2, [&](Transport& end) {
    auto exchange = make(end, options(stall_timeout(GetParam())));
    expect_lost(exchange_once(*exchange, Kind::dispatch),
                HasSubstr(fmt::format("rank {} owes", 1 - end.rank())));
    ++num_done;
    while (num_done < 2) end.wait(1ms), end.progress();
  });
}

// A link at a hundredth of its rate, and one that is out for two seconds, are survived.
TEST(ExchangeFaults, SlowIsNotDead) {
  LoopbackHub hub(2, {.bytes_per_s = 1e6, .latency = 100us}, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    auto exchange = make(end, options());
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 2) hub.set_links({.bytes_per_s = 1e4, .latency = 100us});
      if (step == 4) hub.stall(1, 2s);
      const auto done = exchange_once(*exchange, Kind::dispatch, {.step = step});
      ASSERT_TRUE(done.has_value()) << done.error().message;
    }
    EXPECT_GT(end.now(), TimePoint(2s));
  });
}

TEST_P(ExchangeFaults, AnotherStampIsRefused) {
  LoopbackHub hub(2, {}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    auto exchange = make(end, options());
    const auto layer = static_cast<uint16_t>(end.rank());
    expect_lost(exchange_once(*exchange, Kind::dispatch, {.step = 7, .layer = layer}),
                ::testing::StrEq(
                    fmt::format("rank {} received an invalid message from rank {} (dispatch of "
                                "step 7, layer {}, lane 0): it is the dispatch of step 7, layer {} "
                                "(lane 0) of rank {}",
                                layer, 1 - layer, layer, 1 - layer, 1 - layer)));
    EXPECT_EQ(exchange->lost_peer(), 1 - end.rank());
    end.wait(1ms);
  });
}

TEST_P(ExchangeFaults, AnEndedEpochIsRefused) {
  LoopbackHub hub(2, {}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    AllToAll::Options with = options();
    with.epoch = end.rank() == 0 ? 4 : 3;
    auto exchange = make(end, with);
    expect_lost(exchange_once(*exchange, Kind::agree),
                end.rank() == 0
                    ? HasSubstr("it is of epoch 3, which has ended, this rank is in epoch 4")
                    : HasSubstr("it is of epoch 4, this rank is in epoch 3"));
    end.wait(1ms);
  });
}

// A network that damages messages: it passes on changed bytes.
class Damaging final : public Transport {
 public:
  using Damage = std::function<void(std::vector<std::byte>&)>;
  Damaging(Transport& end, Damage damage) : end_(end), damage_(std::move(damage)) {}

  int rank() const override { return end_.rank(); }
  int num_ranks() const override { return end_.num_ranks(); }
  TransportCaps caps() const override { return end_.caps(); }
  void expect(const Channel& from, std::span<std::byte> slot) override { end_.expect(from, slot); }
  Result<std::optional<Arrival>> arrived(const Channel& from) override {
    return end_.arrived(from);
  }
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override {
    bytes_.clear();
    for (const auto part : parts) bytes_.insert(bytes_.end(), part.begin(), part.end());
    damage_(bytes_);
    const std::span<const std::byte> whole[] = {bytes_};
    return end_.send(to, whole);
  }
  Result<bool> sent(const Channel& to) override { return end_.sent(to); }
  void withdraw() override { end_.withdraw(); }
  bool progress() override { return end_.progress(); }
  void wait(Duration most) override { end_.wait(most); }
  void wake() override { end_.wake(); }
  TimePoint now() const override { return end_.now(); }

 private:
  Transport& end_;
  Damage damage_;
  std::vector<std::byte> bytes_;
};

// Returns rank 1's error about a message of rank 0 that was changed by `damage`.
std::string complaint(const Damaging::Damage& damage) {
  std::string said;
  LoopbackHub hub(2, {}, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    const std::byte bytes[10] = {};
    const std::span<const std::byte> part[] = {bytes};
    const AllToAll::Parts parts[] = {part, part};
    Damaging damaging(end, damage);
    auto exchange = make(end.rank() == 0 ? damaging : end, options());
    ASSERT_TRUE(exchange->start(1, Kind::dispatch, kStamp, parts).has_value());
    const auto done = exchange->wait(1, Kind::dispatch, kStamp);
    if (end.rank() == 0) {
      EXPECT_TRUE(done.has_value());
      return end.wait(1ms);
    }
    if (!done) said = done.error().message;
  });
  return said;
}

void change_head(std::vector<std::byte>& bytes, const std::function<void(MessageHead&)>& change) {
  MessageHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  change(head);
  head.sum = sum_of(head);
  std::memcpy(bytes.data(), &head, sizeof(head));
}

TEST(ExchangeFaults, EveryDamagedBitOfAHeadIsFound) {
  EXPECT_EQ(complaint([](auto&) {}), "");
  const std::string both =
      "rank 1 received an invalid message from rank 0 (dispatch of step 7, layer 2, lane 1)";
  for (size_t bit = 0; bit < 8 * sizeof(MessageHead); ++bit) {
    const std::string said =
        complaint([bit](auto& bytes) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); });
    ASSERT_THAT(said, HasSubstr(both)) << bit;
    if (bit >= 64) {  // after magic, version, lane and kind
      ASSERT_THAT(said, HasSubstr("damaged")) << bit;
    }
  }
}

TEST(ExchangeFaults, HeadsThatDoNotFitAreRefused) {
  const auto with = [](void (*change)(MessageHead&)) {
    return complaint([change](auto& bytes) { change_head(bytes, change); });
  };
  EXPECT_THAT(with([](MessageHead& head) { head.version = 1; }),
              HasSubstr("its format is version 1, this rank's is 2"));
  EXPECT_THAT(with([](MessageHead& head) { head.lane = 0; }),
              HasSubstr("it is the dispatch of step 7, layer 2 (lane 0) of rank 0"));
  EXPECT_THAT(with([](MessageHead& head) { head.kind = 1; }), HasSubstr("it is the combine"));
  EXPECT_THAT(with([](MessageHead& head) { head.kind = 9; }), HasSubstr("message of kind 9"));
  EXPECT_THAT(with([](MessageHead& head) { head.from = 5; }), HasSubstr("of rank 5"));
  EXPECT_THAT(with([](MessageHead& head) { head.step = 8; }), HasSubstr("of step 8"));
  EXPECT_THAT(with([](MessageHead& head) { head.num_bytes = 9; }),
              HasSubstr("its head says 9 bytes, 10 came"));
  EXPECT_THAT(complaint([](auto& bytes) { bytes.resize(63); }), HasSubstr("63 bytes are no head"));
  EXPECT_THAT(complaint([](auto& bytes) { bytes.clear(); }), HasSubstr("0 bytes are no head"));
  EXPECT_THAT(complaint([](auto& bytes) { bytes[0] = {}; }), HasSubstr("does not begin"));
  EXPECT_THAT(complaint([](auto& bytes) { bytes.resize(165); }),
              HasSubstr("rank 0 sent rank 1 165 bytes where 164 have room"));
}

using ExchangeFaultsDeathTest = ::testing::Test;

// One rank is enough to test the rules: a caller that breaks one dies at once.
TEST(ExchangeFaultsDeathTest, RulesOfTheSlots) {
  LoopbackHub hub(1, {}, Time::real);
  const auto end = hub.join(0);
  const auto exchange = make(*end, options());
  ASSERT_TRUE(start(*exchange, Kind::dispatch).has_value());
  EXPECT_DEATH((void)start(*exchange, Kind::dispatch), "phase");
  EXPECT_DEATH((void)exchange->wait(0, Kind::dispatch, {}), "stamp");
  EXPECT_DEATH((void)exchange->wait(1, Kind::dispatch, kStamp), "phase");
  EXPECT_DEATH(exchange->release(0, Kind::dispatch), "phase");
  ASSERT_TRUE(exchange->wait(0, Kind::dispatch, kStamp).has_value());
  EXPECT_DEATH((void)start(*exchange, Kind::combine), "phase");
  exchange->release(0, Kind::dispatch);
  EXPECT_TRUE(start(*exchange, Kind::combine).has_value());
}

TEST(ExchangeFaults, SlotsThatDoNotFitInMemoryAreAnError) {
  LoopbackHub hub(2, {}, Time::real);
  const auto end = hub.join(0);
  constexpr size_t kHuge = size_t{1} << 44;
  const auto made = AllToAll::create(*end, {.max_bytes = on_lanes(2, {kHuge, kHuge, kHuge})});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(made.error().message,
              HasSubstr("cannot allocate 140737.49 GB for the messages between ranks"));
  EXPECT_EQ(AllToAll::bytes_for(1, options()), 0u);
  EXPECT_EQ(AllToAll::bytes_for(3, options()), 2u * 2 * (3 * (64 + 128) + 128));
}

}  // namespace
}  // namespace hocket
