#include "policy/scheduler/prefill_adder.h"

#include <algorithm>
#include <utility>

namespace hocket {

// Leaves at least one page of rows beside the decode rows, so that many decode rows cannot starve a
// prompt.
PrefillAdder::PrefillAdder(PrefillBudget budget)
    : budget_(std::move(budget)),
      rem_input_(
          std::max(budget_.max_prefill_tokens - budget_.num_decode_rows, budget_.page_tokens)) {
  if (budget_.chunk_tokens >= 0)
    rem_chunk_ = std::max(budget_.chunk_tokens - budget_.num_decode_rows, budget_.page_tokens);
}

int PrefillAdder::limit() const {
  return std::min({rem_chunk_, rem_input_, allowed_});
}

// Returns how many rows the pages of window layers allow.
int PrefillAdder::window_rows(const PrefillCandidate& candidate) const {
  const int64_t pages = int64_t{candidate.prefix_pages} + candidate.window_room;
  const int64_t rows = pages * budget_.page_tokens - candidate.prefix_len;
  return static_cast<int>(std::min<int64_t>(rows, std::numeric_limits<int>::max()));
}

Admission PrefillAdder::charge(const PrefillCandidate& candidate, int len) {
  const int rows = ceil_page(len);
  ++num_added_;
  rem_input_ -= rows;
  rem_chunk_ -= rows;
  allowed_ -= rows;
  const int rest = ceil_page(candidate.total_len) - ceil_page(candidate.prefix_len + len);
  const bool cut = candidate.prefix_len + len < candidate.total_len;
  budget_.reserved_tokens += budget_.page_tokens + rest;
  if (!cut)
    budget_.reserved_tokens += std::min(candidate.remaining_new_tokens, kMaxReservedNewTokens);
  rest_tokens_ += rest;
  if (budget_.play_to_the_end)
    budget_.expected.push_back(
        {static_cast<double>(candidate.remaining_new_tokens), candidate.total_len});
  return {AddResult::added, len};
}

Admission PrefillAdder::continue_chunked(const PrefillCandidate& candidate,
                                         int64_t available_tokens) {
  const double room =
      std::max(0.0, static_cast<double>(available_tokens) - budget_.reserved_tokens);
  const int rows = candidate.total_len - candidate.prefix_len;
  const int max_rows = std::min(std::max(limit() - candidate.spare_rows, budget_.page_tokens),
                                window_rows(candidate));
  if (rows <= max_rows && ceil_page(rows) <= room) return charge(candidate, rows);
  const int most = static_cast<int>(std::min<double>(max_rows, room));
  const int len = floor_page(candidate.prefix_len + most) - candidate.prefix_len;
  return len > 0 ? charge(candidate, len) : Admission{AddResult::no_tokens, 0};
}

double PrefillAdder::shortfall(const PrefillCandidate& candidate, int64_t available_tokens) const {
  const int remaining = std::max(candidate.remaining_new_tokens, 0);
  const int held = candidate.prefix_pages * budget_.page_tokens;
  const auto available = static_cast<double>(available_tokens);
  // The last new token is never computed. No other request needs a reserve, so the exact need
  // decides; otherwise no request could ever fill the pool.
  if (alone()) return ceil_page(candidate.total_len + remaining - 1) - held - available;
  // One token more, since the need must stay below what is available.
  const double need = ceil_page(candidate.total_len) - held +
                      std::min(remaining, kMaxReservedNewTokens) + budget_.page_tokens + 1;
  return need - (available - budget_.reserved_tokens);
}

// Simulates all requests until their ends, the shortest first. While n of them run, each grows by
// `left`; an ended one returns what it holds. Each keeps a page of slack.
bool PrefillAdder::outlives_all(const PrefillCandidate& candidate, int64_t available_tokens) const {
  std::vector<ExpectedTokens> expected = budget_.expected;
  expected.push_back({static_cast<double>(candidate.remaining_new_tokens), candidate.total_len});
  std::erase_if(expected, [](const ExpectedTokens& one) { return one.remaining <= 0; });
  std::ranges::sort(expected, {}, &ExpectedTokens::remaining);
  const int held = candidate.prefix_pages * budget_.page_tokens;
  double room = static_cast<double>(available_tokens) - rest_tokens_ -
                (ceil_page(candidate.total_len) - held);
  auto there = static_cast<double>(expected.size());
  for (const ExpectedTokens& one : expected) {
    if (room - one.remaining * there <= budget_.page_tokens * there) return false;
    room += one.occupied;
    --there;
  }
  return true;
}

Admission PrefillAdder::add(const PrefillCandidate& candidate, int64_t available_tokens) {
  if (budget_.play_to_the_end && candidate.ignore_eos && !alone()) {
    if (!outlives_all(candidate, available_tokens)) return {AddResult::no_tokens, 0};
  } else if (shortfall(candidate, available_tokens) > 0) {
    return {AddResult::no_tokens, 0};
  }

  const int rows = candidate.total_len - candidate.prefix_len;
  const int window = window_rows(candidate);
  if (candidate.window_need > candidate.window_room) return {AddResult::no_tokens, 0};
  if (budget_.chunk_tokens < 0) {
    if (rows > window) return {AddResult::no_tokens, 0};
    // The first prompt may exceed the cap, since it can never be cut.
    if (num_added_ > 0 && ceil_page(rows) >= rem_input_) return {AddResult::pass_full, 0};
    return charge(candidate, rows);
  }
  const int max_rows = std::max(limit() - candidate.spare_rows, budget_.page_tokens);
  const int whole_rows = std::min(max_rows, limit());
  if (ceil_page(rows) <= whole_rows && rows <= window) return charge(candidate, rows);
  if (!candidate.may_be_cut) return {AddResult::pass_full, 0};
  const int len = floor_page(candidate.prefix_len + std::min(floor_page(whole_rows), window)) -
                  candidate.prefix_len;
  return len > 0 ? charge(candidate, len) : Admission{AddResult::pass_full, 0};
}

AddResult PrefillAdder::verdict(int64_t available_tokens) const {
  if (static_cast<double>(available_tokens) <= budget_.reserved_tokens) return AddResult::no_tokens;
  if (budget_.max_requests > 0 && num_added_ >= budget_.max_requests) return AddResult::pass_full;
  return limit() < budget_.page_tokens ? AddResult::pass_full : AddResult::added;
}

}  // namespace hocket
