#include "gguf/merges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <unordered_map>

namespace hocket {
namespace {

using Order = std::unordered_map<std::string_view, size_t>;  // a token's index in the list
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// Looking at all cuts of a token takes time that grows with the square of its length. Those of
// published vocabularies have a sum below 2^26.
bool is_too_long(std::span<const std::string_view> tokens) {
  constexpr uint64_t kMaxSquares = uint64_t{1} << 31;
  uint64_t squares = 0;
  for (const std::string_view token : tokens) squares += uint64_t{token.size()} * token.size();
  return squares > kMaxSquares;
}

Order order_of(std::span<const std::string_view> tokens) {
  Order order;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!tokens[i].empty()) order.emplace(tokens[i], i);
  return order;
}

size_t index_in(const Order& order, std::string_view token) {
  const auto found = order.find(token);
  return found == order.end() ? kNone : found->second;
}

bool begins_character(char c) {
  constexpr unsigned kContinues = 0x80, kMask = 0xc0;
  return (static_cast<unsigned char>(c) & kMask) != kContinues;
}

int64_t characters_in(std::string_view text) {
  return std::ranges::count_if(text, begins_character);
}

// Returns the last merge by which tokens before `index` become token number `index`.
std::optional<TokenMerge> last_merge(const Order& order, std::string_view token, size_t index) {
  struct Piece {
    size_t begin = 0;
    size_t joined = kNone;  // the index of this piece with the next one
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < token.size(); ++i)
    if (i == 0 || begins_character(token[i])) pieces.push_back({i});
  const auto end_of = [&](size_t i) { return i < pieces.size() ? pieces[i].begin : token.size(); };
  const auto join = [&](size_t i) {
    if (i + 1 >= pieces.size()) return kNone;
    const size_t begin = pieces[i].begin;
    return index_in(order, token.substr(begin, end_of(i + 2) - begin));
  };
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].joined = join(i);
  while (pieces.size() > 2) {
    const auto best = std::ranges::min_element(pieces, {}, &Piece::joined);
    if (best->joined >= index) return std::nullopt;
    const auto i = static_cast<size_t>(best - pieces.begin());
    pieces.erase(best + 1);
    pieces[i].joined = join(i);
    if (i > 0) pieces[i - 1].joined = join(i - 1);
  }
  if (pieces.size() < 2) return std::nullopt;
  return TokenMerge{token.substr(0, pieces[1].begin), token.substr(pieces[1].begin)};
}

}  // namespace

std::optional<std::vector<TokenMerge>> merges_by_score(std::span<const std::string_view> tokens,
                                                       std::span<const double> scores,
                                                       size_t max_merges) {
  if (is_too_long(tokens)) return std::nullopt;
  const Order order = order_of(tokens);
  struct Scored {
    TokenMerge merge;
    double score;
    int64_t left, right;  // characters
  };
  std::vector<Scored> all;
  std::vector<std::tuple<size_t, size_t, size_t>> cuts;  // indices of both parts, and the cut
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    if (index_in(order, token) != i) continue;
    cuts.clear();
    for (size_t at = 1; at < token.size(); ++at) {
      if (!begins_character(token[at])) continue;
      const size_t left = index_in(order, token.substr(0, at));
      const size_t right = left == kNone ? kNone : index_in(order, token.substr(at));
      if (right != kNone) cuts.emplace_back(left, right, at);
    }
    if (cuts.size() > max_merges - all.size()) return std::nullopt;
    std::ranges::sort(cuts);
    for (const auto& [left, right, at] : cuts)
      all.push_back({{tokens[left], tokens[right]},
                     scores[i],
                     characters_in(tokens[left]),
                     characters_in(tokens[right])});
  }
  std::ranges::stable_sort(all, [](const Scored& a, const Scored& b) {
    return std::tie(a.score, a.left, a.right) > std::tie(b.score, b.left, b.right);
  });
  std::vector<TokenMerge> merges;
  for (const Scored& one : all) merges.push_back(one.merge);
  return merges;
}

std::optional<std::vector<TokenMerge>> merges_by_order(std::span<const std::string_view> tokens) {
  if (is_too_long(tokens)) return std::nullopt;
  const Order order = order_of(tokens);
  std::vector<TokenMerge> merges;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (const auto merge =
            index_in(order, tokens[i]) == i ? last_merge(order, tokens[i], i) : std::nullopt)
      merges.push_back(*merge);
  return merges;
}

}  // namespace hocket
