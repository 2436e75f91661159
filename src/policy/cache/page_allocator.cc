#include "policy/cache/page_allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace hocket {

PageAllocator::PageAllocator(int num_pages, int page_tokens) : page_tokens_(page_tokens) {
  HOCKET_CHECK(num_pages >= 1);
  HOCKET_CHECK(page_tokens >= 1);
  HOCKET_CHECK(std::has_single_bit(static_cast<unsigned>(page_tokens)));
  is_free_.assign(static_cast<size_t>(num_pages), true);
  free_.reserve(static_cast<size_t>(num_pages));
  for (int page = num_pages - 1; page >= 0; --page) free_.push_back(PageId{page});
}

bool PageAllocator::take(std::span<PageId> out) {
  if (out.size() > free_.size()) return false;
  for (PageId& page : out) {
    page = free_.back();
    free_.pop_back();
    is_free_[static_cast<size_t>(value(page))] = false;
  }
  return true;
}

void PageAllocator::give_back(std::span<const PageId> pages) {
  for (PageId page : pages) {
    HOCKET_CHECK(value(page) >= 0);
    HOCKET_CHECK(value(page) < num_pages());
    const auto index = static_cast<size_t>(value(page));
    HOCKET_CHECK(!is_free_[index]);
    is_free_[index] = true;
    free_.push_back(page);
  }
}

}  // namespace hocket
