// Conversations with a model of delta nets, and with one of sliding windows: each turn computes its
// new tokens, and at most a block of 64 tokens and one page of those that were computed before.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "base/log.h"
#include "policy/scheduler/fake_engine.h"

namespace hocket {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kTurns = 20;
constexpr TokenId kAssistant{1};  // begins the message that the model is to write
constexpr TokenId kEnd{2};        // ends a message
constexpr int kThinkTokens =
    6;  // behind kAssistant in prompts alone, if the template opens thoughts

// The text of one conversation as its client keeps it, and the prompts made of it.
class Conversation {
 public:
  explicit Conversation(int seed) : random_(static_cast<uint32_t>(seed)) {
    history_ = words(100 + 40 * (seed % 5));  // system prompt and tools
    append({kEnd});
  }

  Tokens words(int count) {
    Tokens made;
    for (int i = 0; i < count; ++i)
      made.push_back(TokenId{10 + static_cast<int>(random_() % 5000)});
    return made;
  }
  int pick(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  void say_other_words() { random_.seed(77); }

  // The next prompt, once a message stands at its end.
  void say(Tokens message) {
    message_at_ = static_cast<int>(history_.size());
    append(message);
    append({kEnd});
  }
  // Replaces the end of the last message.
  void edit_last_message() {
    const auto length = std::ssize(history_) - message_at_;
    history_.resize(static_cast<size_t>(message_at_ + length / 2));
    append(words(30));
    append({kEnd});
  }
  void append(const Tokens& more) { history_.insert(history_.end(), more.begin(), more.end()); }
  void open_thoughts_in_prompts() { opens_thoughts_ = true; }
  Tokens prompt() const {
    Tokens tokens = history_;
    tokens.push_back(kAssistant);
    for (int i = 0; opens_thoughts_ && i < kThinkTokens; ++i) tokens.push_back(TokenId{3 + i});
    return tokens;
  }
  // Puts an answer into the history, without its first `num_reasoning` tokens.
  void answer(const Tokens& tokens, int num_reasoning) {
    history_.push_back(kAssistant);
    history_.insert(history_.end(), tokens.begin() + num_reasoning, tokens.end());
    append({kEnd});
  }

 private:
  std::mt19937 random_;
  Tokens history_;
  int message_at_ = 0;
  bool opens_thoughts_ = false;
};

struct ChatSettings {
  int page_tokens = 32;
  bool overlapped = false;
  int num_states = 400;
  int window_tokens = 0;     // above 0: a model of sliding windows in place of delta nets
  int num_window_pages = 0;  // 0: as many as others
};

// A server with one model, and what it computed twice.
class Chat {
 public:
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
  }

  ~Chat() {
    fmt::print("{:<70} {:>4} prompts {:>8} tokens {:>6} again {:>4} at most in a turn\n",
               ::testing::UnitTest::GetInstance()->current_test_info()->name(), num_asked_,
               num_prompt_tokens_, all_again_, most_again_);
  }

  // Runs until all have ended. Returns the answers by conversation.
  std::map<Conversation*, Tokens> finish() {
    std::map<Conversation*, Tokens> answers;
    while (engine_.step()) {
      for (const auto& request : engine_.scheduler().take_finished()) {
        const auto tokens = std::span(request->tokens);
        count(*request);
        answers[asked_.at(request->id)].assign(tokens.begin() + request->prompt_len, tokens.end());
        seen_.emplace_back(tokens.begin(), tokens.end());
      }
    }
    EXPECT_EQ(engine_.problem(), "");
    return answers;
  }

  SchedulerStats stats() { return engine_.scheduler().stats(); }
  // Most tokens that one request computed although they had been computed before.
  int most_again() const { return most_again_; }
  int64_t all_again() const { return all_again_; }
  int least_promised() const { return kDeltaBlock + page_tokens_; }

