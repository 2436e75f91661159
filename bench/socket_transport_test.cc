#include "bench/socket_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "compute/comm/all_to_all.h"

namespace hocket {
namespace {

constexpr int kSocketRanks = 3;
constexpr size_t kMaxBytes = 700'000;

using Bytes = std::vector<std::byte>;

// Each message has a length and a content of its own.
Bytes message_of(int from, int to, int step) {
  const int kind = step % 5;
  Bytes bytes(kind == 0 ? 0 : kMaxBytes >> (4 * (kind - 1)));
  uint32_t next = static_cast<uint32_t>(from * 1'000 + to * 100 + step);
  for (std::byte& one : bytes)
    one = static_cast<std::byte>((next = next * 1664525 + 1013904223) >> 24);
  return bytes;
}

class SocketTransportTest : public ::testing::TestWithParam<SendMethod> {};

void exchange_all(Transport& transport) {
  auto exchange =
      AllToAll::create(transport, {.max_bytes = on_lanes(1, {kMaxBytes, kMaxBytes, 1})});
  ASSERT_TRUE(exchange.has_value()) << exchange.error().message;
  std::array<std::vector<Bytes>, 2> sent;  // a kind's bytes belong to the network until the next
  for (int step = 0; step < 40; ++step) {
    for (const MessageKind kind : {MessageKind::dispatch, MessageKind::combine}) {
      const Stamp stamp = {.step = static_cast<uint64_t>(step)};
      std::vector<Bytes>& mine = sent.at(static_cast<size_t>(kind));
      mine.clear();
      std::vector<std::array<std::span<const std::byte>, 2>> pieces;
      for (int to = 0; to < kSocketRanks; ++to)
        mine.push_back(message_of(transport.rank(), to, step));
      for (const Bytes& bytes : mine) {
        const size_t cut = bytes.size() / 3;
        pieces.push_back({std::span(bytes).first(cut), std::span(bytes).subspan(cut)});
      }
      const std::vector<AllToAll::Parts> parts(pieces.begin(), pieces.end());
      ASSERT_TRUE((*exchange)->start(0, kind, stamp, parts).has_value());
      ASSERT_TRUE((*exchange)->wait(0, kind, stamp).has_value());
      for (int from = 0; from < kSocketRanks; ++from) {
        if (from == transport.rank()) continue;
        const std::span<const std::byte> came = (*exchange)->from(0, kind, from);
        EXPECT_TRUE(std::ranges::equal(came, message_of(from, transport.rank(), step)))
            << "step " << step << " from " << from << ": " << came.size() << " bytes";
      }
      (*exchange)->release(0, kind);
    }
  }
}

TEST_P(SocketTransportTest, MessagesOfAllLengthsArriveWholeAndInOrder) {
  std::vector<std::unique_ptr<SocketTransport>> ends;
  std::vector<Bytes> addresses;
  for (int rank = 0; rank < kSocketRanks; ++rank) {
    auto end =
        SocketTransport::create(rank, kSocketRanks, {.host = "127.0.0.1", .way = GetParam()});
    if (!end) GTEST_SKIP() << end.error().message;
    addresses.push_back((*end)->address());
    ends.push_back(std::move(*end));
  }
  std::vector<std::jthread> threads;
  for (auto& end : ends) {
    threads.emplace_back([&addresses, mine = std::move(end)]() mutable {
      const std::vector<std::span<const std::byte>> all(addresses.begin(), addresses.end());
      ASSERT_TRUE(mine->connect(all).has_value());
      exchange_all(*mine);
      mine.reset();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWay, SocketTransportTest,
                         ::testing::Values(SendMethod::calls, SendMethod::zero_copy,
                                           SendMethod::ring, SendMethod::ring_zero_copy));

}  // namespace
}  // namespace hocket
