// A rank that exchanges messages whose content the receiver knows, for tests over any transport.
// Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "base/mix.h"
#include "compute/comm/all_to_all.h"

namespace hocket::testing {

inline constexpr size_t kMaxTestBytes = 3000;

// Returns the message of channel.peer to `to`. Its length (often 0, often the most) and bytes
// follow from the ranks, channel and stamp alone, so the receiver knows them too.
inline std::vector<std::byte> message(const Channel& channel, int to, Stamp stamp, size_t longest) {
  const auto [from, lane, kind] = channel;
  const int who = ((from * 64 + to) * 8 + lane) * 4 + static_cast<int>(kind);
  const uint64_t seed =
      mix64(mix64(stamp.step * 1000 + stamp.layer) + kMixStep * (static_cast<uint64_t>(who) + 1));
  const size_t most = kind == MessageKind::agree ? 40 : longest;
  const size_t length = seed % 5 == 0 ? 0 : seed % 5 == 1 ? most : (seed >> 8) % (most + 1);
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::byte>(mix64(seed + i / 8) >> (i % 8 * 8));
  return bytes;
}

// Exchanges such messages and checks those that arrive.
class CheckedExchange {
 public:
  // `most`: bytes of the longest message.
  CheckedExchange(AllToAll& exchange, int lane, size_t most = kMaxTestBytes)
      : exchange_(exchange), lane_(lane), most_(most) {}

  Result<void> start(MessageKind kind, Stamp stamp) {
    auto& out = out_[kind];
    auto& parts = parts_[kind];
    const int num_ranks = exchange_.num_ranks();
    out.resize(num_ranks);
    parts.assign(num_ranks, {});
    std::vector<AllToAll::Parts> all;
    for (int to = 0; to < num_ranks; ++to) {
      out[to] = message(from(exchange_.rank(), kind), to, stamp, most_);
      const auto bytes = std::span<const std::byte>(out[to]);
      const size_t third = bytes.size() / 3;  // three parts, the second one empty
      parts[to] = {bytes.first(third), bytes.subspan(third, 0), bytes.subspan(third)};
      all.emplace_back(parts[to]);
    }
    return exchange_.start(lane_, kind, stamp, all);
  }
  Result<void> finish(MessageKind kind, Stamp stamp) {
    if (auto there = exchange_.wait(lane_, kind, stamp); !there) return there;
    for (int peer = 0; peer < exchange_.num_ranks(); ++peer) {
      const auto bytes = exchange_.from(lane_, kind, peer);
      if (peer == exchange_.rank()) {
        EXPECT_TRUE(bytes.empty());
        continue;
      }
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
      EXPECT_TRUE(
          std::ranges::equal(bytes, message(from(peer, kind), exchange_.rank(), stamp, most_)));
    }
    exchange_.release(lane_, kind);
    return {};
  }

 private:
  Channel from(int rank, MessageKind kind) const {
    return {.peer = rank, .lane = lane_, .kind = kind};
  }

  AllToAll& exchange_;
  const int lane_;
  const size_t most_;
  std::map<MessageKind, std::vector<std::vector<std::byte>>> out_;
  std::map<MessageKind, std::vector<std::vector<std::span<const std::byte>>>> parts_;
};

inline AllToAll::Options test_options(size_t most = kMaxTestBytes) {
  return {.max_bytes = on_lanes(2, {most, most, 40}), .epoch = 1};
}

inline void check(const Result<void>& result) {
  ASSERT_TRUE(result.has_value()) << result.error().message;
}

// Plays passes of two halves as the executor does, with an agreement on the next one at the same
// time.
inline void two_halves(Transport& end, int num_steps, int num_layers, size_t most = kMaxTestBytes) {
  using Kind = MessageKind;
  auto made = AllToAll::create(end, test_options(most));
  ASSERT_TRUE(made.has_value());
  AllToAll& exchange = **made;
  CheckedExchange a(exchange, 0, most), b(exchange, 1, most);
  for (uint64_t step = 0; step < static_cast<uint64_t>(num_steps); ++step) {
    check(a.start(Kind::agree, {.step = step}));
    for (int i = 0; i < num_layers; ++i) {
      const auto layer = static_cast<uint16_t>(i);
      const Stamp now{.step = step, .layer = layer};
      check(a.start(Kind::dispatch, now));
      if (layer > 0) {
        check(b.finish(Kind::combine, {.step = step, .layer = static_cast<uint16_t>(layer - 1)}));
      }
      check(b.start(Kind::dispatch, now));
      check(a.finish(Kind::dispatch, now));
      check(a.start(Kind::combine, now));
      exchange.progress();
      check(b.finish(Kind::dispatch, now));
      check(b.start(Kind::combine, now));
      check(a.finish(Kind::combine, now));
    }
    check(b.finish(Kind::combine, {.step = step, .layer = static_cast<uint16_t>(num_layers - 1)}));
    check(a.finish(Kind::agree, {.step = step}));
  }
  made->reset();  // messages under way belong to the talkers
}

}  // namespace hocket::testing