 private:
  static SchedulerOptions options_of(const ChatSettings& settings) {
    SchedulerOptions options;
    options.page_tokens = settings.page_tokens;
    options.num_pages = 120000 / settings.page_tokens;
    options.max_running_requests = 16;
    options.chunk_tokens = 512;
    if (settings.window_tokens > 0) {
      options.window_tokens = settings.window_tokens;
      options.num_window_pages =
          settings.num_window_pages > 0 ? settings.num_window_pages : options.num_pages;
    } else {
      options.num_states = settings.num_states;
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
    num_prompt_tokens_ += request.prompt_len;
    most_again_ = std::max(most_again_, again);
    all_again_ += std::max(again, 0);
  }

  int page_tokens_;
  FakeEngine engine_;
  uint64_t num_asked_ = 0;
  std::map<RequestId, Conversation*> asked_;
  std::vector<Tokens> seen_;
  int most_again_ = 0;
  int64_t all_again_ = 0, num_prompt_tokens_ = 0;
};

class ConversationTest : public ::testing::TestWithParam<ChatSettings> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void expect_promise(Chat& chat) const {
    EXPECT_LE(chat.most_again(), chat.least_promised());
    EXPECT_EQ(chat.stats().num_evicted_states_total, 0u);
    EXPECT_EQ(chat.stats().num_evicted_pages_total, 0u);
    EXPECT_EQ(chat.stats().num_evicted_window_pages_total, 0u);
  }
};

TEST_P(ConversationTest, OfTwentyTurns) {
  Chat chat(GetParam());
  Conversation talk(1);
  for (int turn = 0; turn < kTurns; ++turn) {
    talk.say(talk.words(talk.pick(5, 300)));
    chat.begin(talk, talk.pick(1, 260));
    talk.answer(chat.finish().at(&talk), 0);
  }
  expect_promise(chat);
}

// A template leaves the reasoning out as soon as the user speaks again; between calls of tools it
// keeps them.
TEST_P(ConversationTest, WithToolsAndThoughtsThatAreDropped) {
  Chat chat(GetParam());
  Conversation talk(2);
  for (int turn = 0; turn < kTurns; ++turn) {
    talk.say(talk.words(talk.pick(5, 200)));
    Conversation with_reasoning = talk;
    for (int call = talk.pick(0, 3); call >= 0; --call) {
      chat.begin(with_reasoning, 200);
      const Tokens answer = chat.finish().at(&with_reasoning);
      with_reasoning.answer(answer, 0);
      talk.answer(answer, 120);
      if (call == 0) break;
      const Tokens result = talk.words(talk.pick(10, 400));
      with_reasoning.say(result);
      talk.append(result);
    }
  }
  EXPECT_EQ(chat.stats().num_evicted_states_total, 0u);
  EXPECT_LE(chat.most_again(), chat.least_promised());
}

// The template opens the thoughts at the end of each prompt, and the next turn has neither these
// tokens nor the thoughts. The borders of states lie before, in and behind them.
TEST_P(ConversationTest, WithASuffixThatTheNextTurnDrops) {
  Chat chat(GetParam());
  Conversation talk(7);
  talk.open_thoughts_in_prompts();
  const int step = std::max(kDeltaBlock, GetParam().page_tokens);
  for (int behind_border = 0; behind_border <= kThinkTokens + 2; ++behind_border) {
    const int length = static_cast<int>(talk.prompt().size()) + 1 - behind_border;
    talk.say(talk.words(2 * step - length % step));
    EXPECT_EQ(std::ssize(talk.prompt()) % step, behind_border);
    chat.begin(talk, 100);
    talk.answer(chat.finish().at(&talk), 60);
  }
  expect_promise(chat);
}

TEST_P(ConversationTest, WithAnEditedLastMessage) {
  Chat chat(GetParam());
  Conversation talk(3);
  for (int turn = 0; turn < kTurns; ++turn) {
    talk.say(talk.words(talk.pick(60, 300)));
    for (int edit = talk.pick(0, 2); edit >= 0; --edit) {
      chat.begin(talk, talk.pick(1, 200));
      const Tokens answer = chat.finish().at(&talk);
      if (edit > 0)
        talk.edit_last_message();
      else
        talk.answer(answer, static_cast<int>(answer.size()) / 2);
    }
  }
  EXPECT_EQ(chat.stats().num_evicted_states_total, 0u);
  // A message has a state at its beginning, but windows everywhere.
  const int of_message = GetParam().window_tokens > 0 ? 0 : 150;
  EXPECT_LE(chat.most_again(), chat.least_promised() + of_message);
}

TEST_P(ConversationTest, InTwoBranches) {
  Chat chat(GetParam());
  Conversation one(4);
  for (int turn = 0; turn < kTurns / 2; ++turn) {
    one.say(one.words(one.pick(5, 300)));
    chat.begin(one, one.pick(1, 200));
    one.answer(chat.finish().at(&one), 0);
  }
  Conversation other = one;
  other.say_other_words();
  for (int turn = 0; turn < kTurns / 2; ++turn) {
    for (Conversation* branch : {&one, &other}) {
      const Tokens message = branch->words(branch->pick(5, 300));
      branch->say(message);
      chat.begin(*branch, branch->pick(1, 200));
    }
    auto answers = chat.finish();
    one.answer(answers.at(&one), 0);
    other.answer(answers.at(&other), 0);
  }
  expect_promise(chat);
}

// Answers leave a state, or a window, at their ends alone.
TEST_P(ConversationTest, WithBranchesInsideOldAnswers) {
  constexpr int kAnswer = 300, kStays = 200;
  Chat chat(GetParam());
  Conversation talk(6);
  std::vector<Conversation> branches;
  for (int turn = 0; turn < 12; ++turn) {
    talk.say(talk.words(50));
    chat.begin(talk, kAnswer);
    const Tokens answer = chat.finish().at(&talk);
    branches.emplace_back(talk).answer(Tokens(answer.begin(), answer.begin() + kStays), 0);
    talk.answer(answer, 0);
  }
  for (Conversation& branch : branches) {
    branch.say(branch.words(20));
    chat.begin(branch, 5);
    chat.finish();
  }
  EXPECT_EQ(chat.stats().num_evicted_states_total, 0u);
  const bool sees_answer = GetParam().window_tokens > kAnswer;
  EXPECT_LE(chat.most_again(), chat.least_promised() + (sees_answer ? 0 : kStays));
}

TEST_P(ConversationTest, AnEqualPromptHits) {
  Chat chat(GetParam());
  Conversation talk(5);
  talk.say(talk.words(1000));
  for (int i = 0; i < 3; ++i) {
    chat.begin(talk, 5);
    chat.finish();
  }
  expect_promise(chat);
}

// There is room for about ten conversations: some turns compute more again, and none gives another
// conversation's state or window to a request.
TEST_P(ConversationTest, SixteenInAPoolForTen) {
  ChatSettings settings = GetParam();
  settings.num_states = 32 + 30;
  const int pages_each = settings.window_tokens / settings.page_tokens + 3;
  settings.num_window_pages = 16 * pages_each + 1024 / settings.page_tokens + 10 * pages_each;
  Chat chat(settings);
  std::deque<Conversation> talks;
  for (int i = 0; i < 16; ++i) talks.emplace_back(100 + i);
  int64_t all = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Conversation& talk : talks) {
      talk.say(talk.words(talk.pick(5, 200)));
      all += std::ssize(talk.prompt());
      chat.begin(talk, talk.pick(1, 150));
    }
    for (auto& [talk, answer] : chat.finish()) talk->answer(answer, 0);
  }
  EXPECT_GT(chat.stats().num_evicted_states_total + chat.stats().num_evicted_window_pages_total,
            0u);
  EXPECT_LT(chat.all_again(), all / 4) << "of " << all << " tokens of prompts";
}

INSTANTIATE_TEST_SUITE_P(Pages, ConversationTest,
                         ::testing::Values(ChatSettings{1, false}, ChatSettings{32, false},
                                           ChatSettings{32, true}, ChatSettings{128, true},
                                           ChatSettings{1, false, 0, 128},
                                           ChatSettings{32, false, 0, 128},
                                           ChatSettings{32, true, 0, 512},
                                           ChatSettings{128, true, 0, 128}),
                         [](const auto& param) {
                           const ChatSettings& settings = param.param;
                           const int window = settings.window_tokens;
                           return std::to_string(settings.page_tokens) +
                                  (settings.overlapped ? "_overlapped" : "") +
                                  (window > 0 ? "_window_" + std::to_string(window) : "");
                         });

}  // namespace
}  // namespace hocket
