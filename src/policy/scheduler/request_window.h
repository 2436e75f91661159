// The pages of window layers that one request uses, in models with sliding windows. Each belongs to
// a page of all other layers; those that no later row sees are given up.
//
//   tokens   |---- given up ----|--- the tree's, pinned ---|--- own ---|
//            0                begin                   leased_pages   pages.size()
#pragma once

#include <vector>

#include "policy/cache/radix_cache.h"

namespace hocket {

struct RequestWindow {
  std::vector<PageId> pages;  // as long as Request::pages; kNoPage: given up
  int begin = 0;              // number of the first page that is not given up
  // Pins the pages from `begin` to Request::leased_pages, and before the first commit also the page
  // that was copied.
  WindowLease lease;
};

}  // namespace hocket
