#include "compute/kv/page_pool.h"

#include <cstring>

namespace hocket {

Result<PagePool> PagePool::create(const KvShape& shape, int num_layers, int num_pages) {
  HOCKET_CHECK(num_layers > 0 && num_pages > 0);
  HOCKET_CHECK(shape.num_heads > 0 && shape.key_dim > 0 && shape.value_dim > 0);
  HOCKET_CHECK(shape.has_known_pages());
  int64_t bytes = shape.page_bytes();
  if (__builtin_mul_overflow(bytes, num_layers, &bytes) ||
      __builtin_mul_overflow(bytes, num_pages, &bytes))
    return fail(error(ErrorCode::out_of_memory,
                      "{} KV pages of {} bytes in {} layers are more than any memory", num_pages,
                      shape.page_bytes(), num_layers)
                    .with_fix("lower --max-total-tokens"));
  HOCKET_TRY(Buffer memory, Buffer::allocate(bytes));
  return PagePool(shape, num_layers, num_pages, std::move(memory));
}

PagePool::PagePool(const KvShape& shape, int num_layers, int num_pages, Buffer memory)
    : shape_(shape), num_layers_(num_layers), num_pages_(num_pages), memory_(std::move(memory)) {}

KvLayer PagePool::layer(int layer) const {
  HOCKET_CHECK(layer >= 0 && layer < num_layers_);
  return {shape_, page(layer, PageId{0})};
}

void PagePool::clear_pages(WorkerPool& workers, std::span<const PageId> pages) {
  for (const PageId id : pages) HOCKET_CHECK(value(id) >= 0 && value(id) < num_pages_);
  if (pages.empty()) return;
  workers.run(num_layers_, [&](int layer, int) {
    for (const PageId id : pages) std::memset(page(layer, id), 0, shape_.page_bytes());
  });
}

void PagePool::copy_pages(WorkerPool& workers, std::span<const PagePair> copies) {
  for (const PagePair& copy : copies) {
    HOCKET_CHECK(value(copy.from) >= 0 && value(copy.from) < num_pages_);
    HOCKET_CHECK(value(copy.to) >= 0 && value(copy.to) < num_pages_);
    HOCKET_CHECK(copy.from != copy.to);
  }
  if (copies.empty()) return;
  workers.run(num_layers_, [&](int layer, int) {
    for (const PagePair& copy : copies)
      std::memcpy(page(layer, copy.to), page(layer, copy.from), shape_.page_bytes());
  });
}

std::byte* PagePool::page(int layer, PageId id) const {
  return memory_.data() + (int64_t{layer} * num_pages_ + value(id)) * shape_.page_bytes();
}

}  // namespace hocket
