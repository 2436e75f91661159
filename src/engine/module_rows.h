// Counts the rows of the model's own module for multi-token prediction in each page. A request that
// is followed only for a while leaves pages in which rows are missing.
//
//   page   | row 0 | row 1 |   -   | row 3 |   -   ..      3 rows, of which a prefix may miss some
//
// Owner: ModuleDrafter.   Thread: engine. Allocates in construction only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/kernels/kv_layout.h"

namespace hocket {

class ModuleRows {
 public:
  ModuleRows(int num_pages, int page_tokens)
      : page_tokens_(page_tokens), num_rows_(static_cast<size_t>(num_pages)) {}

  // The page gets its first token.
  void clear(PageId page) { of(page) = 0; }
  void copy(PageId from, PageId to) { of(to) = of(from); }
  // One more row of the page was computed.
  void add(PageId page) { of(page) = std::min(of(page) + 1, page_tokens_); }
  // Takes back a row that was added but not computed. If an earlier pass had computed the row, the
  // count is then one too low.
  void remove(PageId page) { of(page) = std::max(of(page) - 1, 0); }
  // The page was read into memory; `layer` is the module's. A row without keys was never computed,
  // since every page is cleared before its first token.
  void count(PageId page, const KvLayer& layer);
  // Returns how many of a request's first `position` rows are missing at least, by its pages.
  int num_missing(std::span<const PageId> pages, int position) const;

 private:
  int& of(PageId page) { return num_rows_[static_cast<size_t>(value(page))]; }

  const int page_tokens_;
  std::vector<int> num_rows_;  // by page
};

}  // namespace hocket
