// Ends thoughts that have grown too long. A function of the answer's own tokens, so the same on
// every rank, however requests are scheduled and whoever shares the batch.
#pragma once

#include <span>

#include "base/ids.h"
#include "core/sampling_params.h"

namespace hocket {

// An answer's tokens so far: `newest` stands behind those of `generated`, where it is >= 0.
struct AnswerSoFar {
  std::span<const TokenId> generated;
  TokenId newest{-1};

  size_t size() const { return generated.size() + (value(newest) >= 0 ? 1 : 0); }
  TokenId operator[](size_t i) const { return i < generated.size() ? generated[i] : newest; }
};

// The token that must come next for the limit's sake; -1: any may.   Thread: any. Allocates
// nothing.
TokenId forced_thought_end(const ThoughtLimit& limit, const AnswerSoFar& answer);

}  // namespace hocket
