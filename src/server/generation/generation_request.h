// A request for text from any API: what its parser has checked. The template, the tokens and the
// fit to the context still follow before the engine can take it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/sampling_params.h"
#include "engine/engine.h"
#include "server/generation/model_formats.h"
#include "text/answers/tool.h"
#include "text/answers/tool_format.h"
#include "text/tokens/chat_template.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/stop_matcher.h"
#include "text/tokens/stop_regex.h"

namespace hocket {

class RequestMemory;
class RequestMeter;

// The model behind the API. All pointers are borrowed and outlive every request.
struct ServedModel {
  const EngineInfo* info = nullptr;
  const Tokenizer* tokenizer = nullptr;         // null: the model folder has no tokenizer
  const ChatTemplate* chat_template = nullptr;  // null: none
  const ModelFormats* formats = nullptr;        // null: answers are plain text
};

struct Api;  // api.h

inline constexpr int kMaxChoices = 64;    // n
inline constexpr int kMaxPrompts = 1024;  // prompts of one batch; also limits prompts x n

struct Prompt {
  std::variant<std::string, std::vector<TokenId>, ChatInput> input;
  SamplingParams sampling;        // max_new_tokens 0: not set
  std::optional<int> max_tokens;  // as the client set it; 0: only the prompt is computed
  bool seeded = false;  // true: sampling.seed is the client's; else prepare_request draws it
  std::shared_ptr<const StopRegex> stop_regex;  // null: none
  bool reasoning_open = false;                  // true: the answer begins with reasoning
  int n = 1;
  std::string rid;  // empty: the answer's id is used
};

// The fields of a request that only its API reads. The API's folder derives its own type from this.
struct ApiFields {};

// Settings for reading the answers of a conversation: which text is reasoning, which is tool calls.
struct AnswerReading {
  ToolFormat tools_as = ToolFormat::none;  // none: calls stay text
  std::shared_ptr<const std::vector<Tool>> tools;
  ToolChoice choice;
  bool parallel = true;                // true: several calls in one answer
  ReasoningFormat reasoning;           // none: reasoning stays text
  std::optional<int> thinking_budget;  // tokens; nullopt: no limit
  bool include_reasoning = true;       // false: reasoning is not sent
  bool stream_reasoning = true;        // true: sent token by token; false: once complete

  bool plain() const { return tools_as == ToolFormat::none && !reasoning; }
};

// The service of prompts that an outside router chose: where it offers pages.
struct Bootstrap {
  std::string host;
  int port = 8998;

  bool operator==(const Bootstrap&) const = default;
};

struct GenerationRequest {
  const Api* api = nullptr;  // set by the parser
  std::string answer_id;     // empty: one is made with the API's prefix
  std::vector<Prompt> prompts;
  std::vector<std::shared_ptr<const StopRegex>> stop_regexes;  // those of all prompts
  bool batch = false;  // true: the client sent a list of prompts

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool echo = false;
  bool return_token_ids = false;
  bool logprob_text = false;  // true: token texts are added to the numbers
  SpecialTokens special = SpecialTokens::skip;
  StopText stop_text = StopText::trim;
  bool add_special_tokens = true;
  int64_t max_counted_tokens = 0;  // limit on a prompt that is counted, not run; 0: the context
  AnswerReading reading;

  std::optional<std::string> prediction;  // text that the answer is expected to be like

  std::shared_ptr<const ApiFields> api_fields;  // null: its API has none
  // True: only the rank that parses the request has what it needs, such as an earlier answer.
  bool stays_on_rank = false;

  std::optional<int> priority;
  std::string user, routing_key;
  uint64_t client = 0;                    // number of the client (client_key.h)
  std::string who = "anonymous";          // the principal's name; it may be logged
  std::shared_ptr<RequestMeter> meter;    // counts its tokens; null: no limits
  std::shared_ptr<RequestMemory> memory;  // counts its bytes; null: not counted
  // Requests share cached prefixes only if all three are equal. cache_owner is the principal that
  // has a cache of its own (empty: shared by all principals); the client sets the other two.
  std::string cache_owner, cache_salt, extra_key;
  std::optional<Bootstrap> bootstrap;
  int prefill_peer = -1;  // index of `bootstrap` in --disaggregation-prefill-url; -1: not chosen
  std::string session;    // its name among those of cache_owner; empty: none
};

// Returns the token ids of `prompt`. Errors: no_tokenizer, template_failed, invalid_request;
// context_length_exceeded if the text is so long that it cannot fit, before it is encoded.
Result<std::vector<TokenId>> prompt_ids(const Prompt& prompt, const GenerationRequest& request,
                                        const ServedModel& model);
// Returns the text of these tokens. The model has a tokenizer. Errors: template_failed,
// invalid_request.
Result<std::string> prompt_text(const Prompt& prompt, const GenerationRequest& request,
                                const ServedModel& model);
// Sets max_new_tokens so that prompt and answer fit the context. Errors: invalid_request (no
// token), and context_length_exceeded with both numbers. A prompt is never truncated.
Result<void> fit_to_context(Prompt& prompt, int prompt_tokens, const GenerationRequest& request,
                            const ServedModel& model);
// Returns a hash of cache_owner, cache_salt and extra_key: requests with the same three share
// cached prefixes. If all are empty, it is the common namespace.
CacheNamespace cache_namespace_of(const GenerationRequest& request);
// Returns a hash of both; zero if `session` is empty.
SessionKey session_key_of(std::string_view cache_owner, std::string_view session);
// Returns a hash of it; zero if it is empty: sessions that all share.
SessionKey session_owner_of(std::string_view cache_owner);
// Returns the name of the session that llama.cpp's API calls slot `number`.
std::string slot_session(int number);
// Returns the seed of choice i: `seed` itself for i = 0, else a hash of both.
uint64_t choice_seed(uint64_t seed, int i);
// Returns a random seed.
uint64_t fresh_seed();

// An error that all endpoints that need text share.
Error no_tokenizer_error();

}  // namespace hocket
