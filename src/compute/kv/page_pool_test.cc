#include "compute/kv/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace hocket {
namespace {

constexpr KvShape kShape{.dtype = DType::int8,  // both dims need padding
                         .num_heads = 2,
                         .key_dim = 40,
                         .value_dim = 24,
                         .page_tokens = 64};
constexpr int kLayers = 3, kPages = 5;

PagePool make_pool() {
  auto pool = PagePool::create(std::vector(kLayers, kShape), kPages);
  EXPECT_TRUE(pool.has_value());
  return *std::move(pool);
}

// The byte value that fills one page of one layer; each page of each layer has its own.
std::byte mark(int layer, int page) {
  return std::byte(1 + layer * kPages + page);
}
std::span<std::byte> page_bytes(const PagePool& pool, int layer, int page) {
  return {pool.layer(layer).head(PageId{page}, 0), static_cast<size_t>(kShape.page_bytes())};
}
void mark_all(const PagePool& pool) {
  for (int layer = 0; layer < kLayers; ++layer)
    for (int page = 0; page < kPages; ++page)
      std::ranges::fill(page_bytes(pool, layer, page), mark(layer, page));
}
bool all_are(std::span<const std::byte> bytes, std::byte want) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == want; });
}

TEST(PagePool, BytesAreWhatTheShapeSays) {
  EXPECT_EQ(kShape.page_bytes(), 2 * (64 * (64 + 32) + 2 * 64 * 4));
  EXPECT_EQ(make_pool().bytes(), kLayers * kPages * kShape.page_bytes());
  KvShape shape = kShape;
  shape.dtype = DType::bf16;
  EXPECT_EQ(shape.page_bytes(), 2 * 64 * (64 + 32) * 2);
  shape = {.kind = KvShape::Kind::latent,
           .dtype = DType::bf16,
           .num_heads = 1,
           .key_dim = 576,
           .value_dim = 512,
           .page_tokens = 32};
  EXPECT_EQ(shape.page_bytes(), 32 * 576 * 2);
  shape.dtype = DType::int8;
  EXPECT_EQ(shape.page_bytes(), 32 * (576 + 2 * 4));
}

// The keys, values and scales of a head lie inside its page, one after another.
TEST(PagePool, ScalesStandBehindTheNumbers) {
  const PagePool pool = make_pool();
  const KvLayer layer = pool.layer(1);
  for (int head = 0; head < kShape.num_heads; ++head) {
    std::byte* const begin = layer.head(PageId{2}, head);
    EXPECT_EQ(reinterpret_cast<std::byte*>(layer.values<int8_t>(PageId{2}, head)),
              begin + kShape.key_elements());
    EXPECT_EQ(reinterpret_cast<std::byte*>(layer.scales(PageId{2}, head)),
              begin + kShape.key_elements() + kShape.value_elements());
    EXPECT_EQ(reinterpret_cast<std::byte*>(layer.scales(PageId{2}, head) + 2 * kShape.page_tokens),
              begin + kShape.head_bytes());
  }
}

TEST(PagePool, PagesOfAllLayersAreDisjointAndAligned) {
  const PagePool pool = make_pool();
  mark_all(pool);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int page = 0; page < kPages; ++page) {
      EXPECT_TRUE(all_are(page_bytes(pool, layer, page), mark(layer, page)));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(page_bytes(pool, layer, page).data()) % 64, 0u);
    }
  }
}

TEST(PagePool, ANewPoolIsZero) {
  const PagePool pool = make_pool();
  for (int layer = 0; layer < kLayers; ++layer)
    EXPECT_TRUE(all_are(page_bytes(pool, layer, kPages - 1), std::byte{0}));
}

TEST(PagePool, ClearsOnlyTheGivenPagesInAllLayers) {
  for (const int num_workers : {1, 2}) {
    WorkerPool workers({.num_workers = num_workers, .cpus = {}});
    PagePool pool = make_pool();
    mark_all(pool);
    pool.clear_pages(workers, std::vector{PageId{1}, PageId{4}});
    for (int layer = 0; layer < kLayers; ++layer)
      for (int page = 0; page < kPages; ++page)
        EXPECT_TRUE(all_are(page_bytes(pool, layer, page),
                            page == 1 || page == 4 ? std::byte{0} : mark(layer, page)));
  }
}

