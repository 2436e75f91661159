// A request for text, whatever API it came in: what its parser has checked, and what is still to be
// done (template, tokens, fit to the context) before the generator can have it.
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
#include "server/protocol/answer_formats.h"
#include "text/answers/answer_format.h"
#include "text/answers/tool.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/stop_regex.h"

namespace hocket {

class RequestMemory;
class RequestMeter;

// The model behind the API. Borrowed: outlives every request.
struct ServedModel {
  const EngineInfo* info = nullptr;
  const Tokenizer* tokenizer = nullptr;         // null: a folder without one
  const ChatTemplate* chat_template = nullptr;  // null: none
  const AnswerFormats* formats = nullptr;       // null: answers are text and nothing else
};

enum class Api : uint8_t { chat, completions, generate, responses, messages };

inline constexpr int kChoicesMax = 64;    // n
inline constexpr int kPromptsMax = 1024;  // of one batch; prompts x n too

struct Prompt {
  std::variant<std::string, std::vector<TokenId>, ChatInput> input;
  SamplingParams sampling;                      // max_new_tokens 0: not set yet
  std::optional<int> max_tokens;                // as asked for; 0: only the prompt is wanted
  bool seeded = false;                          // sampling.seed is the client's
  std::shared_ptr<const StopRegex> stop_regex;  // null: none
  bool reasoning_open = false;                  // the answer begins with thoughts
  int n = 1;
  std::string rid;  // empty: the answer's id
};

struct ResponsesRequest;  // responses/responses_request.h

// How the answers of a conversation are read: what of their text is thoughts, what calls of tools.
struct AnswerReading {
  ToolFormat tools_as = ToolFormat::none;  // none: calls are text
  std::shared_ptr<const std::vector<Tool>> tools;
  ToolChoice choice;
  bool parallel = true;                // several calls in one answer
  ReasoningFormat reasoning;           // none: thoughts are text
  std::optional<int> thinking_budget;  // tokens; none: as long as the model likes
  bool include_reasoning = true;       // thoughts are sent at all
  bool stream_reasoning = true;        // as they come, not when they are whole

  bool plain() const { return tools_as == ToolFormat::none && !reasoning; }
};

struct GenerationRequest {
  Api api = Api::chat;
  std::vector<Prompt> prompts;
  std::vector<std::shared_ptr<const StopRegex>> stop_regexes;  // of all prompts
  bool batch = false;  // the client sent a list: /generate answers with one

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool echo = false;
  bool return_token_ids = false;
  bool logprob_text = false;  // /generate: token texts beside the numbers
  SpecialTokens special = SpecialTokens::skip;
  StopText stop_text = StopText::trim;
  bool add_special_tokens = true;
  int64_t most_tokens = 0;  // of a prompt that is counted, not run; 0: the context
  AnswerReading reading;

  std::shared_ptr<const ResponsesRequest> responses;  // what only that API knows

  std::optional<int> priority;
  std::string user, routing_key;
  uint64_t client = 0;                    // who asks (client_key.h)
  std::string who = "anonymous";          // the principal's name: safe to log
  std::shared_ptr<RequestMeter> meter;    // told of its tokens; null: not counted
  std::shared_ptr<RequestMemory> memory;  // what it holds; null: not counted
  // Prefixes are shared only where all three agree: the principal that has its own (empty: shared
  // by all principals), and two names that the client gives.
  std::string cache_owner, cache_salt, extra_key;
};

// The ids of prompts[i]. Errors: no_tokenizer, template_failed, invalid_request;
// context_length_exceeded where the text is far too long to be encoded.
Result<std::vector<TokenId>> prompt_ids(const Prompt& prompt, const GenerationRequest& request,
                                        const ServedModel& model);
// Settles max_new_tokens against the context. Errors: invalid_request (no token), and
// context_length_exceeded with both numbers; nothing is ever cut.
Result<void> fit_to_context(Prompt& prompt, int prompt_tokens, const GenerationRequest& request,
                            const ServedModel& model);
// Requests share cached prefixes where cache_owner, cache_salt and extra_key are the same, all of
// them. The common namespace where all are empty.
CacheNamespace cache_namespace_of(const GenerationRequest& request);
// Seed of choice i: a function of both, i = 0 the seed itself.
uint64_t choice_seed(uint64_t seed, int i);
// A seed nobody chose.
uint64_t fresh_seed();

// Errors shared by the endpoints that need text.
Error no_tokenizer_error();

}  // namespace hocket
