#include "compute/tensor/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <utility>

namespace hocket {
namespace {

// Returns false once the page of `address` belongs to no mapping.
bool is_mapped(const std::byte* address) {
  const auto page = reinterpret_cast<uintptr_t>(address) / 4096 * 4096;
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;
}

TEST(Buffer, IsAlignedZeroedAndGivenBack) {
  for (int64_t bytes : {int64_t{1}, int64_t{100'000}, (int64_t{2} << 20) + 5}) {
    Buffer buffer = *Buffer::allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    if (bytes >= int64_t{2} << 20) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (uintptr_t{2} << 20), 0u);
    }
    for (int64_t i : {int64_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(buffer.data()[i], std::byte{0});
    buffer.data()[bytes - 1] = std::byte{1};
    const std::byte* first = buffer.data();
    const std::byte* last = first + bytes - 1;
    EXPECT_TRUE(is_mapped(first) && is_mapped(last));
    buffer = Buffer();
    EXPECT_FALSE(is_mapped(first) || is_mapped(last));
  }
}

TEST(Buffer, MovesWithoutCopying) {
  Buffer a = *Buffer::allocate(1000);
  std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = *Buffer::allocate(500);
  EXPECT_EQ(b.bytes(), 500);
  EXPECT_NE(b.data(), data);
}

TEST(Buffer, RefusesWhatNoMachineHas) {
  const auto buffer = Buffer::allocate(int64_t{1} << 60);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(buffer.error().message.find("GB"), std::string::npos);
}

TEST(Layout, LearnsTheSizeThenPlacesTheSameWay) {
  const auto place = [](Layout& layout) {
    const MatrixView a = layout.matrix(DType::bf16, 3, 33);
    float* b = layout.array<float>(5);
    const MatrixView c = layout.matrix(DType::f32, 2, 32);
    EXPECT_EQ(a.stride, 64);
    EXPECT_EQ(c.stride, 32);
    return std::array{static_cast<char*>(a.data), reinterpret_cast<char*>(b),
                      static_cast<char*>(c.data)};
  };
  Layout measure;
  place(measure);
  EXPECT_EQ(measure.bytes(), 3 * 64 * 2 + 64 + 2 * 32 * 4);
  const Buffer memory = *Buffer::allocate(measure.bytes());
  Layout layout(memory.data());
  const auto places = place(layout);
  EXPECT_EQ(places[0], reinterpret_cast<char*>(memory.data()));
  EXPECT_EQ(places[1] - places[0], 3 * 64 * 2);
  EXPECT_EQ(places[2] - places[1], 64);
  EXPECT_EQ(layout.bytes(), measure.bytes());
}

TEST(Layout, RowsOfOperandsAreNoMultipleOf512BytesApart) {
  Layout layout;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int64_t cols : {1, 32, 224, 256, 768, 1024, 4096}) {
      const MatrixView x = layout.operand(dtype, 3, cols);
      EXPECT_GE(x.stride, cols);
      EXPECT_EQ(x.stride % 32, 0);
      EXPECT_NE(x.stride * size_of(dtype) % 512, 0);
    }
}

TEST(View, RangesOfRowsAreViews) {
  float data[12] = {};
  const View<float> all(data, 3, 2, 4);
  const View<float> last = all.slice_rows(1, 2);
  EXPECT_EQ(last.row(1), data + 8);
  EXPECT_EQ(last.rows, 2);
  const MatrixView same = MatrixView::of(all).slice_rows(1, 2);
  EXPECT_EQ(same.as<float>().row(1), data + 8);
  EXPECT_DEATH(all.slice_rows(2, 2), "CHECK failed");
  EXPECT_DEATH(same.as<Bf16>(), "CHECK failed");
}

}  // namespace
}  // namespace hocket
