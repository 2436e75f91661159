#include "gguf/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/testing.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

std::string message_of(const GgufText& file) {
  const auto header = parse_gguf_header(file.bytes());
  return header ? "read" : header.error().message;
}

TEST(GgufHeader, HoldsValuesOfEveryKindAndTensors) {
  const GgufText file = GgufText()
                            .counts(2, 5)
                            .text_value("general.architecture", "llama")
                            .u32_value("llama.block_count", 3)
                            .f32_value("llama.rope.freq_base", 10000)
                            .flag_value("x.flag", true)
                            .texts_value("x.texts", {"a", "", "ccc"})
                            .tensor("first", {32, 2}, 8, 0)
                            .tensor("second", {3}, 0, 96)
                            .data(96 + 12);
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_TRUE(header.has_value()) << header.error().message;
  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(metadata.text("general.architecture"), "llama");
  EXPECT_EQ(metadata.integer("llama.block_count"), 3);
  EXPECT_EQ(metadata.number("llama.rope.freq_base"), 10000);
  EXPECT_EQ(metadata.flag("x.flag"), true);
  EXPECT_EQ(metadata.texts("x.texts"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_FALSE(metadata.text("llama.block_count").has_value());
  EXPECT_FALSE(metadata.integer("missing").has_value());
  const GgufTensor& first = header->tensors.at("first");
  EXPECT_EQ(first.type->name, "Q8_0");
  EXPECT_EQ(first.shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(first.end, 68);
  EXPECT_EQ(header->data_offset % 32, 0);
}

TEST(GgufHeader, EveryCutIsRefused) {
  const std::string whole = GgufText()
                                .counts(1, 1)
                                .texts_value("x.texts", {"one", "two"})
                                .tensor("t", {64}, 0, 0)
                                .data(256)
                                .bytes_as_text();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_gguf_header(std::as_bytes(std::span(whole.data(), size)))) << size;
  EXPECT_TRUE(parse_gguf_header(std::as_bytes(std::span(whole))));
}

TEST(GgufHeader, CanBeReadWithoutTheDataOfTensors) {
  const std::string whole = GgufText()
                                .counts(2, 0)
                                .tensor("t", {64}, 0, 0)
                                .tensor("u", {64}, 0, 256)
                                .data(512)
                                .bytes_as_text();
  const size_t header = whole.size() - 512;
  for (size_t size = 0; size <= header; ++size) {
    const bool is_read =
        parse_gguf_header(std::as_bytes(std::span(whole.data(), size)), GgufExtent::header)
            .has_value();
    // The padding behind the table of tensors belongs to neither.
    if (size + 32 < header || size == header) {
      EXPECT_EQ(is_read, size == header) << size;
    }
  }
  const auto far = GgufText().counts(1, 0).tensor("t", {int64_t{1} << 50}, 0, 0).bytes_as_text();
  EXPECT_FALSE(parse_gguf_header(std::as_bytes(std::span(far)), GgufExtent::header));
}

TEST(GgufHeader, CountsThatTheFileCannotHoldAreRefusedBeforeMemoryIsTaken) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  EXPECT_THAT(message_of(GgufText().counts(kHuge, 0)), HasSubstr("1152921504606846976 tensors"));
  EXPECT_THAT(message_of(GgufText().counts(0, kHuge)), HasSubstr("1152921504606846976 values"));
  EXPECT_THAT(message_of(GgufText().counts(0, 1).list_value("x", 4, kHuge)),
              HasSubstr("at most 16777216"));
  EXPECT_THAT(message_of(GgufText().counts(0, 1).list_value("x", 4, 1000)),
              HasSubstr("1000 numbers"));
  EXPECT_THAT(message_of(GgufText().counts(0, 1).list_value("x", 8, 1000)),
              HasSubstr("1000 texts"));
  EXPECT_THAT(message_of(GgufText().counts(0, 1).list_value("x", 9, 1)),
              HasSubstr("\"x\" holds lists, which are not supported"));
  EXPECT_THAT(message_of(GgufText().counts(0, 1).list_value("x", 13, 1)), HasSubstr("type 13"));
}

TEST(GgufHeader, TensorsThatLieAreRefusedByName) {
  const auto with = [](const std::string& name, std::vector<int64_t> axes, uint32_t type,
                       int64_t begin, int64_t bytes) {
    return message_of(
        GgufText().counts(1, 0).tensor(name, std::move(axes), type, begin).data(bytes));
  };
  EXPECT_THAT(with("short", {64}, 0, 0, 255), HasSubstr("\"short\" ends at byte 256"));
  EXPECT_THAT(with("odd", {33}, 8, 0, 64), HasSubstr("no whole blocks of 32, as Q8_0"));
  EXPECT_THAT(with("none", {0}, 0, 0, 64), HasSubstr("impossible shape"));
  EXPECT_THAT(with("huge", {int64_t{1} << 40, int64_t{1} << 40}, 0, 0, 64),
              HasSubstr("impossible shape"));
  EXPECT_THAT(with("far", {64}, 0, INT64_MAX - 8, 64), HasSubstr("beyond any file"));
  EXPECT_THAT(with("hole", {8}, 0, 64, 96), HasSubstr("\"hole\" begins at byte 64"));
  EXPECT_THAT(with("five", {1, 1, 1, 1, 1}, 0, 0, 64), HasSubstr("5 axes"));
  EXPECT_THAT(with("rare", {256}, 40, 0, 64), HasSubstr("NVFP4, which is not supported"));
  EXPECT_THAT(with("foreign", {256}, 139, 0, 64), HasSubstr("stored as IQ4_K of ik_llama.cpp,"));
  EXPECT_THAT(with("old", {256}, 31, 0, 64), HasSubstr("stored as Q4_0_4_4 of older llama.cpp,"));
  EXPECT_THAT(with("new", {256}, 99, 0, 64), HasSubstr("type 99, which is not supported"));
  EXPECT_THAT(
      message_of(
          GgufText().counts(2, 0).tensor("a", {64}, 0, 0).tensor("b", {64}, 0, 128).data(512)),
      HasSubstr("an overlapping one ends at 256"));
  EXPECT_THAT(
      message_of(GgufText().counts(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(64)),
      HasSubstr("\"a\" twice"));
}

// A first part may hold metadata alone, without padding behind them.
TEST(GgufHeader, TheDataOfAFileWithoutTensorsBeginWithinIt) {
  for (const uint32_t alignment : {32u, 1u << 20}) {
    const GgufText file = GgufText().counts(0, 1).u32_value("general.alignment", alignment);
    for (const GgufExtent extent : {GgufExtent::whole, GgufExtent::header}) {
      const auto header = parse_gguf_header(file.bytes(), extent);
      ASSERT_TRUE(header.has_value()) << header.error().message;
      EXPECT_LE(header->data_offset, std::ssize(file.bytes()));
    }
  }
}

TEST(GgufHeader, OtherVersionsAreRefusedByName) {
  EXPECT_THAT(message_of(GgufText(1)), HasSubstr("version 1"));
  EXPECT_THAT(message_of(GgufText(4)), HasSubstr("version 4"));
  EXPECT_THAT(message_of(GgufText(3 << 24)), HasSubstr("big-endian"));
}

TEST(GgufHeader, AKeyThatOccursTwiceAndABadAlignmentAreRefused) {
  EXPECT_THAT(message_of(GgufText().counts(0, 2).u32_value("k", 1).u32_value("k", 1)),
              HasSubstr("\"k\" twice"));
  for (const uint32_t alignment : {0u, 3u, 1u << 30})
    EXPECT_THAT(message_of(GgufText().counts(0, 1).u32_value("general.alignment", alignment)),
                HasSubstr("general.alignment"));
}

}  // namespace
}  // namespace hocket
