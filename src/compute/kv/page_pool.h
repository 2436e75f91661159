// The memory of keys and values: one buffer for all layers, cut into pages as kernels/kv_layout.h
// describes. policy/cache knows which tokens a page holds; here a page is only a number. The
// kernels that write keys and values into pages also round them: kernels/store_kv.h,
// store_latent_kv.h.
//
//   layer 0: page 0, page 1, ... | layer 1: page 0, page 1, ... | ...
//
// A layer's pages have the shape of that layer; all shapes have the same tokens in a page.
// A page id means the same page in every layer. Invariant: a page is cleared before its first token
// is written, so its padding is zero and every number in it is finite.   Thread: engine; workers
// split layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/worker_pool.h"
#include "compute/kernels/kv_layout.h"
#include "compute/kv/page_layout.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// One copy of a whole page, in all layers.
struct PagePair {
  PageId from = kNoPage, to = kNoPage;
};

class PagePool {
 public:
  // Reserves all of the memory at once; the kernel backs a page when it is first written. layers:
  // the shape of each. The last layer has `num_spare` pages more, which are not cleared or copied.
  // Errors: out_of_memory.
  static Result<PagePool> create(std::span<const KvShape> layers, int num_pages, int num_spare = 0);

  KvLayer layer(int layer) const;
  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_pages() const { return num_pages_; }
  int64_t bytes() const { return memory_.bytes(); }

  // Sets all bytes of the pages to zero, in all layers. Allocates nothing.
  void clear_pages(WorkerPool& workers, std::span<const PageId> pages);
  // Copies whole pages in all layers, in the given order. Allocates nothing.
  void copy_pages(WorkerPool& workers, std::span<const PagePair> copies);
  // Copy a whole page out and in, layer by layer: page_bytes() bytes, as layout() says. Allocate
  // nothing.
  int64_t page_bytes() const;
  PageLayout layout() const;
  void save_page(PageId from, std::span<std::byte> to) const;
  void load_page(std::span<const std::byte> from, PageId to);

 private:
  PagePool(std::vector<KvLayer> layers, int num_pages, Buffer memory);
  std::byte* page(int layer, PageId page) const;

  std::vector<KvLayer> layers_;
  int num_pages_ = 0;
  Buffer memory_;
};

}  // namespace hocket
