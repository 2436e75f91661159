// Drafts from a request's own tokens: it finds where the last tokens occurred before (the longest
// match; of equal ones the latest), and proposes what followed there.
//
//   tokens   .. a b c d e f .. x b c | d e f    drafts; the match is "b c"
//
// There are three other sources. Tokens that must follow are proposed before any match. The text
// that a client expects is searched from behind its last match on, and wins where its match is as
// long. Tokens that another request had behind the same ones are proposed where there is no match.
//
// Positions are found by chains of equal pairs of tokens. Per seat it remembers the last kSpan
// tokens only, and follows a chain for kMaxPositions positions at most; both bound memory and work.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "policy/speculation/drafter.h"

namespace hocket {

class NgramDrafter final : public Drafter {
 public:
  static constexpr int kSpan = 16384;       // tokens behind the end that are searched
  static constexpr int kMaxPositions = 32;  // positions that are looked at
  // The text that the client expects: positions that are looked at; and tokens behind the last
  // match that a step searches, and again as many of the whole text, which is searched part by
  // part.
  static constexpr int kMaxPredictedMatches = 256, kSearchedTokens = 512;
  static constexpr int kMaxMatchLen = 16;  // longer matches count as this long

  // Writes the tokens behind those of the seat's request; returns how many. Empty: there are none.
  using Source = std::function<size_t(int seat, std::span<TokenId> out)>;
  struct Sources {
    Source forced;     // tokens that a grammar forces
    Source continued;  // tokens that the tree of prefixes has next
    // Returns the text that the client expects the answer to be like; kSpan tokens of it count.
    std::function<std::span<const TokenId>(int seat)> predicted;
  };
  // Takes the memory of all seats: requests have at most `max_len` tokens.
  NgramDrafter(int num_seats, int max_len, Sources sources = {});

  // Allocates nothing. Beyond the constructor's max_len the oldest tokens are forgotten.
  void begin(int seat, int max_len) override;
  void end(int seat) override;
  // kind: 0 for matches of 2 tokens, 1 of 3, 2 of 4 to 7, 3 of more; or one of these.
  static constexpr int kContinued = 4, kForced = 5, kPredicted = 6;
  void draft(std::span<DraftTask> tasks) override;
  bool is_free() const override { return true; }
  // Returns the memory of one seat whose request has at most `max_len` tokens.
  static size_t bytes_per_seat(int max_len);

 private:
  struct Seat {
    // Both are as long as powers of two, so that a mask finds an element. newest: by hash of a pair
    // of tokens, the newest position at which it ends; before: by position, the one before it with
    // an equal hash. -1: none.
    std::span<int32_t> newest, before;
    int indexed = 1;    // pairs that end before this position are in the chains
    int predicted = 0;  // position behind the last match in the text that is expected
    int searched = 0;   // position from which the rest of that text is searched next
    std::array<TokenId, kMaxDrafts> drafts{};
  };
  struct Match {
    int end = -1;  // position of its last token
    int len = 0;
  };
  static bool find_match(Seat& seat, DraftTask& task, std::span<const TokenId> predicted);
  static void index(Seat& seat, std::span<const TokenId> tokens);
  static Match find(const Seat& seat, std::span<const TokenId> tokens);
  static Match find_predicted(Seat& seat, std::span<const TokenId> predicted,
                              std::span<const TokenId> tokens);

  const int max_len_;
  // The memory of all seats; the kernel backs a part when it is first written.
  const std::unique_ptr<int32_t[]> memory_;
  std::vector<Seat> seats_;
  const Sources sources_;
};

}  // namespace hocket
