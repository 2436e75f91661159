// Ends reasoning that reaches its limit. The result depends on the answer's own tokens alone, so it
// is the same on every rank, in every schedule and batch.
#pragma once

#include <span>

#include "base/ids.h"
#include "core/sampling_params.h"

namespace hocket {

// The tokens of an answer so far: those of `newer` are behind those of `generated`.
struct AnswerTokens {
  std::span<const TokenId> generated, newer = {};

  size_t size() const { return generated.size() + newer.size(); }
  TokenId operator[](size_t i) const {
    return i < generated.size() ? generated[i] : newer[i - generated.size()];
  }
};

// Returns the token that the limit forces next; -1 if it forces none. Thread: any. Allocates
// nothing.
TokenId forced_reasoning_end(const ReasoningLimit& limit, const AnswerTokens& answer);

}  // namespace hocket
