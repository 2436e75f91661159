// The answers that simulated requests must get, each as if it ran alone. For tests.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

inline constexpr int kVocab = 40;
inline constexpr TokenId kEos{3};
inline constexpr int kSimulatedForced = 8;  // most tokens that the simulated grammar forces at once

// The model of the simulation: the next token is a hash of all tokens so far, so one wrong token
// anywhere changes all that follow.
inline TokenId next_token(std::span<const TokenId> history, uint64_t salt, int vocab = kVocab) {
  uint64_t hash = 0xcbf29ce484222325u + salt;
  for (TokenId token : history)
    hash = (hash ^ static_cast<uint64_t>(value(token))) * 0x100000001b3u;
  return TokenId{static_cast<int>((hash >> 20) % vocab)};
}

struct ExpectedAnswer {
  RequestInput input;
  std::vector<TokenId> tokens;  // prompt and answer, computed alone
  FinishReason finish = FinishReason::length;
  bool aborted = false;
  int at_most_before = 0;  // requests that may start first, counted when this one must have started
  bool started = false;
  int num_reported = 0;   // prompt rows whose log-probabilities were asked for
  int num_not_ready = 0;  // times that it is not ready when asked
  bool breaks = false;    // true: after that its ready() fails
};

// Returns true if the simulated grammar, which some requests follow, allows one token after these.
inline bool is_forced(const Request& request, std::span<const TokenId> history) {
  if (value(request.id) % 3 != 0) return false;
  return value(next_token(history, 1)) < kVocab * 2 / 3;
}

inline ExpectedAnswer alone(const RequestInput& input) {
  ExpectedAnswer wanted{.input = input, .tokens = input.prompt};
  for (int i = 1; i <= input.sampling.max_new_tokens; ++i) {
    wanted.tokens.push_back(next_token(wanted.tokens, 0));
    const bool ends = wanted.tokens.back() == kEos && !input.sampling.ignore_eos;
    if (!ends || i < input.sampling.min_new_tokens || i == input.sampling.max_new_tokens) continue;
    wanted.finish = FinishReason::stop;
    break;
  }
  return wanted;
}

// Appends the tokens that must follow `token`, drawn after `history`; perhaps beyond the end.
inline void add_forced(const Request& request, std::span<const TokenId> history, TokenId token,
                       std::vector<TokenId>& forced) {
  std::vector<TokenId> all(history.begin(), history.end());
  all.push_back(token);
  while (std::ssize(forced) < kSimulatedForced && is_forced(request, all)) {
    forced.push_back(next_token(all, 0));
    all.push_back(forced.back());
  }
}

// Guesses the tokens behind the first `known` of an answer; behind its end, any.
struct Guess {
  int count = 0, right_of_ten = 0;
};
inline std::vector<TokenId> guess(const ExpectedAnswer& wanted, size_t known, Guess how,
                                  std::mt19937_64& random) {
  std::vector<TokenId> drafts;
  for (size_t at = known; std::ssize(drafts) < how.count; ++at) {
    const bool right =
        at < wanted.tokens.size() && static_cast<int>(random() % 10) < how.right_of_ten;
    drafts.push_back(right ? wanted.tokens[at] : TokenId{static_cast<int>(random() % kVocab)});
  }
  return drafts;
}

}  // namespace hocket
