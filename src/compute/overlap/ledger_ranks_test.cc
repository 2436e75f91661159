// Tests what the ledgers of two ranks book of a scripted step in virtual time: each operation
// computes for a known time, and rows travel over a link of one byte per nanosecond and 20 us
// latency.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/comm/exchange_testing.h"
#include "compute/comm/testing.h"
#include "compute/comm/transport_clock_testing.h"
#include "compute/overlap/executor.h"
#include "compute/overlap/ledger.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLatency = 20us, kAgreement = 72ns;
constexpr int kHead = 64;

struct Script {
  const Order* order = &serial_order();
  int num_layers = 2;
  int parts = 1;
  Duration message = 100us;  // time on the link of all parts of one half
  Duration late{};           // how late rank 1 is, in the first operation of the first layer
  std::array<Duration, kNumOps> compute = {10us, 20us, 0us, 5us, 0us, 15us, 0us, 60us, 0us, 5us};
};

// One rank that plays the script.
class ScriptedRank {
 public:
  ScriptedRank(LoopbackHub& hub, Transport& end, const Script& script)
      : hub_(hub),
        end_(end),
        script_(script),
        clock_(end),
        ledger_({.num_layers = script.num_layers, .num_ranks = 2, .exact_arrival = true}, clock_),
        bytes_(static_cast<size_t>(script.message.count() / script.parts) - kHead) {
    const MessageSizes sizes = {bytes_.size(), bytes_.size(), 8};
    exchange_ = *AllToAll::create(
        end, {.max_bytes = on_lanes(kMaxLanes, sizes), .epoch = 1, .watch = &ledger_});
  }

  StepAccount play_step() {
    ledger_.begin_step(end_.now());
    start(0, MessageKind::agree, 0, 8);
    wait(0, MessageKind::agree, 0);
    ledger_.begin_pass(step_, {.parts = script_.parts}, {}, false);
    std::array<Half, kMaxHalves> halves;
    const auto playing = std::span(halves).first(script_.order->num_halves);
    for (size_t i = 0; i < playing.size(); ++i) playing[i].index = static_cast<int>(i);
    play({*script_.order, script_.num_layers, EmptyHalves::played}, playing,
         [&](int layer, Op op, Half& half) { run(layer, op, half.index); });
    return ledger_.end_step(end_.now());
  }
  const Ledger& ledger() const { return ledger_; }

 private:
  void spend(Duration d) { hub_.spend(end_.rank(), d); }
  void start(int lane, MessageKind kind, int layer, size_t bytes) {
    const std::span<const std::byte> piece[] = {std::span(bytes_).first(bytes)};
    const AllToAll::Parts parts[] = {piece, piece};
    testing::check(exchange_->start(lane, kind, stamp(layer), parts));
  }
  void wait(int lane, MessageKind kind, int layer) {
    testing::check(exchange_->wait(lane, kind, stamp(layer)));
    exchange_->release(lane, kind);
  }
  Stamp stamp(int layer) const { return {.step = step_, .layer = static_cast<uint16_t>(layer)}; }

  void run(int layer, Op op, int half) {
    ledger_.begin_op(layer, op, half);
    const Duration compute =
        script_.compute.at(static_cast<size_t>(op)) / script_.order->num_halves;
    if (layer == 0 && op == Op::attn_in && end_.rank() == 1) spend(script_.late);
    if (op != Op::experts && op != Op::combine_wait) spend(compute);
    const auto lane = [&](int part) { return lane_of(half, part); };
    if (op == Op::dispatch_start)
      for (int i = 0; i < script_.parts; ++i)
        start(lane(i), MessageKind::dispatch, layer, bytes_.size());
    if (op == Op::dispatch_wait) wait(lane(0), MessageKind::dispatch, layer);
    if (op == Op::experts)
      for (int i = 0; i < script_.parts; ++i) {
        if (i > 0) start(lane(i - 1), MessageKind::combine, layer, bytes_.size());
        if (i > 0) wait(lane(i), MessageKind::dispatch, layer);
        spend(compute / script_.parts);
      }
    if (op == Op::combine_start)
      start(lane(script_.parts - 1), MessageKind::combine, layer, bytes_.size());
    if (op == Op::combine_wait) {
      for (int i = 0; i < script_.parts; ++i) wait(lane(i), MessageKind::combine, layer);
      spend(compute);
    }
    ledger_.end_op();
  }

  LoopbackHub& hub_;
  Transport& end_;
  const Script& script_;
  const TransportClock clock_;
  Ledger ledger_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<AllToAll> exchange_;
  uint64_t step_ = 1;
};

struct Booked {
  StepAccount account;
  std::vector<LayerAccount> layers;
};

std::array<Booked, 2> play_both(const Script& script) {
  LoopbackHub hub(2, {.bytes_per_s = 1e9, .latency = kLatency}, LoopbackHub::Time::virtual_time);
  std::array<Booked, 2> booked;
  testing::on_ranks(hub, 2, [&](Transport& end) {
    ScriptedRank rank(hub, end, script);
    Booked& mine = booked.at(static_cast<size_t>(end.rank()));
    mine.account = rank.play_step();
    mine.layers.assign(rank.ledger().layers().begin(), rank.ledger().layers().end());
  });
  return booked;
}