TEST(PagePool, CopiesInOrderInAllLayers) {
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  PagePool pool = make_pool();
  mark_all(pool);
  pool.copy_pages(workers, std::vector<PagePair>{{PageId{0}, PageId{2}}, {PageId{2}, PageId{3}}});
  for (int layer = 0; layer < kLayers; ++layer) {
    const int holds[kPages] = {0, 1, 0, 0, 4};
    for (int page = 0; page < kPages; ++page)
      EXPECT_TRUE(all_are(page_bytes(pool, layer, page), mark(layer, holds[page])));
  }
}

TEST(PagePool, NothingToDoIsFine) {
  WorkerPool workers({.num_workers = 1, .cpus = {}});
  PagePool pool = make_pool();
  pool.clear_pages(workers, {});
  pool.copy_pages(workers, {});
}

TEST(PagePool, MovingKeepsTheBytes) {
  PagePool pool = make_pool();
  mark_all(pool);
  const PagePool moved = std::move(pool);
  EXPECT_TRUE(all_are(page_bytes(moved, 2, 3), mark(2, 3)));
}

TEST(PagePool, ImpossibleSizesAreAnErrorOfMemory) {
  KvShape huge = kShape;
  huge.num_heads = 1024;
  huge.page_tokens = 1 << 20;
  const auto pool = PagePool::create(std::vector(512, huge), 2'000'000'000);
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, ErrorCode::out_of_memory);
}

TEST(PagePool, EachLayerHasPagesOfItsOwnShape) {
  KvShape wide = kShape;
  wide.num_heads = 4;
  wide.value_dim = 64;
  PagePool pool = *PagePool::create(std::vector{kShape, wide, kShape}, kPages);
  EXPECT_EQ(pool.num_layers(), 3);
  EXPECT_EQ(pool.bytes(), kPages * (2 * kShape.page_bytes() + wide.page_bytes()));
  EXPECT_EQ(pool.layer(1).shape.num_heads, 4);
  const auto bytes = [&](int layer, int page) {
    const KvLayer of = pool.layer(layer);
    return std::span(of.head(PageId{page}, 0), static_cast<size_t>(of.shape.page_bytes()));
  };
  for (int layer = 0; layer < 3; ++layer)
    for (int page = 0; page < kPages; ++page)
      std::ranges::fill(bytes(layer, page), mark(layer, page));
  WorkerPool workers({.num_workers = 1, .cpus = {}});
  pool.copy_pages(workers, std::vector<PagePair>{{PageId{0}, PageId{2}}});
  pool.clear_pages(workers, std::vector{PageId{4}});
  const int holds[kPages] = {0, 1, 0, 3, -1};
  for (int layer = 0; layer < 3; ++layer)
    for (int page = 0; page < kPages; ++page)
      EXPECT_TRUE(
          all_are(bytes(layer, page), holds[page] < 0 ? std::byte{0} : mark(layer, holds[page])));
}

TEST(PagePool, OnlyTheLastLayerHasSparePages) {
  const auto pool = PagePool::create(std::vector(2, kShape), kPages, 3);
  ASSERT_TRUE(pool.has_value());
  EXPECT_EQ(pool->num_pages(), kPages);
  EXPECT_EQ(pool->bytes(), (2 * kPages + 3) * kShape.page_bytes());
  const KvLayer last = pool->layer(1);
  const std::span spare(last.head(PageId{kPages + 2}, 0), static_cast<size_t>(kShape.page_bytes()));
  std::ranges::fill(spare, mark(0, 0));
  EXPECT_TRUE(all_are(spare, mark(0, 0)));
}

TEST(PagePoolDeathTest, AForeignPageIsABug) {
  WorkerPool workers({.num_workers = 1, .cpus = {}});
  PagePool pool = make_pool();
  EXPECT_DEATH(pool.clear_pages(workers, std::vector{PageId{kPages}}), "CHECK failed");
  EXPECT_DEATH(pool.clear_pages(workers, std::vector{kNoPage}), "CHECK failed");
}

}  // namespace
}  // namespace hocket
