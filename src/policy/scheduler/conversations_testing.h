// Conversations with the real scheduler and cache, and how much of them is computed twice. For
// tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/mixed_conversations_testing.h"

namespace hocket {

struct ChatSettings {
  int page_tokens = 32;
  bool overlapped = false;
  int num_states = 1000;     // 0: a model without delta nets
  int window_tokens = 0;     // above 0: a model of sliding windows in place of delta nets
  int num_window_pages = 0;  // 0: as many as others
  int pool_tokens = 120000;
  int state_interval = 4096;
  bool latents = false;  // in place of delta nets
};

inline std::string chat_settings_name(const ::testing::TestParamInfo<ChatSettings>& param) {
  const ChatSettings& settings = param.param;
  const int window = settings.window_tokens;
  const bool plain = settings.num_states == 0 && window == 0 && !settings.latents;
  return std::to_string(settings.page_tokens) + (settings.overlapped ? "_overlapped" : "") +
         (window > 0 ? "_window_" + std::to_string(window) : "") +
         (settings.latents ? "_latents" : "") + (plain ? "_plain" : "");
}

// A server with one model, and what it computed twice.
class Chat {
 public:
  using Tokens = std::vector<TokenId>;

  explicit Chat(const ChatSettings& settings)
      : page_tokens_(settings.page_tokens),
        engine_(
            options_of(settings),
            [](const Request&, auto history) {
              const auto last = static_cast<size_t>(value(history.back()));
              return SampledToken{
                  TokenId{6000 + static_cast<int>((history.size() * 31 + last) % 900)}};
            },
            settings.overlapped) {}

  void begin(Conversation& conversation, int new_tokens) {
    RequestInput input;
    input.id = RequestId{++num_asked_};
    input.prompt = conversation.prompt();
    input.sampling.max_new_tokens = new_tokens;
    const auto added = engine_.scheduler().add(std::move(input));
    EXPECT_TRUE(added.has_value());
    asked_[RequestId{num_asked_}] = &conversation;
    marks_[RequestId{num_asked_}] = {static_cast<size_t>(conversation.middle_of_message()),
                                     conversation.prompt().size()};
    waiting_.insert(RequestId{num_asked_});
  }

  ~Chat() {
    fmt::print(
        "{:<60} {:>4} prompts {:>7} tokens {:>6} again, {:>4} at most in a turn; {:>3} turns "
        "whole, "
        "{:>3} at most\n",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(), num_asked_,
        num_prompt_tokens_, all_again_, max_again_, num_whole_, max_again_of_whole_);
  }

  // Runs until all have ended. Returns the answers by conversation.
  std::map<Conversation*, Tokens> finish() {
    std::map<Conversation*, Tokens> answers;
    while (engine_.step([this](const Batch& batch) { note_begins(batch); })) {
      for (const auto& request : engine_.scheduler().take_finished()) {
        const auto tokens = std::span(request->tokens);
        count(*request);
        answers[asked_.at(request->id)].assign(tokens.begin() + request->prompt_len, tokens.end());
        seen_.emplace_back(tokens.begin(), tokens.end());
        left_[asked_.at(request->id)] = ended(seen_.back(), marks_.at(request->id));
      }
    }
    EXPECT_EQ(engine_.problem(), "");
    return answers;
  }

  SchedulerStats stats() { return engine_.scheduler().stats(); }
  // Most tokens that one request computed although they had been computed before.
  int max_again() const { return max_again_; }
  int64_t all_again() const { return all_again_; }
  int last_again() const { return last_again_; }
  // The same for turns that began while the cache still had all that the turn before left there.
  int max_again_of_whole() const { return max_again_of_whole_; }
  int num_whole() const { return num_whole_; }
  int64_t num_prompts() const { return static_cast<int64_t>(num_asked_); }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int min_promised() const { return kDeltaBlock + page_tokens_; }

