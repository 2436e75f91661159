// The memory of keys and values: one buffer for all layers, cut into pages as kernels/kv_layout.h
// describes. policy/cache knows which tokens a page holds; here a page is only a number.
//
//   layer 0: page 0, page 1, ... | layer 1: page 0, page 1, ... | ...
//
// A page id means the same page in every layer. Invariant: a page is cleared before its first token
// is written, so its padding is zero and every number in it is finite.   Thread: engine; workers
// split layers.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/worker_pool.h"
#include "compute/kernels/kv_layout.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// One copy of a whole page, in all layers.
struct PagePair {
  PageId from = kNoPage, to = kNoPage;
};

class PagePool {
 public:
  // Reserves all of the memory at once; the kernel backs a page when it is first written. Errors:
  // out_of_memory.
  static Result<PagePool> create(const KvShape& shape, int num_layers, int num_pages);

  KvLayer layer(int layer) const;
  const KvShape& shape() const { return shape_; }
  int num_layers() const { return num_layers_; }
  int num_pages() const { return num_pages_; }
  int64_t bytes() const { return memory_.bytes(); }

  // Sets all bytes of the pages to zero, in all layers. Allocates nothing.
  void clear_pages(WorkerPool& workers, std::span<const PageId> pages);
  // Copies whole pages in all layers, in the given order. Allocates nothing.
  void copy_pages(WorkerPool& workers, std::span<const PagePair> copies);

 private:
  PagePool(const KvShape& shape, int num_layers, int num_pages, Buffer memory);
  std::byte* page(int layer, PageId page) const;

  KvShape shape_;
  int num_layers_ = 0, num_pages_ = 0;
  Buffer memory_;
};

}  // namespace hocket
