// Conversations with models of delta nets, of sliding windows and of latents: each turn computes
// its new tokens, and at most a block of 64 tokens and one page of those that were computed before.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "base/log.h"
#include "policy/scheduler/conversations_testing.h"

namespace hocket {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kTurns = 20;

class ConversationTest : public ::testing::TestWithParam<ChatSettings> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void expect_promise(Chat& chat) const {
    EXPECT_LE(chat.max_again(), chat.min_promised());
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
void talk_with_tools(Chat& chat) {
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
}

TEST_P(ConversationTest, WithToolsAndThoughtsThatAreDropped) {
  Chat chat(GetParam());
  talk_with_tools(chat);
  EXPECT_EQ(chat.stats().num_evicted_states_total, 0u);
  EXPECT_LE(chat.max_again(), chat.min_promised());
}

int window_pages_of(const ChatSettings& settings) {
  return window_pages_of_request(
      {.page_tokens = settings.page_tokens, .window = {.window = settings.window_tokens}});
}

// Windows over which a request slid are evicted, but not those that the next turn needs: where the
// prompt of the turn ends, although the answer is longer than a window.
TEST_P(ConversationTest, WithThoughtsThatAreDroppedAndFewWindowPages) {
  ChatSettings settings = GetParam();
  if (settings.window_tokens == 0) GTEST_SKIP() << "the model has no windows";
  settings.num_window_pages = 512 / settings.page_tokens + 10 * window_pages_of(settings);
  Chat chat(settings);
  talk_with_tools(chat);
  EXPECT_GT(chat.stats().num_evicted_window_pages_total, 0u);
  EXPECT_LE(chat.max_again(), chat.min_promised());
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
        talk.edit_last_message(talk.message_len() / 2);
      else
        talk.answer(answer, static_cast<int>(answer.size()) / 2);
    }
  }
  expect_promise(chat);
}

// A long message has a state at each eighth of it, or if no slot is free every state_interval
// tokens. Tokens behind the one before the first edit are computed again; then there is one.
TEST_P(ConversationTest, WithEditsOfALongMessage) {
  constexpr int kMessage = 4000, kEighth = 512, kInterval = 1024, kStay = 2750;
  for (const bool full : {false, true}) {
    ChatSettings settings = GetParam();
    settings.state_interval = kInterval;
    if (full) settings.num_states = 32 + 24;
    Chat chat(settings);
    std::deque<Conversation> others;
    for (int i = 0; full && i < 16; ++i) {
      others.emplace_back(200 + i).say(Conversation(300 + i).words(300));
      chat.begin(others.back(), 100);
      chat.finish();
    }
    Conversation talk(8);
    talk.say(talk.words(kMessage));
    chat.begin(talk, 20);
    chat.finish();
    const bool has_states = settings.window_tokens == 0 && !settings.latents;
    for (const int of_message : {full ? kInterval : kEighth, 0, 0}) {
      talk.edit_last_message(kStay);
      chat.begin(talk, 20);
      chat.finish();
      EXPECT_LE(chat.last_again(),
                !has_states || of_message == 0 ? chat.min_promised() : of_message);
    }
    EXPECT_EQ(chat.stats().num_evicted_states_total > 0, full && has_states);
  }
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
  other.change_topic();
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
  EXPECT_LE(chat.max_again(), chat.min_promised() + (sees_answer ? 0 : kStays));
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

// There is room for about ten conversations: some turns compute more again, but none of those whose
// last turn is still there; and none gives another conversation's state or window to a request.
class SixteenInAPoolForTen : public ConversationTest {
 protected:
  static void talk(Chat& chat) {
    std::deque<Conversation> talks;
    for (int i = 0; i < 16; ++i) talks.emplace_back(100 + i);
    std::vector<Conversation*> order;
    for (Conversation& talk : talks) order.push_back(&talk);
    std::mt19937 random(16);
    for (int turn = 0; turn < kTurns; ++turn) {
      std::ranges::shuffle(order, random);
      for (Conversation* talk : order) {
        talk->say(talk->words(talk->pick(5, 200)));
        chat.begin(*talk, talk->pick(1, 150));
      }
      for (auto& [talk, answer] : chat.finish()) talk->answer(answer, 0);
    }
    EXPECT_LE(chat.max_again_of_whole(), chat.min_promised());
  }
};

TEST_P(SixteenInAPoolForTen, OfStatesOrWindows) {
  ChatSettings settings = GetParam();
  const bool has_windows = settings.window_tokens > 0;
  settings.num_states = 32 + 30;
  // Windows for sixteen requests that run, and for ten more; with large pages that is room for all.
  settings.num_window_pages = (16 + 10) * window_pages_of(settings);
  Chat chat(settings);
  talk(chat);
  EXPECT_EQ(chat.stats().num_evicted_pages_total, 0u);
  EXPECT_GT(chat.num_whole(), 250);
  EXPECT_LT(chat.all_again(), chat.num_prompt_tokens() / (has_windows ? 8 : 25));
  if (!has_windows || settings.page_tokens == 1) {
    EXPECT_GT(chat.max_again(), chat.min_promised());
  }
}

TEST_P(SixteenInAPoolForTen, OfPages) {
  ChatSettings settings = GetParam();
  settings.pool_tokens = 36000;
  Chat chat(settings);
  talk(chat);
  EXPECT_GT(chat.stats().num_evicted_pages_total, 0u);
  EXPECT_GT(chat.max_again(), chat.min_promised());
  EXPECT_GT(chat.num_whole(), 200);
}

const auto kAllSettings = ::testing::Values(
    ChatSettings{1, false}, ChatSettings{32, false}, ChatSettings{32, true},
    ChatSettings{128, true}, ChatSettings{1, false, 0, 128}, ChatSettings{32, false, 0, 128},
    ChatSettings{32, true, 0, 512}, ChatSettings{128, true, 0, 128});

INSTANTIATE_TEST_SUITE_P(Pages, ConversationTest, kAllSettings, chat_settings_name);
INSTANTIATE_TEST_SUITE_P(
    Latents, ConversationTest,
    ::testing::Values(ChatSettings{.latents = true},
                      ChatSettings{.page_tokens = 128, .overlapped = true, .latents = true}),
    chat_settings_name);
INSTANTIATE_TEST_SUITE_P(Pages, SixteenInAPoolForTen, kAllSettings, chat_settings_name);

}  // namespace
}  // namespace hocket