 private:
  static SchedulerOptions options_of(const ChatSettings& settings) {
    SchedulerOptions options;
    options.page_tokens = settings.page_tokens;
    options.num_pages = settings.pool_tokens / settings.page_tokens;
    options.max_running_requests = 16;
    options.chunk_tokens = 512;
    if (settings.window_tokens > 0) {
      options.window.window = settings.window_tokens;
      options.num_window_pages =
          settings.num_window_pages > 0 ? settings.num_window_pages : options.num_pages;
    } else if (settings.latents) {
      options.cache_whole_answers = false;
      options.answer_begins = {kAssistant};
    } else {
      options.num_states = settings.num_states;
      options.cached_state_interval = settings.state_interval;
    }
    options.context_length = 32768;
    options.eos_ids = {kEnd};
    return options;
  }

  // The tokens that were computed before end where the prompt leaves every earlier sequence.
  void count(const Request& request) {
    const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.prompt_len));
    int64_t known = 0;
    for (const Tokens& other : seen_) {
      const auto differs = std::ranges::mismatch(prompt, other).in1;
      known = std::max<int64_t>(known, differs - prompt.begin());
    }
    const auto again = static_cast<int>(known) - request.cached_len;
    last_again_ = again;
    if (whole_.contains(request.id)) {
      ++num_whole_;
      max_again_of_whole_ = std::max(max_again_of_whole_, again);
    }
    num_prompt_tokens_ += request.prompt_len;
    max_again_ = std::max(max_again_, again);
    all_again_ += std::max(again, 0);
  }

  // A turn pins what it finds when it begins, and what it does not find never comes back.
  void note_begins(const Batch& batch) {
    for (const Slice& slice : batch.slices) {
      const RequestId id = slice.request->id;
      if (waiting_.erase(id) == 0) continue;
      const auto left = left_.find(asked_.at(id));
      if (left == left_.end()) continue;
      const auto prompt =
          std::span(slice.request->tokens).first(static_cast<size_t>(slice.request->prompt_len));
      if (is_whole(left->second, prompt)) whole_.insert(id);
    }
  }

  // A conversation's last sequence, and how much of its beginnings the cache had when it ended: up
  // to the middle of its last message, to the end of its prompt, and all of it. An edit, a turn
  // whose template drops the answer's thoughts, and any other turn go on from there.
  struct EndedSequence {
    Tokens tokens;
    std::array<size_t, 3> ends{};
    std::array<int, 3> cached{};
  };
  EndedSequence ended(const Tokens& tokens, const std::array<size_t, 2>& marks) {
    EndedSequence sequence = {tokens, {marks[0], marks[1], tokens.size()}, {}};
    for (size_t i = 0; i < sequence.ends.size(); ++i) sequence.cached[i] = cached(sequence, i);
    return sequence;
  }
  int cached(const EndedSequence& sequence, size_t end) {
    return engine_.scheduler().cached_len({}, std::span(sequence.tokens).first(sequence.ends[end]));
  }
  // Returns true if the cache still has what the sequence left where the prompt goes on. Before its
  // end, that may have been evicted while the sequence was running. False if the prompt goes on
  // from an earlier message, as behind several calls of tools with thoughts.
  bool is_whole(const EndedSequence& sequence, std::span<const TokenId> prompt) {
    const auto known =
        static_cast<size_t>(std::ranges::mismatch(prompt, sequence.tokens).in1 - prompt.begin());
    const size_t last = sequence.ends.size() - 1;
    size_t from = last;
    while (from > 0 && sequence.ends[from] > known + 1) --from;
    if (sequence.ends[from] > known + 1 || cached(sequence, from) < sequence.cached[from])
      return false;
    return from == last ||
           sequence.cached[from] + min_promised() >= static_cast<int>(sequence.ends[from]);
  }

  int page_tokens_;
  FakeEngine engine_;
  uint64_t num_asked_ = 0;
  std::map<RequestId, Conversation*> asked_;
  std::map<RequestId, std::array<size_t, 2>> marks_;
  std::map<Conversation*, EndedSequence> left_;
  std::set<RequestId> waiting_, whole_;
  std::vector<Tokens> seen_;
  int max_again_ = 0, last_again_ = 0, max_again_of_whole_ = 0, num_whole_ = 0;
  int64_t all_again_ = 0, num_prompt_tokens_ = 0;
};

}  // namespace hocket
