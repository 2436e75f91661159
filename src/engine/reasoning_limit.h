// Ends reasoning that reaches its limit. The result depends on the answer's own tokens alone, so it
// is the same on every rank, in every schedule and batch.
#pragma once

#include <span>

#include "base/ids.h"
#include "core/sampling_params.h"

namespace hocket {

// The tokens of an answer so far: `newest`, if >= 0, stands behind those of `generated`.
struct AnswerSoFar {
  std::span<const TokenId> generated;
  TokenId newest{-1};

  size_t size() const { return generated.size() + (value(newest) >= 0 ? 1 : 0); }
  TokenId operator[](size_t i) const { return i < generated.size() ? generated[i] : newest; }
};

// Returns the token that the limit forces next; -1 if it forces none. Thread: any. Allocates
// nothing.
TokenId forced_reasoning_end(const ReasoningLimit& limit, const AnswerSoFar& answer);

}  // namespace hocket
