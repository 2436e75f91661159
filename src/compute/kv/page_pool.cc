#include "compute/kv/page_pool.h"

#include <cstring>

namespace hocket {

Result<PagePool> PagePool::create(std::span<const KvShape> layers, int num_pages, int num_spare) {
  HOCKET_CHECK(num_spare >= 0);
  HOCKET_CHECK(num_pages > 0);
  HOCKET_CHECK(!layers.empty());
  int64_t bytes = 0;
  bool fits = true;
  std::vector<int64_t> begins;
  for (const KvShape& shape : layers) {
    HOCKET_CHECK(shape.num_heads > 0 && shape.key_dim > 0 && shape.value_dim > 0);
    HOCKET_CHECK(shape.has_known_pages());
    HOCKET_CHECK(shape.page_tokens == layers[0].page_tokens);
    int64_t of_layer = 0;
    begins.push_back(bytes);
    fits = fits && !__builtin_mul_overflow(shape.page_bytes(), num_pages, &of_layer) &&
           !__builtin_add_overflow(bytes, of_layer, &bytes);
  }
  int64_t spare = 0;
  fits = fits && !__builtin_mul_overflow(layers.back().page_bytes(), num_spare, &spare) &&
         !__builtin_add_overflow(bytes, spare, &bytes);
  if (!fits)
    return fail(
        error(ErrorCode::out_of_memory,
              "{} KV pages, of {} bytes in the first of {} layers, are more than any memory",
              num_pages, layers[0].page_bytes(), layers.size())
            .with_fix("lower --max-total-tokens"));
  HOCKET_TRY(Buffer memory, Buffer::allocate(bytes));
  std::vector<KvLayer> placed;
  for (size_t i = 0; i < layers.size(); ++i)
    placed.push_back({layers[i], memory.data() + begins[i]});
  return PagePool(std::move(placed), num_pages, std::move(memory));
}

PagePool::PagePool(std::vector<KvLayer> layers, int num_pages, Buffer memory)
    : layers_(std::move(layers)), num_pages_(num_pages), memory_(std::move(memory)) {}

KvLayer PagePool::layer(int layer) const {
  HOCKET_CHECK(layer >= 0 && layer < num_layers());
  return layers_[layer];
}

void PagePool::clear_pages(WorkerPool& workers, std::span<const PageId> pages) {
  for (const PageId id : pages) HOCKET_CHECK(value(id) >= 0 && value(id) < num_pages_);
  if (pages.empty()) return;
  workers.run(num_layers(), [&](int layer, int) {
    for (const PageId id : pages)
      std::memset(page(layer, id), 0, layers_[layer].shape.page_bytes());
  });
}

void PagePool::copy_pages(WorkerPool& workers, std::span<const PagePair> copies) {
  for (const PagePair& copy : copies) {
    HOCKET_CHECK(value(copy.from) >= 0 && value(copy.from) < num_pages_);
    HOCKET_CHECK(value(copy.to) >= 0 && value(copy.to) < num_pages_);
    HOCKET_CHECK(copy.from != copy.to);
  }
  if (copies.empty()) return;
  workers.run(num_layers(), [&](int layer, int) {
    for (const PagePair& copy : copies)
      std::memcpy(page(layer, copy.to), page(layer, copy.from), layers_[layer].shape.page_bytes());
  });
}

int64_t PagePool::page_bytes() const {
  int64_t bytes = 0;
  for (const KvLayer& layer : layers_) bytes += layer.shape.page_bytes();
  return bytes;
}

PageLayout PagePool::layout() const {
  PageLayout layout;
  for (const KvLayer& layer : layers_) layout.layers.push_back(layer.shape);
  return layout;
}

void PagePool::save_page(PageId from, std::span<std::byte> to) const {
  HOCKET_CHECK(value(from) >= 0 && value(from) < num_pages_);
  HOCKET_CHECK(std::ssize(to) == page_bytes());
  for (int layer = 0; layer < num_layers(); ++layer) {
    const auto bytes = static_cast<size_t>(layers_[layer].shape.page_bytes());
    std::memcpy(to.data(), page(layer, from), bytes);
    to = to.subspan(bytes);
  }
}

void PagePool::load_page(std::span<const std::byte> from, PageId to) {
  HOCKET_CHECK(value(to) >= 0 && value(to) < num_pages_);
  HOCKET_CHECK(std::ssize(from) == page_bytes());
  for (int layer = 0; layer < num_layers(); ++layer) {
    const auto bytes = static_cast<size_t>(layers_[layer].shape.page_bytes());
    std::memcpy(page(layer, to), from.data(), bytes);
    from = from.subspan(bytes);
  }
}

std::byte* PagePool::page(int layer, PageId id) const {
  return layers_[layer].head(id, 0);
}

}  // namespace hocket
