#include "policy/cache/kept_windows.h"

#include "base/check.h"

namespace hocket {

void KeptWindows::append(int index, int ends) {
  const int last = at(ends).before;
  at(index).before = last;
  at(index).after = ends;
  at(last).after = index;
  at(ends).before = index;
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
  kept = {.node = &node, .place = place, .wanted = use == WindowUse::wanted};
  append(value(page), kept.wanted ? wanted_ : passed_);
  ++num_kept_;
}

void KeptWindows::pin(PageId page, WindowUse use) {
  HOCKET_CHECK(at(page).node != nullptr);
  at(page).wanted |= use == WindowUse::wanted;
  if (at(page).num_leases++ > 0) return;
  take_out(value(page));
  ++num_pinned_;
}

void KeptWindows::unpin(PageId page, WindowUse use) {
  HOCKET_CHECK(at(page).num_leases > 0);
  if (--at(page).num_leases > 0) return;
  append(value(page), use == WindowUse::passed && !at(page).wanted ? passed_ : wanted_);
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
  int first = at(passed_).after;
  if (first == passed_) first = at(wanted_).after;
  if (first == wanted_) return false;
  drop(PageId{first});
  ++num_evicted_;
  return true;
}

}  // namespace hocket
