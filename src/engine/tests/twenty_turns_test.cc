// Plays sixteen conversations of twenty turns at once with the whole engine, on models with delta
// nets or sliding windows beside full attention: they call tools, drop their thoughts, edit their
// messages and branch, in a pool that holds all of them and in one that holds about ten. No answer
// depends on the prefix cache. As long as nothing is evicted, a turn computes its new tokens, and
// at most a block of 64 tokens and one page of those that were computed before.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "core/state_slot.h"
#include "engine/tests/folder_copy.h"
#include "engine/tests/forms.h"
#include "policy/scheduler/mixed_conversations_testing.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {
namespace {

using namespace testing;

constexpr int kContextOfTalks = 4096, kPageOfTalks = 32;
constexpr TalkSizes kShortTalks = {
    .max_message = 24, .max_result = 24, .max_answer = 16, .vocabulary = 480};
// A conversation's length at its end, on average.
constexpr int kTokensOfTalk = 850;
// One request of this many is computed again without a cache, because that costs its whole prompt.
constexpr size_t kComparedOf = 8;

// An engine, what it was asked, and what it computed twice.
class EngineChat {
 public:
  using Tokens = Conversation::Tokens;

  explicit EngineChat(const ServerSettings& settings) : engine_(make_engine(settings)) {}

  const Engine& engine() const { return *engine_; }
  SchedulerStats stats() const { return engine_->stats().scheduler; }
  uint64_t num_evicted() const {
    const SchedulerStats s = stats();
    return s.num_evicted_pages_total + s.num_evicted_states_total +
           s.num_evicted_window_pages_total;
  }

  void begin(Conversation& conversation, int new_tokens) {
    RequestInput input;
    input.prompt = conversation.prompt();
    SamplingParams& p = input.sampling;
    p.max_new_tokens = new_tokens;
    p.num_top_logprobs = 2;
    if (inputs_.size() % 2 == 1) p.temperature = 0.8, p.seed = inputs_.size();
    for (int word = kFirstWord; word < kShortTalks.vocabulary; ++word)
      p.allowed_ids.push_back(TokenId{word});
    inputs_.push_back(std::move(input));
    asked_by_.push_back(&conversation);
  }

  // Runs all that was asked since the last call. Returns the answers by conversation.
  std::map<Conversation*, Tokens> finish() {
    const size_t first = answers_.size();
    for (Answer& answer :
         run_all(*engine_, {inputs_.begin() + std::ssize(answers_), inputs_.end()}))
      answers_.push_back(std::move(answer));
    std::map<Conversation*, Tokens> texts;
    for (size_t i = first; i < answers_.size(); ++i) {
      count(i);
      Tokens& text = texts[asked_by_[i]];
      for (const int token : answers_[i].tokens) text.push_back(TokenId{token});
    }
    for (size_t i = first; i < answers_.size(); ++i) {
      Tokens& all = seen_.emplace_back(inputs_[i].prompt);
      const Tokens& text = texts[asked_by_[i]];
      all.insert(all.end(), text.begin(), text.end());
    }
    return texts;
  }

  // Computes requests again by an engine without a cache.
  void expect_same_without_cache(ServerSettings settings) const {
    settings.scheduler.disable_radix_cache = true;
    std::vector<RequestInput> inputs;
    std::vector<Answer> got;
    for (size_t i = 0; i < inputs_.size(); i += kComparedOf) {
      inputs.push_back(inputs_[i]);
      got.push_back(answers_[i]);
    }
    expect_same(got, run_all(*make_engine(settings), std::move(inputs)));
  }

  // The other engine was asked the same, and has answered each request with the same bits.
  void expect_same_as(const EngineChat& other) const { expect_same(answers_, other.answers_); }

  // Returns the sum of what the requests' usage says.
  uint64_t recomputed_of_usage() const { return recomputed_of_usage_; }
  // Returns the most tokens that a turn computed again, among those before the first eviction, and
  // how many these are.
  int max_again() const { return max_again_; }
  int num_counted() const { return num_counted_; }
  double share_again() const {
    return static_cast<double>(all_again_) / static_cast<double>(num_prompt_tokens_);
  }
  void print() const {
    const SchedulerStats s = stats();
    fmt::print(
        "{} prompts of {} tokens, {:.3f} again, at most {} in {} turns before an eviction; {} "
        "evicted of {} pages, {} of {} states, {} of {} window pages\n",
        inputs_.size(), num_prompt_tokens_, share_again(), max_again_, num_counted_,
        s.num_evicted_pages_total, s.num_pages, s.num_evicted_states_total, s.num_states,
        s.num_evicted_window_pages_total, s.num_window_pages);
  }

