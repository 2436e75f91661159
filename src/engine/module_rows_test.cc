#include "engine/module_rows.h"

#include <gtest/gtest.h>

#include <array>

#include "compute/kv/page_pool.h"

namespace hocket {
namespace {

constexpr int kRowsOfPage = 4;

TEST(ModuleRows, APageInPartCountsWithItsRowsAlone) {
  ModuleRows rows(3, kRowsOfPage);
  const std::array pages = {PageId{2}, PageId{0}};
  EXPECT_EQ(rows.num_missing(pages, 6), 6);
  for (int i = 0; i < kRowsOfPage; ++i) rows.add(PageId{2});
  rows.add(PageId{0});
  EXPECT_EQ(rows.num_missing(pages, 4), 0);
  EXPECT_EQ(rows.num_missing(pages, 5), 0);
  EXPECT_EQ(rows.num_missing(pages, 8), 3);
  rows.copy(PageId{0}, PageId{1});
  EXPECT_EQ(rows.num_missing(std::array{PageId{1}}, 4), 3);
  rows.clear(PageId{2});
  EXPECT_EQ(rows.num_missing(pages, 8), 7);
}

TEST(ModuleRows, AnotherComputationOfARowDoesNotMakeAPageMoreThanWhole) {
  ModuleRows rows(1, kRowsOfPage);
  for (int i = 0; i < 2 * kRowsOfPage; ++i) rows.add(PageId{0});
  EXPECT_EQ(rows.num_missing(std::array{PageId{0}}, 4), 0);
}

TEST(ModuleRows, ARowThatWasNotComputedIsMissingAgain) {
  ModuleRows rows(2, kRowsOfPage);
  const std::array pages = {PageId{1}, PageId{0}};
  for (int i = 0; i < kRowsOfPage; ++i) rows.add(PageId{1});
  rows.remove(PageId{1});
  rows.remove(PageId{0});
  EXPECT_EQ(rows.num_missing(pages, 4), 1);
  rows.add(PageId{0});
  EXPECT_EQ(rows.num_missing(pages, 5), 1);
}

// A page that comes back from files shows by its keys which rows it has.
TEST(ModuleRows, ARestoredPageHasTheRowsWithKeys) {
  for (const KvShape::Kind kind : {KvShape::Kind::heads, KvShape::Kind::latent})
    for (const int page_tokens : {4, 32}) {
      const KvShape shape{.kind = kind,
                          .dtype = DType::bf16,
                          .num_heads = 1,
                          .key_dim = 40,
                          .value_dim = 32,
                          .page_tokens = page_tokens};
      auto pool = PagePool::create(std::span(&shape, 1), 2);
      ASSERT_TRUE(pool.has_value());
      WorkerPool workers({.num_workers = 1});
      const std::array pages = {PageId{0}, PageId{1}};
      pool->clear_pages(workers, pages);
      const KvLayer layer = pool->layer(0);
      const bool is_latent = kind == KvShape::Kind::latent;
      for (const int token : {0, 2, 3}) {
        const int64_t at =
            is_latent ? token * shape.row_elements() + 7 : shape.key_offset(token, 7);
        layer.keys<uint16_t>(PageId{1}, 0)[at] = 0x3f80;
      }
      ModuleRows rows(2, page_tokens);
      for (const PageId page : pages) rows.count(page, layer);
      EXPECT_EQ(rows.num_missing(pages, 2 * page_tokens), 2 * page_tokens - 3);
    }
}

}  // namespace
}  // namespace hocket
