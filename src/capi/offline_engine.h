// A model of a folder in this process: token ids and sampling in, text and tokens out, no server.
// The C++ behind include/hocket/hocket.h.
// Thread: any, many at a time, for every function; listeners are called in the thread `events`.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capi/options.h"
#include "engine/engine.h"
#include "text/answers/thoughts_ahead.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace hocket {

struct TextRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // with stop strings; max_new_tokens 0: the rest of the context
  SpecialTokens special = SpecialTokens::skip;
  std::optional<int> priority;
  ThoughtsAhead thoughts = ThoughtsAhead::none;  // that a grammar leaves room for
};

// A chat as the model reads it.
struct ChatTokens {
  std::vector<TokenId> ids;
  ThoughtsAhead thoughts = ThoughtsAhead::none;  // before an answer that has a form
};

// How a request ended.
struct TextEnding {
  FinishReason finish = FinishReason::none;
  TokenId stop_token{-1};
  std::optional<std::string> stop_text;
  Error error;  // of FinishReason::error
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

// News of one request. Views hold while the listener runs.
struct TextEvent {
  RequestId id{};
  TokenId token{-1};
  std::string_view text;                       // whole characters
  const PositionLogprobs* logprobs = nullptr;  // of the token, where asked for
  const TextEnding* ending = nullptr;          // of the last event
};

class OfflineEngine {
 public:
  // False cancels the request; its last event comes nevertheless.
  using Listener = std::move_only_function<bool(const TextEvent&)>;

  // Errors: those of Tokenizer::load, ChatTemplate::load and Engine::create; model_not_found
  // without a path; bad_value where grammar_trials names no program.
  static Result<std::unique_ptr<OfflineEngine>> open(const EmbeddedSettings& settings);
  // Cancels what runs, waits for the last events. Not in a listener.
  ~OfflineEngine();
  OfflineEngine(const OfflineEngine&) = delete;
  OfflineEngine& operator=(const OfflineEngine&) = delete;

  const EngineInfo& info() const { return engine_->info(); }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  bool has_chat_template() const { return chat_template_.has_value(); }
  // What the model's files wish for, and a seed nobody chose.
  SamplingParams default_sampling() const;

  // Errors: no_tokenizer; invalid_request (not UTF-8).
  Result<std::vector<TokenId>> tokenize(std::string_view text) const;
  // `messages_json`, `extra_json`: as hocket_chat_tokens has them. Errors: invalid_request,
  // no_tokenizer, template_failed, context_length_exceeded where it is far longer than the context.
  Result<ChatTokens> chat_tokens(std::string_view messages_json, std::string_view extra_json) const;
  Result<std::string> detokenize(std::span<const TokenId> tokens) const;

  // `id`: of Engine::next_request_id(). Errors: invalid_request (sampling out of range), those of
  // Engine::submit; no event follows. Otherwise exactly one event has an ending, the last.
  Result<void> submit(RequestId id, TextRequest request, Listener listener);
  void cancel(RequestId id) { engine_->abort(id); }
  // This is the thread in which listeners are called.
  bool in_listener() const;

 private:
  class Table;

  OfflineEngine() = default;
  Result<void> load(const EmbeddedSettings& settings);
  Result<void> settle(TextRequest& request) const;
  Result<void> settle_thoughts(TextRequest& request) const;

  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  ReasoningFormat reasoning_;
  std::vector<TokenId> thought_marks_;  // that are control tokens
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Table> table_;  // requests under way, and the thread that tells of them
};

}  // namespace hocket