void expect_whole(const StepAccount& a) {
  EXPECT_EQ(a.computed() + a.other + a.exposed + a.waiting + a.idle, a.took);
  EXPECT_EQ(a.idle, 0us);
}

TEST(LedgerOfRanks, WithoutOverlapAllOfTheTransferIsExposed) {
  for (const Booked& booked : play_both({})) {
    const StepAccount& a = booked.account;
    expect_whole(a);
    EXPECT_EQ(a.computed(), 2 * 115us);
    EXPECT_EQ(a.exposed, 4 * (100us + kLatency));
    EXPECT_EQ(a.waiting, kLatency + kAgreement);  // the agreement
    EXPECT_EQ(a.hidden, 0us);
    EXPECT_EQ(a.latency, kLatency + kAgreement);
    EXPECT_EQ(a.busy[0], 2 * (100us - kAgreement));
    EXPECT_EQ(a.busy[1], 2 * (100us - kAgreement));
    EXPECT_EQ(a.bytes[0], 2 * (100'000 - kHead));
    for (const LayerAccount& layer : booked.layers) EXPECT_EQ(layer.exposed, 2 * 120us);
  }
}

// Rank 1 pushes 30 us late. Rank 0 waits for it and then for the wire; what rank 0 sent in that
// time is hidden from rank 1. The wait puts rank 0 behind, so the roles change with every exchange.
TEST(LedgerOfRanks, ALateRankIsWaitedForAndNoTransferIsBlamed) {
  const auto booked = play_both({.num_layers = 1, .late = 30us});
  const StepAccount &early = booked[0].account, &late = booked[1].account;
  expect_whole(early), expect_whole(late);
  const Duration agreed = kLatency + kAgreement;
  EXPECT_EQ(early.waiting - agreed, 30us);
  EXPECT_EQ(early.exposed, 120us + 90us);
  EXPECT_EQ(early.hidden, 30us);  // the combine
  EXPECT_EQ(late.waiting - agreed, 30us);
  EXPECT_EQ(late.exposed, 90us + 120us);
  EXPECT_EQ(late.hidden, 30us);  // the dispatch
  EXPECT_EQ(late.computed(), early.computed() + 30us);
  EXPECT_EQ(early.busy, late.busy);
}

//   wire     D0 ---50+20--- D1 --50--        K0 ----70---- K1 ...
//   compute  waits 70 | experts 30 | waits 20 | experts 30 | waits for K0, K1
TEST(LedgerOfRanks, PartsAreComputedWhileOthersTravel) {
  for (const Booked& booked : play_both({.num_layers = 1, .parts = 2})) {
    const StepAccount& a = booked.account;
    expect_whole(a);
    // D0 and D1: 70 and 20 us exposed. K0 leaves at 100 and is there at 170, K1 leaves at 150 and
    // is there at 220.
    EXPECT_EQ(a.computed(), 115us);
    EXPECT_EQ(a.exposed, 70us + 20us + 70us);
    EXPECT_EQ(a.hidden, 30us + 30us);
    EXPECT_EQ(a.took, kLatency + kAgreement + 50us + 220us + 5us);
    EXPECT_EQ(a.busy[0], 100us - kAgreement);
    EXPECT_EQ(a.busy[1], 100us - 2 * kAgreement);
  }
}

// Equal ranks never wait for each other, whatever the order: a step then consists of compute and
// exposed time, and the link is as long busy as its messages take.
TEST(LedgerOfRanks, EveryOrderAddsUp) {
  std::mt19937 random(1);
  std::vector<Order> orders;
  for (int i = 0; i < OrderTable::builtin().size(); ++i)
    orders.push_back(OrderTable::builtin().at(i));
  for (int i = 0; i < 16; ++i) orders.push_back(testing::tight_order(random));
  for (const Order& order : orders) {
    for (const int parts : {1, 2, 4}) {
      SCOPED_TRACE(to_yaml(order) + ", parts " + std::to_string(parts));
      const Script script = {.order = &order, .num_layers = 3, .parts = parts};
      const int halves = script.order->num_halves;
      for (const Booked& booked : play_both(script)) {
        const StepAccount& a = booked.account;
        expect_whole(a);
        EXPECT_EQ(a.computed(), 3 * 115us);
        EXPECT_EQ(a.waiting, kLatency + kAgreement);
        EXPECT_EQ(a.bytes[0], 3 * halves * (100'000 - kHead * parts));
        for (const Duration busy : a.busy) {
          EXPECT_LE(busy, 3 * halves * 100us);
          EXPECT_GE(busy, 3 * halves * (100us - parts * kAgreement));
        }
        EXPECT_GE(a.transferred(), a.busy[0] + a.busy[1]);
        EXPECT_LE(a.transferred(), a.busy[0] + a.busy[1] + 6 * halves * parts * a.latency);
      }
    }
  }
}

}  // namespace
}  // namespace hocket
