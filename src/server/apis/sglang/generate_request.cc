#include "server/apis/sglang/generate_request.h"

#include <utility>

#include "server/apis/openai/openai_request.h"
#include "server/apis/sglang/generate_api.h"
#include "server/generation/sampling_fields.h"
#include "server/generation/tool_fields.h"

namespace hocket {
namespace {

// Reads the object sampling_params. The defaults are those of SamplingParams, not of the model:
// this API's clients, such as trainers and benchmarks, expect the plain distribution.
void read_sampling_params(Fields& fields, const Json& object, const ServedModel& model,
                          GenerationRequest& request, Prompt& prompt) {
  if (!object.is_object())
    return fields.fail_field(
        "sampling_params",
        fmt::format("sampling_params must be an object, not {}", type_name(object)));
  Fields inner(object, "sampling_params");
  read_sampling(inner, model, request, prompt);
  int limit = 0;
  if (inner.read("max_new_tokens", limit, 0, INT32_MAX)) prompt.max_tokens = limit;
  inner.read("min_new_tokens", prompt.sampling.min_new_tokens, 0, INT32_MAX);
  inner.read("n", prompt.n, 1, kMaxChoices);
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    inner.refuse(name, "is called max_new_tokens here");
  inner.ignore({"stream_interval", "custom_params"});
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

bool is_id_list(const Json& list) {
  return list.empty() || list.front().is_number();
}

void read_inputs(Fields& fields, const ServedModel& model, GenerationRequest& request) {
  const Json* text = fields.get("text");
  const Json* ids = fields.get("input_ids");
  if ((text == nullptr) == (ids == nullptr))
    return fields.fail_field(text == nullptr ? "text" : "input_ids",
                             "give exactly one of text and input_ids");
  const char* name = text != nullptr ? "text" : "input_ids";
  const Json& input = text != nullptr ? *text : *ids;
  const bool good = text != nullptr ? input.is_string() || input.is_array() : input.is_array();
  if (!good)
    return fields.fail_field(name,
                             fmt::format("{} must be {}, not {}", name,
                                         text != nullptr ? "a string or a list of strings"
                                                         : "a list of token ids, or of such lists",
                                         type_name(input)));
  request.batch = input.is_array() && (text != nullptr || !is_id_list(input));
  const size_t count = request.batch ? input.size() : 1;
  if (count == 0 || count > static_cast<size_t>(kMaxPrompts))
    return fields.fail_field(
        name, fmt::format("{} must hold 1 to {} prompts, not {}", name, kMaxPrompts, count));
  for (size_t i = 0; i < count; ++i) {
    const Json& one = request.batch ? input[i] : input;
    Prompt& prompt = request.prompts.emplace_back();
    if (text != nullptr) {
      if (!one.is_string())
        return fields.fail_field(name,
                                 fmt::format("text must hold strings, not {}", type_name(one)));
      prompt.input = one.get<std::string>();
    } else {
      if (!one.is_array())
        return fields.fail_field(name, "input_ids must hold lists of token ids, all or none");
      read_ids(fields, name, one, model, prompt.input.emplace<std::vector<TokenId>>());
    }
  }
}

// Reads sampling_params: one object for all prompts, or a list with one for each prompt.
void read_all_sampling_params(Fields& fields, const ServedModel& model,
                              GenerationRequest& request) {
  static const Json kNone = Json::object();
  const Json* params = fields.get("sampling_params");
  if (params != nullptr && params->is_array()) {
    if (params->size() != request.prompts.size())
      return fields.fail_field("sampling_params",
                               fmt::format("sampling_params has {} entries for {} prompts",
                                           params->size(), request.prompts.size()));
    for (size_t i = 0; i < request.prompts.size() && fields.ok(); ++i)
      read_sampling_params(fields, (*params)[i], model, request, request.prompts[i]);
    return;
  }
  Prompt like;
  read_sampling_params(fields, params == nullptr ? kNone : *params, model, request, like);
  for (Prompt& prompt : request.prompts) {
    auto input = std::move(prompt.input);
    prompt = like;
    prompt.input = std::move(input);
  }
}

// Reads rid: one string for all prompts, or a list with one for each prompt.
void read_rids(Fields& fields, GenerationRequest& request) {
  const Json* rid = fields.get("rid");
  if (rid == nullptr || request.prompts.empty()) return;
  if (!rid->is_array()) {
    std::string one;
    read_rid(fields, one);
    for (Prompt& prompt : request.prompts) prompt.rid = one;
    return;
  }
  if (rid->size() != request.prompts.size())
    return fields.fail_field("rid", fmt::format("rid has {} entries for {} prompts", rid->size(),
                                                request.prompts.size()));
  for (size_t i = 0; i < rid->size(); ++i) {
    const auto* text = (*rid)[i].get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || text->size() > kMaxRidBytes)
      return fields.fail_field("rid",
                               fmt::format("rid must hold strings of 1 to {} bytes", kMaxRidBytes));
    request.prompts[i].rid = *text;
  }
}

}  // namespace

Result<GenerationRequest> parse_generate(const Json& body, const ServedModel& model) {
  GenerationRequest request;
  request.api = &kGenerateApi;
  Fields fields(body);
  read_inputs(fields, model, request);
  if (!fields.ok()) return std::unexpected(fields.finish().error());

  bool logprobs = false, routed = false;
  int start = -1, top = 0;
  fields.read("return_logprob", logprobs);
  fields.read("return_routed_experts", routed);
  fields.read("logprob_start_len", start, -1, INT32_MAX);
  fields.read("top_logprobs_num", top, 0, kMaxTopLogprobs);
  fields.read("return_text_in_logprobs", request.logprob_text);
  fields.read("stream", request.stream);
  read_all_sampling_params(fields, model, request);
  size_t answers = 0;
  for (Prompt& prompt : request.prompts) {
    prompt.sampling.return_routed_experts = routed;
    if (logprobs) {
      prompt.sampling.num_top_logprobs = top;
      prompt.sampling.prompt_logprobs_from = start;
    }
    answers += static_cast<size_t>(prompt.n);
  }
  if (answers > static_cast<size_t>(kMaxPrompts))
    fields.fail_field("sampling_params", fmt::format("{} answers are asked for; {} are allowed",
                                                     answers, kMaxPrompts));
  read_rids(fields, request);
  read_envelope(fields, request);
  for (const char* name : {"input_embeds", "image_data", "audio_data", "video_data", "modalities"})
    fields.refuse(name, "is not supported: this model reads text only");
  for (const char* name : {"lora_path", "session_params", "return_hidden_states",
                           "token_ids_logprob", "custom_logit_processor"})
    fields.refuse(name, "is not supported yet");
  fields.ignore({"background", "conversation_id", "model"});
  return fields.finish_with(std::move(request));
}

Result<TokenizeRequest> parse_tokenize(const Json& body, const ServedModel& model) {
  TokenizeRequest request;
  Fields fields(body);
  std::string name;
  fields.read("model", name);
  std::string text;
  const bool by_prompt = fields.read("prompt", text);
  const bool by_text = fields.read("text", text);
  const bool by_messages = body.contains("messages") && !body["messages"].is_null();
  if (by_prompt + by_text + by_messages != 1)
    fields.fail_field("prompt", "give exactly one of prompt, text and messages");
  if (by_messages) {
    ChatInput& chat = request.input.emplace<ChatInput>();
    AnswerReading reading;  // discarded: no answer follows
    read_conversation(fields, chat);
    read_tools(fields, model, reading, chat);
    read_reasoning(fields, model, reading, chat);
  } else {
    request.input = std::move(text);
  }
  fields.read("add_special_tokens", request.add_special_tokens);
  fields.read("return_token_strs", request.return_token_strs);
  fields.ignore({"user", "rid", "priority"});
  return fields.finish_with(std::move(request));
}

Result<DetokenizeRequest> parse_detokenize(const Json& body, const ServedModel& model) {
  DetokenizeRequest request;
  Fields fields(body);
  std::string name;
  fields.read("model", name);
  bool skip = false;
  fields.read("skip_special_tokens", skip);
  if (skip) request.special = SpecialTokens::skip;
  const Json* tokens = fields.array("tokens", SIZE_MAX);
  if (tokens == nullptr) {
    fields.fail_field("tokens", "tokens is missing");
  } else {
    read_ids(fields, "tokens", *tokens, model, request.tokens);
  }
  fields.ignore({"user", "rid", "priority"});
  return fields.finish_with(std::move(request));
}

Result<AbortBody> parse_abort(const Json& body) {
  AbortBody request;
  Fields fields(body);
  fields.read("rid", request.rid);
  fields.read("abort_all", request.all);
  fields.ignore({"abort_message", "finished_reason", "user", "priority"});
  if (request.rid.empty() && !request.all)
    fields.fail_field("rid", "give the rid of the request, or \"abort_all\": true");
  return fields.finish_with(std::move(request));
}

}  // namespace hocket
