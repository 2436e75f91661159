#include "policy/cache/cached_windows.h"

#include "base/check.h"

namespace hocket {

void CachedWindows::append(int index, int sentinel) {
  const int last = at(sentinel).before;
  at(index).before = last;
  at(index).after = sentinel;
  at(last).after = index;
  at(sentinel).before = index;
}

void CachedWindows::take_out(int index) {
  at(at(index).before).after = at(index).after;
  at(at(index).after).before = at(index).before;
}

void CachedWindows::insert(RadixNode& node, int page_index, PageId page, WindowPosition position) {
  CachedPage& cached = at(page);
  HOCKET_CHECK(cached.node == nullptr);
  PageId& of_node = node.window_page(page_index);
  HOCKET_CHECK(of_node == kNoPage);
  of_node = page;
  cached = {
      .node = &node, .page_index = page_index, .in_window = position == WindowPosition::in_window};
  append(value(page), cached.in_window ? in_window_ : out_of_window_);
  ++num_cached_;
}

void CachedWindows::pin(PageId page, WindowPosition position) {
  HOCKET_CHECK(at(page).node != nullptr);
  at(page).in_window |= position == WindowPosition::in_window;
  if (at(page).num_leases++ > 0) return;
  take_out(value(page));
  ++num_pinned_;
}

void CachedWindows::unpin(PageId page, WindowPosition position) {
  HOCKET_CHECK(at(page).num_leases > 0);
  at(page).in_window |= position == WindowPosition::in_window;
  if (--at(page).num_leases > 0) return;
  append(value(page), at(page).in_window ? in_window_ : out_of_window_);
  --num_pinned_;
}

void CachedWindows::drop(PageId page) {
  CachedPage& cached = at(page);
  HOCKET_CHECK(cached.node != nullptr);
  HOCKET_CHECK(cached.num_leases == 0);
  take_out(value(page));
  cached.node->window_page(cached.page_index) = kNoPage;
  cached = {};
  --num_cached_;
  give_back(page);
}

bool CachedWindows::evict_one() {
  int first = at(out_of_window_).after;
  if (first == out_of_window_) first = at(in_window_).after;
  if (first == in_window_) return false;
  drop(PageId{first});
  ++num_evicted_;
  return true;
}

}  // namespace hocket
