#include "compute/moe/exchange_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "compute/kernels/quantized_rows.h"

namespace hocket {
namespace {

constexpr int kMessageExperts = 6, kMessageTopK = 3, kPeer = 4, kMessageHidden = 40;
// Experts 0 and 3 to 5 are elsewhere too.
constexpr uint8_t kExclusiveExperts[kMessageExperts] = {0, 1, 1, 0, 0, 0};
constexpr MessageFormat format_of(RowLayout layout, DType dtype) {
  return {.layout = layout,
          .dtype = dtype,
          .num_experts = kMessageExperts,
          .top_k = kMessageTopK,
          .max_rows = layout == RowLayout::per_rank ? 8 : 24,
          .row_bytes = dtype == DType::int8 ? quantized_columns(kMessageHidden) : 64,
          .exclusive_experts = kExclusiveExperts};
}
constexpr MessageFormat kPerRank = format_of(RowLayout::per_rank, DType::bf16);
constexpr MessageFormat kPerExpert = format_of(RowLayout::per_expert, DType::bf16);
constexpr MessageFormat kQuantized = format_of(RowLayout::per_rank, DType::int8);
constexpr MessageFormat kQuantizedPerExpert = format_of(RowLayout::per_expert, DType::int8);

// A dispatch of two rows: the first for experts 1 and 5, the second for 5.
struct Message {
  std::vector<std::byte> bytes;

  explicit Message(const MessageFormat& format) {
    const int rows = format.layout == RowLayout::per_rank ? 2 : 3;
    bytes.resize(format.dispatch_bytes(rows));
    write_head(format, rows, bytes.data());
    count(1) = 1, count(5) = 2;
    if (format.layout == RowLayout::per_rank) {
      const int32_t ids[2 * kMessageTopK] = {5, -1, 1, -1, 5, -1};
      std::memcpy(lists(), ids, sizeof ids);
    }
    for (int row = 0; row < rows; ++row)
      bytes[bytes.size() - format.row_bytes * (rows - row)] = std::byte(row);
  }
  uint32_t& count(int expert) {
    return reinterpret_cast<uint32_t*>(bytes.data() + kMessageHeadBytes)[expert];
  }
  int32_t* lists() {
    return reinterpret_cast<int32_t*>(bytes.data() + dispatch_head_bytes(kMessageExperts));
  }
  uint32_t& num_rows() { return reinterpret_cast<uint32_t*>(bytes.data())[1]; }
};

void expect_refused(const Message& message, const MessageFormat& format, const char* why) {
  const auto read = read_dispatch(message.bytes, format, kPeer);
  ASSERT_FALSE(read.has_value()) << why;
  EXPECT_EQ(read.error().code, ErrorCode::lost_rank);
  EXPECT_NE(read.error().message.find("rank 4"), std::string::npos) << read.error().message;
  EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
}

TEST(ExchangeMessage, IsReadAsItWasWritten) {
  const Message per_rank(kPerRank);
  const auto read = read_dispatch(per_rank.bytes, kPerRank, kPeer);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->num_rows, 2);
  EXPECT_EQ(read->counts[5], 2u);
  EXPECT_EQ(read->ids.row(0)[2], 1);
  EXPECT_EQ(read->ids.row(1)[1], 5);
  EXPECT_EQ(*read->row(1), std::byte(1));

