// Says which keys a query of an attention layer sees. Pure. Thread: any.
#pragma once

#include <algorithm>

namespace hocket {

// The first key that a query sees; the last is its own. Without bounds the first is key 0.
//   window 4:  position 6 sees keys 3 4 5 6        chunk 4:  position 6 sees keys 4 5 6
struct VisibleKeys {
  int window = 0;  // at most this many keys are seen, the query's own included; 0: no bound
  int chunk = 0;  // keys before the query's own chunk of this many tokens are not seen; 0: no bound

  constexpr bool bounded() const { return window > 0 || chunk > 0; }
  // Returns how many keys a query sees at most; 0: no bound.
  constexpr int max_keys() const {
    return window > 0 && chunk > 0 ? std::min(window, chunk) : std::max(window, chunk);
  }
  // Returns the first key; a later position never has an earlier one.
  constexpr int first_key(int position) const {
    const int in_window = window > 0 && position >= window ? position - window + 1 : 0;
    return chunk > 0 ? std::max(in_window, position - position % chunk) : in_window;
  }
};

}  // namespace hocket