 private:
  // The tokens that were computed before end where the prompt leaves every earlier sequence. The
  // usage of the request says the same, but for tokens whose page was never full.
  void count(size_t index) {
    const Tokens& prompt = inputs_[index].prompt;
    const RequestSummary& summary = answers_[index].summary;
    int64_t known = 0;
    for (const Tokens& other : seen_)
      known = std::max<int64_t>(known, std::ranges::mismatch(prompt, other).in1 - prompt.begin());
    const int again = static_cast<int>(known) - summary.cached_tokens;
    num_prompt_tokens_ += std::ssize(prompt);
    all_again_ += std::max(again, 0);
    recomputed_of_usage_ += static_cast<uint64_t>(summary.recomputed_tokens);
    if (num_evicted() > 0) return;
    ++num_counted_;
    max_again_ = std::max(max_again_, again);
    EXPECT_LE(again - summary.recomputed_tokens, kPageOfTalks);
    EXPECT_LE(summary.recomputed_tokens, kDeltaBlock + kPageOfTalks);
  }

  std::unique_ptr<Engine> engine_;
  std::vector<RequestInput> inputs_;
  std::vector<Conversation*> asked_by_;
  std::vector<Answer> answers_;
  std::vector<Tokens> seen_;
  int max_again_ = 0, num_counted_ = 0;
  int64_t all_again_ = 0, num_prompt_tokens_ = 0;
  uint64_t recomputed_of_usage_ = 0;
};

// Returns the settings of a pool for all conversations.
ServerSettings talk_settings(const FolderCopy& model) {
  model.set("max_position_embeddings", kContextOfTalks);
  ServerSettings settings = settings_for(model.path);
  settings.model.context_length = kContextOfTalks;
  settings.memory.page_size = kPageOfTalks;
  settings.memory.max_running_requests = kTalksAtOnce;
  settings.memory.max_total_tokens = 100'000;
  settings.memory.swa_full_tokens_ratio = 1;
  return settings;
}

// Makes room for about ten conversations: for their tokens, two windows of each, and those of the
// requests that run. Delta nets have a state for each 64 of the tokens, as the plan gives them.
void make_room_for_ten(const EngineInfo& info, ServerSettings& settings) {
  settings.memory.max_total_tokens = 10 * kTokensOfTalk;
  if (info.num_window_pages == 0) return;
  const int of_window =
      window_pages_of_request({.page_tokens = kPageOfTalks, .window = info.model.window()});
  const int64_t pages = settings.memory.max_total_tokens / kPageOfTalks;
  settings.memory.swa_full_tokens_ratio =
      static_cast<double>((kTalksAtOnce + 2 * 10) * of_window) / static_cast<double>(pages);
}

class TwentyTurns : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(TwentyTurns, OfSixteenConversationsAtOnce) {
  const FolderCopy model(source_dir() / GetParam().model);
  ServerSettings settings = talk_settings(model);
  EngineChat all(settings);
  talk_at_once(all, kShortTalks);
  all.print();
  EXPECT_EQ(all.num_evicted(), 0u);
  EXPECT_LE(all.max_again(), kDeltaBlock + kPageOfTalks);
  EXPECT_EQ(all.stats().recomputed_tokens_total, all.recomputed_of_usage());
  all.expect_same_without_cache(settings);

  make_room_for_ten(all.engine().info(), settings);
  settings.scheduler.overlap_schedule = "on";
  EngineChat ten(settings);
  talk_at_once(ten, kShortTalks);
  ten.print();
  EXPECT_GT(ten.num_evicted(), 0u);
  EXPECT_LE(ten.max_again(), kDeltaBlock + kPageOfTalks);
  EXPECT_GT(ten.num_counted(), kTalksAtOnce);
  EXPECT_GT(ten.share_again(), all.share_again());
  EXPECT_EQ(ten.stats().recomputed_tokens_total, ten.recomputed_of_usage());
  ten.expect_same_as(all);
}

INSTANTIATE_TEST_SUITE_P(Forms, TwentyTurns, ::testing::Values(kDelta, kMimo),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
