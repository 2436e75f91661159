// Decides which rows of a prompt attend to latents in the absorbed form, by the tokens with which
// the model's chat format marks answers. An answer's rows are absorbed when they are generated, so
// they are when they are part of a later prompt. Only the tokens up to a row decide, so its numbers
// are the same with and without a prefix cache.
//
//   tokens    system user | <assistant> answer <end> | at most 255 more | user ..
//   rows      expanded    |  absorbed                                   | expanded
//
// Source: docs/contracts/arithmetic.md, "latent attention". Owner: a Request. Thread: engine.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"

namespace hocket {

// Number of rows that are absorbed from an answer's end token on, that one included. Expanding all
// keys takes as long as absorbing about 150 to 400 rows, so a short question is not worth it.
inline constexpr int kRowsFromAnswerEnd = 256;

class AbsorbedRows {
 public:
  AbsorbedRows() = default;  // none
  // `begins` open an answer and `ends` end one. Both outlive this.
  AbsorbedRows(std::span<const TokenId> begins, std::span<const TokenId> ends)
      : begins_(begins), ends_(ends) {}

  // Takes the next token of the sequence. Returns true if its row is absorbed.
  bool take(TokenId token) {
    if (contains(begins_, token))
      remaining_ = kOpen;
    else if (remaining_ == kOpen && contains(ends_, token))
      remaining_ = kRowsFromAnswerEnd;
    else if (remaining_ > 0 && remaining_ < kOpen)
      --remaining_;
    return remaining_ > 0;
  }

  // Takes tokens. Returns the rows at which the form changes, counted from the first; the first run
  // is expanded. There are at most 2 * tokens / kRowsFromAnswerEnd + 1.
  std::vector<int> take_all(std::span<const TokenId> tokens) {
    std::vector<int> borders;
    if (begins_.empty()) return borders;
    bool absorbed = false;
    for (size_t i = 0; i < tokens.size(); ++i)
      if (take(tokens[i]) != absorbed) {
        borders.push_back(static_cast<int>(i));
        absorbed = !absorbed;
      }
    return borders;
  }

 private:
  static constexpr int kOpen = std::numeric_limits<int>::max();
  static bool contains(std::span<const TokenId> ids, TokenId token) {
    return std::ranges::find(ids, token) != ids.end();
  }

  std::span<const TokenId> begins_, ends_;
  int remaining_ = 0;  // rows that are absorbed from here on; kOpen: all up to an end
};

}  // namespace hocket
