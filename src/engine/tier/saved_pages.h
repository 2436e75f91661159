// Looks how much of a session is in files, once its pages are written. Its last pages and its
// states may have been evicted from memory while files have them, or be gone from both.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/pages/page_store.h"

namespace hocket {

struct SavedPages {
  std::shared_ptr<PageStore> files;
  std::vector<PageKey> keys;
  size_t num_held = 0;  // pages that the tree had
  bool has_states = false;
  size_t num_with_state = 0;  // pages before the last state that the tree had
  // num_pages: the first pages that are in files; in models with states, those up to the last
  // state. whole: these are all that the tree had.
  std::function<void(int num_pages, bool whole)> done;

  // Calls done(); without pages if not all was written, or if the files cannot be looked for. A
  // folder that hangs costs one limit of its calls.   Thread: kv_write.
  void operator()(bool all_written) const;

 private:
  Result<size_t> last_state(size_t num_pages) const;
};

}  // namespace hocket
