#include "engine/tier/saved_pages.h"

#include <algorithm>
#include <span>

#include "engine/pages/page_keys.h"

namespace hocket {

// Returns the pages up to the last state among the first `num_pages`.
Result<size_t> SavedPages::last_state(size_t num_pages) const {
  HOCKET_TRY(const auto reading, files->open({}));
  if (reading == nullptr) return fail(ErrorCode::io, "the folder is away");
  std::vector<PageKey> states;
  for (size_t i = 0; i < num_pages; ++i) states.push_back(PageKeys::of_state(keys[i]));
  return reading->last_held(states);
}

void SavedPages::operator()(bool all_written) const {
  if (!all_written) return done(0, false);
  const auto there = files->exist(keys);
  if (!there) return done(0, false);
  auto num_pages = static_cast<size_t>(std::ranges::find(*there, false) - there->begin());
  bool whole = num_pages >= num_held;
  if (has_states) {
    const auto state = last_state(num_pages);
    if (!state) return done(0, false);
    num_pages = *state;
    whole &= num_pages >= num_with_state;
  }
  done(static_cast<int>(num_pages), whole);
}

}  // namespace hocket
