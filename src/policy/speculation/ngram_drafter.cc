#include "policy/speculation/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/mix.h"

namespace hocket {
namespace {

// Returns how many tokens the chains of a seat remember.
size_t remembered_tokens(int max_len) {
  return std::bit_ceil(static_cast<size_t>(std::clamp(max_len, 16, NgramDrafter::kSpan)));
}

size_t hash_of(TokenId first, TokenId second) {
  const auto pair = static_cast<uint64_t>(static_cast<uint32_t>(value(first))) << 32 |
                    static_cast<uint32_t>(value(second));
  return static_cast<size_t>(mix64(pair));
}

// Returns how many of the last tokens are equal, kMaxMatchLen at most.
int equal_at_end(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t max_len =
      std::min({a.size(), b.size(), static_cast<size_t>(NgramDrafter::kMaxMatchLen)});
  size_t len = 0;
  while (len < max_len && a[a.size() - 1 - len] == b[b.size() - 1 - len]) ++len;
  return static_cast<int>(len);
}

int kind_of_match(int len) {
  return len < 4 ? len - 2 : len < 8 ? 2 : 3;
}

}  // namespace

size_t NgramDrafter::bytes_per_seat(int max_len) {
  return remembered_tokens(max_len) * 3 / 2 * sizeof(int32_t);
}

NgramDrafter::NgramDrafter(int num_seats, int max_len, Sources sources)
    : max_len_(max_len),
      memory_(std::make_unique_for_overwrite<int32_t[]>(static_cast<size_t>(num_seats) *
                                                        bytes_per_seat(max_len) / sizeof(int32_t))),
      seats_(static_cast<size_t>(num_seats)),
      sources_(std::move(sources)) {}

void NgramDrafter::begin(int seat, int max_len) {
  Seat& mine = seats_[static_cast<size_t>(seat)];
  const size_t num = remembered_tokens(std::min(max_len, max_len_));
  const size_t at = static_cast<size_t>(seat) * bytes_per_seat(max_len_) / sizeof(int32_t);
  mine.newest = {memory_.get() + at, num / 2};
  mine.before = {memory_.get() + at + num / 2, num};
  std::ranges::fill(mine.newest, -1);
  std::ranges::fill(mine.before, -1);
  mine.indexed = 1;
  mine.predicted = mine.searched = 0;
}

void NgramDrafter::end(int seat) {
  seats_[static_cast<size_t>(seat)] = {};
}

void NgramDrafter::index(Seat& seat, std::span<const TokenId> tokens) {
  const auto len = static_cast<int>(tokens.size());
  const auto num = static_cast<int>(seat.before.size());
  const size_t newest_mask = seat.newest.size() - 1, before_mask = seat.before.size() - 1;
  for (int i = std::max(seat.indexed, len - num + 1); i < len; ++i) {
    const auto at = static_cast<size_t>(i);
    int32_t& newest = seat.newest[hash_of(tokens[at - 1], tokens[at]) & newest_mask];
    seat.before[at & before_mask] = newest;
    newest = i;
  }
  seat.indexed = std::max(seat.indexed, len);
}

// Returns the longest match, among equals the latest; without one, its length is below 2.
NgramDrafter::Match NgramDrafter::find(const Seat& seat, std::span<const TokenId> tokens) {
  const auto last = static_cast<int>(tokens.size()) - 1;
  const auto oldest = std::max(1, last + 1 - static_cast<int>(seat.before.size()));
  Match best{.end = -1, .len = 1};
  int end = last;
  for (int i = 0; i < kMaxPositions; ++i) {
    const int next = seat.before[static_cast<size_t>(end) & (seat.before.size() - 1)];
    if (next < oldest || next >= end) break;  // the end of the chain, or overwritten
    end = next;
    const int len = equal_at_end(tokens.first(static_cast<size_t>(end) + 1), tokens);
    if (len > best.len) best = {end, len};
    if (len == kMaxMatchLen) break;
  }
  return best;
}

// Returns the longest match in the prediction that has a token behind it. An answer mostly follows
// the text in sequence, so each step searches the tokens behind the previous match, and a part of
// the text in turn: a long text costs no step more than a short one.
NgramDrafter::Match NgramDrafter::find_predicted(Seat& seat, std::span<const TokenId> predicted,
                                                 std::span<const TokenId> tokens) {
  Match best{.end = -1, .len = 1};
  int positions = 0;
  const auto search = [&](int begin, int end) {
    while (begin < end && positions < kMaxPredictedMatches && best.len < kMaxMatchLen) {
      const auto found =
          std::find(predicted.begin() + begin, predicted.begin() + end, tokens.back());
      const auto at = static_cast<int>(found - predicted.begin());
      if (at == end) return;
      const int len = equal_at_end(predicted.first(static_cast<size_t>(at) + 1), tokens);
      if (len > best.len) best = {at, len};
      ++positions;
      begin = at + 1;
    }
  };
  const int last = static_cast<int>(predicted.size()) - 1;
  search(seat.predicted, std::min(last, seat.predicted + kSearchedTokens));
  const int part = seat.searched < last ? seat.searched : 0;
  seat.searched = part + kSearchedTokens;
  search(part, std::min(last, seat.searched));
  return best;
}

void NgramDrafter::draft(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) {
    task.drafts = {};
    Seat& seat = seats_[static_cast<size_t>(task.seat)];
    HOCKET_CHECK(!seat.before.empty());
    index(seat, task.tokens);
    task.max_drafts = std::clamp(task.max_drafts, 0, kMaxDrafts);
    const auto take_from = [&](const Source& source, int kind) {
      const auto room = std::span(seat.drafts).first(static_cast<size_t>(task.max_drafts));
      const size_t num = source ? source(task.seat, room) : 0;
      if (num == 0) return false;
      task.drafts = room.first(num);
      task.kind = kind;
      return true;
    };
    if (take_from(sources_.forced, kForced)) continue;
    const auto predicted =
        sources_.predicted ? sources_.predicted(task.seat) : std::span<const TokenId>();
    const size_t searched = std::min(predicted.size(), static_cast<size_t>(kSpan));
    if (find_match(seat, task, predicted.first(searched))) continue;
    take_from(sources_.continued, kContinued);
  }
}

// Returns false if neither the request's own tokens nor the prediction has a match.
bool NgramDrafter::find_match(Seat& seat, DraftTask& task, std::span<const TokenId> predicted) {
  const size_t len = task.tokens.size();
  if (len < 3) return false;
  const Match match = find(seat, task.tokens);
  const Match given = find_predicted(seat, predicted, task.tokens);
  if (given.len >= std::max(match.len, 2)) {
    seat.predicted = given.end + 1;
    const auto next = predicted.subspan(static_cast<size_t>(seat.predicted));
    task.drafts = next.first(std::min(next.size(), static_cast<size_t>(task.max_drafts)));
    task.kind = kPredicted;
    return true;
  }
  if (match.len < 2) return false;
  // Behind the last token the drafts themselves continue, so that a loop is drafted at any length.
  const auto max_len = static_cast<size_t>(task.max_drafts);
  for (size_t i = 0; i < max_len; ++i) {
    const size_t from = static_cast<size_t>(match.end) + 1 + i;
    seat.drafts[i] = from < len ? task.tokens[from] : seat.drafts[from - len];
  }
  task.drafts = std::span(seat.drafts).first(max_len);
  task.kind = kind_of_match(match.len);
  return true;
}

}  // namespace hocket
