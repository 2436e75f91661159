// Decides which waiting requests join the next prefill, and with how many rows. Pure: numbers in,
// numbers out. There are two budgets: compute (rows of this pass) and memory (free or evictable
// pages, less the tokens reserved for the growth of requests admitted before). A request fits if
//
//   new pages of the prompt + min(new tokens left, 4096) + one page  <  available - reserved
//
// Invariant: an admitted request can take its pages at once; a request that is alone is admitted
// whenever it fits into the pool at all. Thread: engine.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace hocket {

// no_tokens: memory is short. pass_full: nothing more fits into this pass.
enum class AddResult : uint8_t { added, no_tokens, pass_full };

// Memory is reserved for at most this many new tokens of a request; it may still generate more.
inline constexpr int kMaxReservedNewTokens = 4096;

// Tokens that a running or waiting request is expected to take until its end, and those that it
// then returns.
struct ExpectedTokens {
  double remaining = 0;
  int occupied = 0;
};

// Limits of one pass.
struct PrefillBudget {
  int page_tokens = 1;
  int chunk_tokens = -1;  // -1: prompts are never cut
  int max_prefill_tokens = 0;
  // Rows of running requests in the same pass; their pages are taken already.
  int num_decode_rows = 0;
  double reserved_tokens = 0;    // reserved for the growth of the running requests
  bool nothing_running = false;  // true: no request holds pages
  int max_requests = 0;          // in one pass; 0: no limit
  // True if pages are not kept when requests end (no prefix cache). Then a request that ignores end
  // tokens is admitted if a simulation of all requests to their ends fits (`expected`: the running
  // ones).
  bool play_to_the_end = false;
  std::vector<ExpectedTokens> expected = {};
};

struct PrefillCandidate {
  int total_len = 0;     // tokens whose KV exists when the prefill is done
  int prefix_len = 0;    // already computed; may end inside a page, which is then copied
  int prefix_pages = 0;  // pages that it already holds
  int remaining_new_tokens = 0;
  bool ignore_eos = false;
  int spare_rows = 0;      // rows of this pass to leave to others, but at least a page is taken
  bool may_be_cut = true;  // false: admitted whole or not at all
  // Models with sliding windows: the pages of window layers that it may take now, and those without
  // which it does not begin.
  int window_room = std::numeric_limits<int>::max();
  int window_need = 0;
};

struct Admission {
  AddResult result = AddResult::pass_full;
  int len = 0;  // rows from prefix_len on; a cut chunk ends at a page border
};

class PrefillAdder {
 public:
  explicit PrefillAdder(PrefillBudget budget);

  // Gives rows to a prompt that was cut. no_tokens: it waits until running requests need less
  // memory. available_tokens: in pages that are free or evictable at present. An admission is
  // charged to the budgets.
  Admission continue_chunked(const PrefillCandidate& candidate, int64_t available_tokens);
  // Tries a waiting request. Its matched prefix must be pinned already, so that available_tokens
  // does not count it. An admission is charged to the budgets.
  Admission add(const PrefillCandidate& candidate, int64_t available_tokens);

  // Returns `added` if a further candidate may be tried, else the reason why not.
  AddResult verdict(int64_t available_tokens) const;
  // Returns the tokens of memory that a candidate with pinned prefix lacks; <= 0: none.
  double shortfall(const PrefillCandidate& candidate, int64_t available_tokens) const;
  // Call when a running request was retracted: its reserve is free. From then on shortfall() alone
  // decides.
  void free_reserve(double reserved_tokens) {
    budget_.reserved_tokens -= reserved_tokens;
    budget_.play_to_the_end = false;
  }
  // Limits this pass to `rows` more rows, beside the budgets, until the next call.
  void allow(int rows) { allowed_ = rows; }
  // Returns how many rows are left in this pass.
  int limit() const;
  // Returns true if no other request holds memory or was admitted in this pass.
  bool alone() const { return budget_.nothing_running && num_added_ == 0; }

 private:
  bool outlives_all(const PrefillCandidate& candidate, int64_t available_tokens) const;
  int floor_page(int tokens) const { return tokens / budget_.page_tokens * budget_.page_tokens; }
  int ceil_page(int tokens) const { return floor_page(tokens + budget_.page_tokens - 1); }
  int window_rows(const PrefillCandidate& candidate) const;
  Admission charge(const PrefillCandidate& candidate, int len);

  PrefillBudget budget_;
  int rem_input_;
  int rem_chunk_ = std::numeric_limits<int>::max();
  int allowed_ = std::numeric_limits<int>::max();
  int num_added_ = 0;
  int rest_tokens_ = 0;  // rows that cut prompts will need in later passes
};

}  // namespace hocket
