#include "engine/module_rows.h"

namespace hocket {
namespace {

// Returns true if any element of the token's key is not zero, of the first head.
bool has_key(const KvLayer& layer, PageId page, int token) {
  const KvShape& shape = layer.shape;
  const bool is_latent = shape.kind == KvShape::Kind::latent;
  const int64_t size = size_of(shape.dtype);
  const std::byte* const head = layer.head(page, 0);
  for (int dim = 0; dim < (is_latent ? shape.value_dim : shape.key_dim); ++dim) {
    const int64_t element =
        is_latent ? token * shape.row_elements() + dim : shape.key_offset(token, dim);
    const std::span bytes(head + element * size, static_cast<size_t>(size));
    if (std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{}; })) return true;
  }
  return false;
}

}  // namespace

void ModuleRows::count(PageId page, const KvLayer& layer) {
  clear(page);
  for (int token = 0; token < page_tokens_; ++token)
    if (has_key(layer, page, token)) add(page);
}

int ModuleRows::num_missing(std::span<const PageId> pages, int position) const {
  int missing = 0;
  for (int begin = 0; begin < position; begin += page_tokens_) {
    const PageId page = pages[static_cast<size_t>(begin / page_tokens_)];
    const int rows = std::min(page_tokens_, position - begin);
    missing += std::max(0, rows - num_rows_[static_cast<size_t>(value(page))]);
  }
  return missing;
}

}  // namespace hocket
