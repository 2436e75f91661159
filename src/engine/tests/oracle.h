// A drafter that knows the answers, for tests of drafts, and comparisons of what was received.
#pragma once

#include <array>
#include <random>
#include <vector>

#include "engine/tests/forms.h"
#include "policy/speculation/drafter.h"

namespace hocket::testing {

using Texts = std::vector<std::vector<TokenId>>;  // prompts with their answers

// Guesses what follows in the texts, and is wrong now and then.
class Oracle final : public Drafter {
 public:
  struct Options {
    int right_of_ten = 8;  // how many guesses are right
    // If set: the number of guesses that are right; all behind them are this token.
    int num_right = -1;
    TokenId wrong{};
  };
  // The texts outlive it.
  Oracle(const Texts& texts, Options options, int num_seats)
      : texts_(texts), options_(options), drafts_(static_cast<size_t>(num_seats)) {}

  void begin(int, int) override {}
  void end(int) override {}
  bool is_free() const override { return true; }
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) task.drafts = guess(task);
  }

 private:
  std::span<const TokenId> guess(const DraftTask& task) {
    auto& drafts = drafts_.at(static_cast<size_t>(task.seat));
    for (const std::vector<TokenId>& text : texts_) {
      if (text.size() <= task.tokens.size() ||
          !std::ranges::equal(std::span(text).first(task.tokens.size()), task.tokens))
        continue;
      for (size_t i = 0; std::cmp_less(i, task.max_drafts); ++i) {
        const size_t at = std::min(task.tokens.size() + i, text.size() - 1);
        drafts[i] = is_right(static_cast<int>(i)) ? text[at] : wrong();
      }
      return std::span(drafts).first(static_cast<size_t>(task.max_drafts));
    }
    return {};
  }
  bool is_right(int place) {
    if (options_.num_right >= 0) return place < options_.num_right;
    return static_cast<int>(random_() % 10) < options_.right_of_ten;
  }
  TokenId wrong() {
    if (options_.num_right >= 0) return options_.wrong;
    return TokenId{static_cast<int>(random_() % kVocabulary)};
  }

  const Texts& texts_;
  const Options options_;
  std::mt19937 random_{5};
  std::vector<std::array<TokenId, kMaxDrafts>> drafts_;
};

// Returns how many numbers of drafts answers had in a step; 0 does not count.
inline int num_depths(const SchedulerCounters& counts) {
  int num = 0;
  for (size_t i = 0; i < counts.drafted_total.size(); ++i)
    num += counts.drafted_total[i] > (i + 1 < kMaxDrafts ? counts.drafted_total[i + 1] : 0) ? 1 : 0;
  return num;
}

inline Texts texts_of(const std::vector<RequestInput>& inputs, const std::vector<Answer>& answers) {
  Texts texts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<TokenId>& text = texts.emplace_back(inputs[i].prompt);
    for (const int token : answers[i].tokens) text.push_back(TokenId{token});
  }
  return texts;
}

inline Engine::Options with_oracle(const ServerSettings& settings, const Texts& texts,
                                   Oracle::Options how) {
  Engine::Options options{.settings = settings};
  options.drafter = [&texts, how](int /*rank*/, int num_seats) {
    return std::make_unique<Oracle>(texts, how, num_seats);
  };
  return options;
}

inline void expect_equal_answers(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(got[i].summary.finish, want[i].summary.finish) << got[i].summary.error.message;
    EXPECT_EQ(got[i].summary.matched_stop, want[i].summary.matched_stop);
    EXPECT_EQ(got[i].summary.generated_tokens, std::ssize(got[i].tokens));
    ASSERT_NO_FATAL_FAILURE(expect_same(got[i], want[i]));
    const auto &seen = got[i].summary.routed, &expected = want[i].summary.routed;
    ASSERT_EQ(seen == nullptr, expected == nullptr);
    if (seen != nullptr) {
      EXPECT_EQ(seen->ids, expected->ids);
    }
  }
}

}  // namespace hocket::testing
