// The texts of conversations as their clients keep them, and sixteen of them at once that call
// tools, drop their thoughts, edit their messages and branch. For tests, with the scheduler alone
// and with the whole engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/ids.h"

namespace hocket {

inline constexpr TokenId kAssistant{1};  // begins the message that the model is to write
inline constexpr TokenId kEnd{2};        // ends a message
// Behind kAssistant in prompts alone, if the template opens thoughts.
inline constexpr int kThinkTokens = 6;
inline constexpr int kFirstWord = 10;  // ids below it are marks

// Most tokens of each part of a conversation, and one past the largest id of a word.
struct TalkSizes {
  int max_message = 200, max_result = 200, max_answer = 100;
  int vocabulary = 5010;
};

// The text of one conversation as its client keeps it, and the prompts made of it.
class Conversation {
 public:
  using Tokens = std::vector<TokenId>;

  explicit Conversation(int seed, int vocabulary = TalkSizes().vocabulary)
      : random_(static_cast<uint32_t>(seed)), vocabulary_(vocabulary) {
    history_ = words(100 + 40 * (seed % 5));  // system prompt and tools
    append({kEnd});
  }

  Tokens words(int count) {
    const auto num_words = static_cast<uint32_t>(vocabulary_ - kFirstWord);
    Tokens made;
    for (int i = 0; i < count; ++i)
      made.push_back(TokenId{kFirstWord + static_cast<int>(random_() % num_words)});
    return made;
  }
  int pick(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  void change_topic() { random_.seed(77); }

  // The next prompt, once a message stands at its end.
  void say(Tokens message) {
    message_at_ = static_cast<int>(history_.size());
    append(message);
    append({kEnd});
  }
  int message_len() const { return static_cast<int>(history_.size()) - message_at_; }
  int middle_of_message() const { return message_at_ + message_len() / 2; }
  // Replaces the end of the last message, of which some first tokens stay.
  void edit_last_message(int num_stay) {
    history_.resize(static_cast<size_t>(message_at_ + num_stay));
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
  int vocabulary_;
  Tokens history_;
  int message_at_ = 0;
  bool opens_thoughts_ = false;
};

inline constexpr int kTalksAtOnce = 16, kTurnsOfEach = 20;

// One conversation, or a branch of one: what its client asks next, request by request.
class MixedConversation {
 public:
  using Tokens = Conversation::Tokens;
  enum class Kind : uint8_t { plain, thoughts, tools, edits };

  MixedConversation(int seed, const TalkSizes& sizes)
      : history_(seed, sizes.vocabulary), asked_(history_), sizes_(sizes), seed_(seed) {}

  bool has_ended() const { return turn_ == kTurnsOfEach; }
  bool is_in_turn() const { return in_turn_; }
  int turn() const { return turn_; }
  Conversation* asked() { return &asked_; }

  // Goes on as another client would that has the same history.
  MixedConversation branch() const {
    MixedConversation other = *this;
    other.history_.change_topic();
    return other;
  }

  // Chat::begin(Conversation&, int new_tokens) asks for an answer.
  template <class Chat>
  void begin(Chat& chat) {
    if (!in_turn_) begin_turn();
    chat.begin(asked_, history_.pick(1, sizes_.max_answer));
  }

  void take(const Tokens& answer) {
    if (edits_ > 0) {  // the answer is dropped with the message's end
      --edits_;
      history_.edit_last_message(history_.message_len() / 2);
      asked_ = history_;
      return;
    }
    // The template leaves the thoughts out as soon as the user speaks again; between calls of tools
    // it keeps them.
    asked_.answer(answer, 0);
    history_.answer(answer, kind_ == Kind::plain ? 0 : static_cast<int>(answer.size()) * 3 / 4);
    if (calls_ > 0) {
      --calls_;
      const Tokens result = history_.words(history_.pick(10, sizes_.max_result));
      asked_.say(result);
      history_.say(result);
    } else {
      in_turn_ = false;
      ++turn_;
    }
  }

 private:
  void begin_turn() {
    in_turn_ = true;
    kind_ = static_cast<Kind>((seed_ + turn_ * (1 + seed_ % 2 * 2)) % 4);
    if (kind_ == Kind::tools) calls_ = history_.pick(1, 3);
    if (kind_ == Kind::edits) edits_ = history_.pick(1, 2);
    history_.say(history_.words(history_.pick(5, sizes_.max_message)));
    asked_ = history_;
  }

  Conversation history_;  // as the next turn's template renders it
  Conversation asked_;    // with the thoughts of this turn
  TalkSizes sizes_;
  int seed_;
  Kind kind_ = Kind::plain;
  bool in_turn_ = false;
  int turn_ = 0, calls_ = 0, edits_ = 0;
};

// Plays all conversations to their ends. Half of them branch in the middle: some where they stand,
// some where they stood two turns before. Chat::finish() returns the answers by conversation.
template <class Chat>
void talk_at_once(Chat& chat, const TalkSizes& sizes) {
  std::deque<MixedConversation> talkers;
  for (int i = 0; i < kTalksAtOnce; ++i) talkers.emplace_back(100 + i, sizes);
  std::mt19937 random(16);
  std::vector<MixedConversation*> order;
  std::map<int, MixedConversation> two_turns_before;
  std::set<int> branched;
  while (!std::ranges::all_of(talkers, &MixedConversation::has_ended)) {
    order.clear();
    for (MixedConversation& talker : talkers)
      if (!talker.has_ended()) order.push_back(&talker);
    std::ranges::shuffle(order, random);
    for (MixedConversation* talker : order) talker->begin(chat);
    const auto answers = chat.finish();
    for (MixedConversation& talker : talkers)
      if (const auto answer = answers.find(talker.asked()); answer != answers.end())
        talker.take(answer->second);
    for (int i = 0; i < kTalksAtOnce; i += 2) {
      const MixedConversation& talker = talkers[static_cast<size_t>(i)];
      if (talker.is_in_turn() || branched.contains(i)) continue;
      if (talker.turn() == kTurnsOfEach / 2 - 2) two_turns_before.try_emplace(i, talker);
      if (talker.turn() < kTurnsOfEach / 2) continue;
      branched.insert(i);
      talkers.push_back((i % 4 == 0 ? talker : two_turns_before.at(i)).branch());
    }
  }
}

}  // namespace hocket