  const Message per_expert(kPerExpert);
  const auto rows = read_dispatch(per_expert.bytes, kPerExpert, kPeer);
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  EXPECT_EQ(rows->num_rows, 3);
  EXPECT_EQ(*rows->row(2), std::byte(2));
}

TEST(ExchangeMessage, WhatCannotBeReadNamesItsRank) {
  const auto changed = [](const MessageFormat& format, auto change) {
    Message message(format);
    change(message);
    return message;
  };
  expect_refused(changed(kPerRank, [](auto& m) { m.bytes.resize(10); }), kPerRank, "10 bytes");
  expect_refused(changed(kPerRank, [](auto& m) { m.bytes.clear(); }), kPerRank, "0 bytes");
  expect_refused(Message(kPerExpert), kPerRank, "another layout");
  expect_refused(changed(kPerRank, [](auto& m) { m.bytes.pop_back(); }), kPerRank, "for 2 rows");
  expect_refused(changed(kPerRank, [](auto& m) { m.num_rows() = 9; }), kPerRank, "more than 8");
  expect_refused(changed(kPerRank, [](auto& m) { m.num_rows() = 1u << 31; }), kPerRank,
                 "more than 8");
  expect_refused(changed(kPerRank, [](auto& m) { m.count(5) = 1, m.count(1) = 2; }), kPerRank,
                 "counts");
  expect_refused(changed(kPerExpert, [](auto& m) { m.count(5) = 1u << 31; }), kPerExpert, "counts");
  expect_refused(changed(kPerRank, [](auto& m) { m.lists()[0] = 6; }), kPerRank, "expert 6");
  expect_refused(changed(kPerRank, [](auto& m) { m.lists()[0] = -7; }), kPerRank, "expert -7");
  expect_refused(changed(kPerRank, [](auto& m) { m.lists()[1] = INT32_MIN; }), kPerRank,
                 "expert -2147483648");
  expect_refused(changed(kPerRank, [](auto& m) { m.lists()[1] = -2; }), kPerRank,
                 "another rank computes expert 1");
  expect_refused(changed(kPerRank, [](auto& m) { m.lists()[4] = -1; }), kPerRank, "0 experts");
  MessageFormat other = kPerRank;
  other.row_bytes = 128;
  expect_refused(Message(kPerRank), other, "not those of this model");
  other = kPerRank;
  other.num_experts = 7;
  expect_refused(Message(kPerRank), other, "for 6 experts");
  // These rows have as many bytes, but another type.
  other = kQuantized;
  other.dtype = DType::bf16;
  expect_refused(Message(kQuantized), other, "64 bytes of type 3, are not those of this model");
  expect_refused(Message(other), kQuantized, "64 bytes of type 3 (int8)");
  expect_refused(changed(kQuantized, [](auto& m) { m.bytes.resize(m.bytes.size() - 32); }),
                 kQuantized, "for 2 rows");
}

// Widens all rows: rows that were accepted can be used without further checks, whatever they hold.
void dequantize_all(Backend& backend, const ArrivedRows& rows) {
  std::vector<const std::byte*> from;
  for (int i = 0; i < rows.num_rows; ++i) from.push_back(rows.row(i));
  std::vector<float> to(from.size() * kMessageHidden);
  dequantize_rows(backend, from,
                  MatrixView::of(View<float>(to.data(), rows.num_rows, kMessageHidden)));
}

TEST(ExchangeMessage, DamagedBytesNeverReachOutside) {
  WorkerPool workers({});
  Backend backend = *Backend::create(Isa::ref, workers, 1 << 12);
  const MessageFormat* const formats[] = {&kPerRank, &kPerExpert, &kQuantized,
                                          &kQuantizedPerExpert};
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const MessageFormat& format = *formats[round % 4];
    Message message(format);
    for (int change = 0; change <= round % 3; ++change)
      message.bytes[random() % message.bytes.size()] = std::byte(random());
    if (random() % 4 == 0) message.bytes.resize(random() % (message.bytes.size() + 1));
    const auto read = read_dispatch(message.bytes, format, kPeer);
    if (!read) {
      ++refused;
      continue;
    }
    ASSERT_LE(read->num_rows, format.max_rows);
    ASSERT_EQ(read->row(read->num_rows), message.bytes.data() + message.bytes.size());
    if (format.dtype == DType::int8) dequantize_all(backend, *read);
    int64_t listed = 0;
    for (const uint32_t count : read->counts) listed += count;
    for (int row = 0; format.layout == RowLayout::per_rank && row < read->num_rows; ++row)
      for (int s = 0; s < kMessageTopK; ++s) listed -= read->ids.row(row)[s] >= 0 ? 1 : 0;
    ASSERT_EQ(listed, format.layout == RowLayout::per_rank ? 0 : read->num_rows);
  }
  EXPECT_GT(refused, 5'000);
}

TEST(ExchangeMessage, ACombineHasTheRowsThatAreDue) {
  MessageFormat format = kPerRank;
  format.num_experts = 0;
  std::vector<std::byte> message(format.combine_bytes(3));
  write_head(format, 3, message.data());
  const auto read = read_combine(message, format, 3, kPeer);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, message.data() + kMessageHeadBytes);
  for (const int due : {0, 2, 4}) {
    const auto refused = read_combine(message, format, due, kPeer);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("rank 4"), std::string::npos);
  }
  message.pop_back();
  EXPECT_FALSE(read_combine(message, format, 3, kPeer).has_value());
}

}  // namespace
}  // namespace hocket
