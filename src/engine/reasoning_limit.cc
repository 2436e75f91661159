#include "engine/reasoning_limit.h"

#include <algorithm>

namespace hocket {
namespace {

constexpr TokenId kAny{-1};
// Most blank tokens that may be before the mark that opens reasoning.
constexpr size_t kMaxBlanks = 2;

bool stands_at(const AnswerTokens& answer, size_t at, std::span<const TokenId> mark) {
  if (at + mark.size() > answer.size()) return false;
  for (size_t i = 0; i < mark.size(); ++i)
    if (answer[at + i] != mark[i]) return false;
  return true;
}

// Returns the index where reasoning begins; an index beyond the answer if there is none.
size_t reasoning_begin(const ReasoningLimit& limit, const AnswerTokens& answer) {
  for (size_t at = 0; at <= kMaxBlanks; ++at)
    if (stands_at(answer, at, limit.open)) return at + limit.open.size();
  return answer.size() + 1;
}

}  // namespace

//   open | reasoning, `limit.tokens` of it | the forced end, token by token | the answer
TokenId forced_reasoning_end(const ReasoningLimit& limit, const AnswerTokens& answer) {
  const auto tokens = static_cast<size_t>(limit.tokens);
  const std::vector<TokenId>& end = limit.ends.front();
  // Most answers are below the limit or far beyond it: they need no search.
  if (answer.size() < limit.open.size() + tokens) return kAny;
  if (answer.size() >= kMaxBlanks + limit.open.size() + tokens + end.size()) return kAny;
  const size_t begin = reasoning_begin(limit, answer);
  if (answer.size() < begin + tokens || answer.size() >= begin + tokens + end.size()) return kAny;
  for (size_t at = begin; at < begin + tokens; ++at)
    if (std::ranges::any_of(limit.ends,
                            [&](const auto& mark) { return stands_at(answer, at, mark); }))
      return kAny;
  return end[answer.size() - begin - tokens];
}

}  // namespace hocket
