#include "policy/cache/kept_windows.h"

#include "base/check.h"

namespace hocket {

void KeptWindows::append(int index, int sentinel) {
  const int last = at(sentinel).before;
  at(index).before = last;
  at(index).after = sentinel;
  at(last).after = index;
  at(sentinel).before = index;
}

void KeptWindows::take_out(int index) {
  at(at(index).before).after = at(index).after;
  at(at(index).after).before = at(index).before;
}

void KeptWindows::keep(RadixNode& node, int place, PageId page, WindowUse use) {
  Kept& kept = at(page);
  HOCKET_CHECK(kept.node == nullptr);
  PageId& of_node = node.window_page(place);
  HOCKET_CHECK(of_node == kNoPage);
  of_node = page;
  kept = {.node = &node, .place = place, .in_window = use == WindowUse::in_window};
  append(value(page), kept.in_window ? in_window_ : out_of_window_);
  ++num_kept_;
}

void KeptWindows::pin(PageId page, WindowUse use) {
  HOCKET_CHECK(at(page).node != nullptr);
  at(page).in_window |= use == WindowUse::in_window;
  if (at(page).num_leases++ > 0) return;
  take_out(value(page));
  ++num_pinned_;
}

void KeptWindows::unpin(PageId page, WindowUse use) {
  HOCKET_CHECK(at(page).num_leases > 0);
  if (--at(page).num_leases > 0) return;
  append(value(page),
         use == WindowUse::out_of_window && !at(page).in_window ? out_of_window_ : in_window_);
  --num_pinned_;
}

void KeptWindows::drop(PageId page) {
  Kept& kept = at(page);
  HOCKET_CHECK(kept.node != nullptr);
  HOCKET_CHECK(kept.num_leases == 0);
  take_out(value(page));
  kept.node->window_page(kept.place) = kNoPage;
  kept = {};
  --num_kept_;
  give_back(page);
}

bool KeptWindows::evict_one() {
  int first = at(out_of_window_).after;
  if (first == out_of_window_) first = at(in_window_).after;
  if (first == in_window_) return false;
  drop(PageId{first});
  ++num_evicted_;
  return true;
}

}  // namespace hocket
