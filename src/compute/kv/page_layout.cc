#include "compute/kv/page_layout.h"

#include <cstring>

#include "base/check.h"

namespace hocket {
namespace {

// One head of one page.
struct HeadFrom {
  const KvShape& shape;
  const std::byte* bytes;
};
struct HeadTo {
  const KvShape& shape;
  std::byte* bytes;
};

// Copies `count` numbers of `size` bytes, which begin at those elements.
void copy_elements(HeadFrom from, int64_t from_element, HeadTo to, int64_t to_element,
                   int64_t count) {
  const int64_t size = size_of(from.shape.dtype);
  std::memcpy(to.bytes + to_element * size, from.bytes + from_element * size,
              static_cast<size_t>(count * size));
}

void copy_scales(HeadFrom from, HeadTo to, int64_t from_scale, int64_t to_scale, int64_t count) {
  const auto begin = [](const KvShape& shape) { return shape.head_bytes() - shape.scale_bytes(); };
  constexpr int64_t kSize = sizeof(float);
  std::memcpy(to.bytes + begin(to.shape) + to_scale * kSize,
              from.bytes + begin(from.shape) + from_scale * kSize,
              static_cast<size_t>(count * kSize));
}

void copy_latents(HeadFrom from, HeadTo to, const TokenMove& move) {
  const int64_t row = from.shape.row_elements();
  copy_elements(from, move.from * row, to, move.to * row, move.count * row);
  if (from.shape.scale_bytes() > 0)
    copy_scales(from, to, int64_t{2} * move.from, int64_t{2} * move.to, int64_t{2} * move.count);
}

// Both pages hold rows, or both hold tiles: what belongs to a token, or to 32, lies together.
void copy_in_order(HeadFrom from, HeadTo to, const TokenMove& move) {
  const int step = from.shape.in_rows() ? 1 : static_cast<int>(kBlockK);
  HOCKET_CHECK((move.from % step == 0 && move.to % step == 0 && move.count % step == 0));
  const int64_t key = round_up(from.shape.key_dim, kBlockK);
  const int64_t value = round_up(from.shape.value_dim, kPanelN);
  copy_elements(from, move.from * key, to, move.to * key, move.count * key);
  copy_elements(from, from.shape.key_elements() + move.from * value, to,
                to.shape.key_elements() + move.to * value, move.count * value);
}

template <size_t kSize>
void copy_number(HeadFrom from, int64_t from_element, HeadTo to, int64_t to_element) {
  std::memcpy(to.bytes + to_element * static_cast<int64_t>(kSize),
              from.bytes + from_element * static_cast<int64_t>(kSize), kSize);
}

// One page holds rows and the other tiles.
template <size_t kSize>
void copy_reordered(HeadFrom from, HeadTo to, const TokenMove& move) {
  const KvShape &a = from.shape, &b = to.shape;
  for (int i = 0; i < move.count; ++i) {
    for (int dim = 0; dim < a.key_dim; ++dim)
      copy_number<kSize>(from, a.key_offset(move.from + i, dim), to,
                         b.key_offset(move.to + i, dim));
    for (int dim = 0; dim < a.value_dim; ++dim)
      copy_number<kSize>(from, a.key_elements() + a.value_offset(move.from + i, dim), to,
                         b.key_elements() + b.value_offset(move.to + i, dim));
  }
}

void copy_head(HeadFrom from, HeadTo to, const TokenMove& move) {
  if (from.shape.kind == KvShape::Kind::latent) return copy_latents(from, to, move);
  if (from.shape.in_rows() == to.shape.in_rows()) {
    copy_in_order(from, to, move);
  } else {
    switch (size_of(from.shape.dtype)) {
      case 1:
        copy_reordered<1>(from, to, move);
        break;
      case 2:
        copy_reordered<2>(from, to, move);
        break;
      default:
        copy_reordered<4>(from, to, move);
        break;
    }
  }
  if (from.shape.scale_bytes() == 0) return;
  copy_scales(from, to, move.from, move.to, move.count);
  copy_scales(from, to, from.shape.page_tokens + move.from, to.shape.page_tokens + move.to,
              move.count);
}

}  // namespace

int64_t PageLayout::page_bytes() const {
  int64_t bytes = 0;
  for (const KvShape& shape : layers) bytes += shape.page_bytes();
  return bytes;
}

PageLayout PageLayout::with_tokens(int page_tokens) const {
  PageLayout other = *this;
  for (KvShape& shape : other.layers) {
    shape.page_tokens = page_tokens;
    HOCKET_CHECK(shape.has_known_pages());
  }
  return other;
}

void copy_tokens(const PageLayout& from_layout, std::span<const std::byte> from,
                 const PageLayout& to_layout, std::span<std::byte> to, const TokenMove& move) {
  HOCKET_CHECK(from_layout.layers.size() == to_layout.layers.size());
  HOCKET_CHECK(
      (std::ssize(from) == from_layout.page_bytes() && std::ssize(to) == to_layout.page_bytes()));
  HOCKET_CHECK((move.from >= 0 && move.to >= 0 && move.count >= 0));
  HOCKET_CHECK((move.from + move.count <= from_layout.page_tokens() &&
                move.to + move.count <= to_layout.page_tokens()));
  const std::byte* from_head = from.data();
  std::byte* to_head = to.data();
  for (size_t layer = 0; layer < from_layout.layers.size(); ++layer) {
    const KvShape &a = from_layout.layers[layer], &b = to_layout.layers[layer];
    HOCKET_CHECK((a.kind == b.kind && a.dtype == b.dtype && a.num_heads == b.num_heads &&
                  a.key_dim == b.key_dim && a.value_dim == b.value_dim));
    for (int head = 0; head < a.num_heads; ++head) {
      copy_head({a, from_head}, {b, to_head}, move);
      from_head += a.head_bytes();
      to_head += b.head_bytes();
    }
  }
}

}  // namespace hocket
