// Merges of byte-pair encoding for vocabularies whose files list none: SentencePiece has a score
// for each token, and Kimi's tokens are in the order in which they are merged.   Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace hocket {

using TokenMerge = std::pair<std::string_view, std::string_view>;

// Both return the merges in the order in which they apply, as views into `tokens`; std::nullopt if
// the tokens are so long that looking at all cuts would take minutes. Empty tokens take no part.

// Each cut of a token into two others is a merge: those of the highest score first, then those
// with the longest first part. std::nullopt also if they are more than max_merges.   scores: as
// many as tokens.
std::optional<std::vector<TokenMerge>> merges_by_score(std::span<const std::string_view> tokens,
                                                       std::span<const double> scores,
                                                       size_t max_merges);

// Each token gives one merge: the last one when its text is merged by the tokens before it, the
// earliest token first.
std::optional<std::vector<TokenMerge>> merges_by_order(std::span<const std::string_view> tokens);

}  // namespace hocket
