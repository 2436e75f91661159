#include "engine/tier/page_copier.h"

#include <vector>

#include "engine/pages/page_keys.h"

namespace hocket {

PageCopier::Rest PageCopier::copy_pages(std::span<const PageId> pages, StoredRequest& stored,
                                        CopyLimit* limit) {
  // From the last page to the first: the file used last is the one that others build on.
  struct LackedPage {
    size_t index = 0;
    unsigned stores = 0;
  };
  std::vector<LackedPage> lacking;
  for (size_t i = pages.size(); i > stored.num_written; --i)
    if (const unsigned stores = writer_.stores_lacking(stored.keys[i - 1]); stores != 0)
      lacking.push_back({.index = i - 1, .stores = stores});
  for (; !lacking.empty(); lacking.pop_back()) {
    const auto [next, stores] = lacking.back();
    const CopyOutcome copied =
        limit != nullptr && !limit->allows_next()
            ? CopyOutcome::no_time
            : writer_.copy({.kind = PageKind::page, .key = stored.keys[next], .stores = stores},
                           [&, next = next](std::span<std::byte> bytes) {
                             pages_.save_page(pages[next], bytes);
                           });
    if (copied != CopyOutcome::yes) {
      stored.num_written = next;
      return {lacking.size(), copied};
    }
  }
  stored.num_written = pages.size();
  return {};
}

PageCopier::CopyOutcome PageCopier::copy_state(size_t num_pages, std::span<const int> places,
                                               const StoredRequest& stored, CopyLimit* limit) {
  const PageKey key = PageKeys::of_state(stored.keys[num_pages - 1]);
  const unsigned stores = writer_.stores_lacking(key);
  if (stores == 0) return CopyOutcome::yes;
  if (limit != nullptr && !limit->allows_next()) return CopyOutcome::no_time;
  return writer_.copy({.kind = PageKind::state, .key = key, .stores = stores},
                      [&](std::span<std::byte> bytes) { states_.save(places, bytes); });
}

}  // namespace hocket
