// Decides which waiting requests join the next prefill and how much of each. Pure: numbers in,
// numbers out. Two budgets: compute (rows of this pass) and memory (pages that are free or
// evictable, less what is reserved for the future of those admitted before).
//
//   new pages of the prompt + min(new tokens left, 4096) + one page  <  available - reserved
//
// Invariant: what it admits has its pages now; and a request that is alone is admitted whenever it
// fits at all.
// Thread: engine.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace hocket {

// no_tokens: memory; other: this pass is full.
enum class AddResult : uint8_t { added, no_tokens, other };

// New tokens beyond this many are not reserved for; generation goes on all the same.
inline constexpr int kMaxReservedNewTokens = 4096;

// What a request that runs, or is about to, will still take, and what it gives back when it is
// done. In tokens.
struct Growth {
  double left = 0;
  int occupied = 0;
};

// A pool besides the pages (sliding windows, recurrent states) belongs here: its room, and what a
// candidate takes of it, as one more reason for no_tokens.
struct PrefillBudget {
  int page_tokens = 1;
  int chunk_tokens = -1;  // -1: prompts are never cut
  int max_prefill_tokens = 0;
  int num_decode_rows =
      0;  // rows of running requests in the same pass; their pages are taken already
  double reserved_tokens = 0;    // future growth of the running requests
  bool nothing_running = false;  // no request holds pages
  int max_requests = 0;          // of one pass; 0: no limit
  // Of the running requests, where nothing is kept when they end (no prefix cache): then requests
  // that ignore the end tokens are admitted by playing all to their ends.
  bool play_to_the_end = false;
  std::vector<Growth> growths = {};
};

struct PrefillCandidate {
  int total_len = 0;     // tokens to have computed when its prefill is done
  int prefix_len = 0;    // computed already; may end inside a page, which is then copied
  int prefix_pages = 0;  // pages that it already holds
  int new_tokens_left = 0;
  bool ignore_eos = false;
  int spare_rows = 0;      // of this pass, to be left to others; a page is taken all the same
  bool may_be_cut = true;  // false: all of it or nothing
};

struct Admission {
  AddResult result = AddResult::other;
  int len = 0;  // rows from prefix_len on; a cut chunk ends at a page border
};

class PrefillAdder {
 public:
  explicit PrefillAdder(PrefillBudget budget);

  // The request whose chunk was cut in an earlier pass: goes first, and waits only while running
  // requests need the memory. available_tokens: in pages free or evictable now; what it gets is
  // charged.
  Admission continue_chunked(const PrefillCandidate& candidate, int64_t available_tokens);
  // A waiting request. Its matched prefix must be pinned already, so that available_tokens does not
  // count it.
  Admission add(const PrefillCandidate& candidate, int64_t available_tokens);

  // Whether a further candidate may be tried.
  AddResult verdict(int64_t available_tokens) const;
  // Tokens of memory by which a candidate, with its prefix pinned, misses its admission; <= 0:
  // none.
  double shortfall(const PrefillCandidate& candidate, int64_t available_tokens) const;
  // A running request was sent away: its reserve is free. From now on shortfall() alone decides.
  void release(double reserved_tokens) {
    budget_.reserved_tokens -= reserved_tokens;
    budget_.play_to_the_end = false;
  }
  // No more than so many rows from here on, until this is said again; beside the budgets.
  void allow(int rows) { allowed_ = rows; }
  // Rows that this pass has left.
  int limit() const;
  // No other request holds memory or was admitted in this pass.
  bool alone() const { return budget_.nothing_running && num_added_ == 0; }

 private:
  bool outlives_all(const PrefillCandidate& candidate, int64_t available_tokens) const;
  int floor_page(int tokens) const { return tokens / budget_.page_tokens * budget_.page_tokens; }
  int ceil_page(int tokens) const { return floor_page(tokens + budget_.page_tokens - 1); }
  Admission charge(const PrefillCandidate& candidate, int len);

  PrefillBudget budget_;
  int rem_input_;
  int rem_chunk_ = std::numeric_limits<int>::max();
  int allowed_ = std::numeric_limits<int>::max();
  int num_added_ = 0;
  int rest_tokens_ = 0;  // that cut prompts will take in later passes
};

}  // namespace hocket
