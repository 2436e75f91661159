#include "compute/kv/page_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/mix.h"

namespace hocket {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kTokens = PageLayout::kMaxTokens;

// Both dims of heads need padding; layers differ, as those of a module do.
PageLayout layout_of(DType dtype) {
  return {.layers = {{.dtype = dtype, .num_heads = 2, .key_dim = 40, .value_dim = 24},
                     {.kind = KvShape::Kind::latent,
                      .dtype = dtype,
                      .num_heads = 1,
                      .key_dim = 48,
                      .value_dim = 40},
                     {.dtype = dtype, .num_heads = 1, .key_dim = 32, .value_dim = 16}}};
}

// Writes number `index` of a token's key, value, latent or scales: each of them is another.
void put(std::byte* at, size_t size, std::initializer_list<int> index) {
  uint64_t bits = 1;
  for (const int part : index) bits = mix64(bits + static_cast<uint64_t>(part + 2));
  std::memcpy(at, &bits, size);
}

void put_heads(const KvLayer& layer, int number, int token, int in_page) {
  const KvShape& shape = layer.shape;
  const auto size = static_cast<size_t>(size_of(shape.dtype));
  for (int head = 0; head < shape.num_heads; ++head) {
    std::byte* const begin = layer.head(PageId{0}, head);
    const auto at = [&](int64_t element) { return begin + element * static_cast<int64_t>(size); };
    for (int dim = 0; dim < shape.key_dim; ++dim)
      put(at(shape.key_offset(in_page, dim)), size, {number, head, token, 0, dim});
    for (int dim = 0; dim < shape.value_dim; ++dim)
      put(at(shape.key_elements() + shape.value_offset(in_page, dim)), size,
          {number, head, token, 1, dim});
    if (shape.dtype != DType::int8) continue;
    float* const scales = layer.scales(PageId{0}, head);
    put(reinterpret_cast<std::byte*>(scales + in_page), 4, {number, head, token, 2});
    put(reinterpret_cast<std::byte*>(scales + shape.page_tokens + in_page), 4,
        {number, head, token, 3});
  }
}

void put_latent(const KvLayer& layer, int number, int token, int in_page) {
  const KvShape& shape = layer.shape;
  const auto size = static_cast<size_t>(size_of(shape.dtype));
  std::byte* const row =
      layer.head(PageId{0}, 0) + in_page * shape.row_elements() * static_cast<int64_t>(size);
  for (int dim = 0; dim < shape.key_dim; ++dim) {
    const int64_t element =
        dim < shape.value_dim ? dim : shape.rope_offset() + dim - shape.value_dim;
    put(row + element * static_cast<int64_t>(size), size, {number, token, dim});
  }
  if (shape.dtype != DType::int8) return;
  for (int part = 0; part < 2; ++part)
    put(reinterpret_cast<std::byte*>(layer.scales(PageId{0}, 0) + 2 * in_page + part), 4,
        {number, token, -1, part});
}

// Returns a page that holds the tokens from `begin` on, as store_kv() and store_latent_kv() place
// them.
Bytes page_of(const PageLayout& layout, int begin) {
  Bytes page(static_cast<size_t>(layout.page_bytes()));
  std::byte* next = page.data();
  for (size_t number = 0; number < layout.layers.size(); ++number) {
    const KvLayer layer{layout.layers[number], next};
    for (int i = 0; i < layout.page_tokens(); ++i)
      (layer.shape.kind == KvShape::Kind::latent ? put_latent : put_heads)(
          layer, static_cast<int>(number), begin + i, i);
    next += layer.shape.page_bytes();
  }
  return page;
}

// Makes each page of one size out of pages of every other size.
TEST(PageLayout, TokensOfAnySizeOfPagesMakePagesOfAnyOther) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::int8}) {
    for (int from_tokens = 1; from_tokens <= kTokens; from_tokens *= 2) {
      for (int to_tokens = 1; to_tokens <= kTokens; to_tokens *= 2) {
        SCOPED_TRACE(::testing::Message()
                     << dtype_name(dtype) << ' ' << from_tokens << " to " << to_tokens);
        const PageLayout from = layout_of(dtype).with_tokens(from_tokens);
        const PageLayout to = layout_of(dtype).with_tokens(to_tokens);
        Bytes made(static_cast<size_t>(to.page_bytes()));
        const int begin = kTokens - to_tokens, step = std::min(from_tokens, to_tokens);
        for (int token = begin; token < kTokens; token += step)
          copy_tokens(from, page_of(from, token / from_tokens * from_tokens), to, made,
                      {.from = token % from_tokens, .to = token - begin, .count = step});
        ASSERT_EQ(made, page_of(to, begin));
      }
    }
  }
}

TEST(PageLayout, TokensBesideThoseThatMoveStay) {
  const PageLayout from = layout_of(DType::bf16).with_tokens(32);
  const PageLayout to = layout_of(DType::bf16).with_tokens(64);
  Bytes made = page_of(to, 0);
  const Bytes before = made;
  copy_tokens(from, page_of(from, 32), to, made, {.from = 0, .to = 32, .count = 32});
  EXPECT_EQ(made, before);
  copy_tokens(from, page_of(from, 0), to, made, {.from = 0, .to = 32, .count = 32});
  EXPECT_NE(made, before);
  copy_tokens(from, page_of(from, 32), to, made, {.from = 0, .to = 32, .count = 32});
  EXPECT_EQ(made, before);
}

TEST(PageLayout, ASizeChangesNoShapeBesideIt) {
  const PageLayout layout = layout_of(DType::int8);
  EXPECT_EQ(layout.with_tokens(64).with_tokens(layout.page_tokens()).page_bytes(),
            layout.page_bytes());
  EXPECT_EQ(layout.with_tokens(128).page_bytes(), 2 * layout.with_tokens(64).page_bytes());
}

}  // namespace
}  // namespace hocket
