// A model in this process, without a server: takes token ids and sampling, gives text and tokens.
// It is the C++ behind include/hocket/hocket.h. Thread: any, many at a time, for every function;
// listeners are called on the thread `events`.
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
#include "text/answers/reasoning_start.h"
#include "text/tokens/chat_template.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

struct TextRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // with stop strings; max_new_tokens 0: the rest of the context
  SpecialTokens special = SpecialTokens::skip;
  std::optional<int> priority;
  ReasoningStart reasoning_start = ReasoningStart::none;  // reasoning that the grammar must allow
};

// The prompt of a chat.
struct ChatTokens {
  std::vector<TokenId> ids;
  ReasoningStart reasoning_start = ReasoningStart::none;  // as before an answer that has a form
};

// The end of a request.
struct TextEnding {
  FinishReason finish = FinishReason::none;
  TokenId stop_token{-1};
  std::optional<std::string> stop_text;
  Error error;  // for FinishReason::error
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

// One event of a request. Its views are valid while the listener runs.
struct TextEvent {
  RequestId id{};
  TokenId token{-1};
  std::string_view text;                       // whole characters
  const PositionLogprobs* logprobs = nullptr;  // for the token; null unless asked for
  const TextEnding* ending = nullptr;          // null except in the last event
};

class OfflineEngine {
 public:
  // Returns false to cancel the request; its last event is still delivered.
  using Listener = std::move_only_function<bool(const TextEvent&)>;

  // Errors: those of Tokenizer::load, ChatTemplate::load and Engine::create; model_not_found
  // without a path; bad_value if grammar_trials is not a program.
  static Result<std::unique_ptr<OfflineEngine>> open(const EmbeddedSettings& settings);
  // Cancels running requests and waits for their last events. Not to be called in a listener.
  ~OfflineEngine();
  OfflineEngine(const OfflineEngine&) = delete;
  OfflineEngine& operator=(const OfflineEngine&) = delete;

  const EngineInfo& info() const { return engine_->info(); }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  bool has_chat_template() const { return chat_template_.has_value(); }
  // Returns the defaults of the model's files, with a random seed.
  SamplingParams default_sampling() const;

  // Errors: no_tokenizer; invalid_request (not UTF-8).
  Result<std::vector<TokenId>> tokenize(std::string_view text) const;
  // `messages_json`, `extra_json`: as for hocket_chat_tokens. Errors: invalid_request,
  // no_tokenizer, template_failed, context_length_exceeded if it is far longer than the context.
  Result<ChatTokens> chat_tokens(std::string_view messages_json, std::string_view extra_json) const;
  Result<std::string> detokenize(std::span<const TokenId> tokens) const;

  // Submits a request; `id` is from Engine::next_request_id(). Errors: invalid_request (sampling
  // out of range), those of Engine::submit; then no event follows. Otherwise exactly the last event
  // has an ending.
  Result<void> submit(RequestId id, TextRequest request, Listener listener);
  void cancel(RequestId id) { engine_->abort(id); }
  // Returns true on the thread that calls listeners.
  bool in_listener() const;

 private:
  class Table;

  OfflineEngine() = default;
  Result<void> load(const EmbeddedSettings& settings);
  Result<void> settle(TextRequest& request) const;
  Result<void> settle_reasoning(TextRequest& request) const;

  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  ReasoningFormat reasoning_;
  std::vector<TokenId> reasoning_marks_;  // marks of reasoning that are control tokens
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Table> table_;  // requests under way, and the thread that reports their events
};

}  // namespace hocket
