// Every error 400: the refused body, the field that it names, and its message.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/nearest_name.h"
#include "server/apis/openai/openai_api.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/sglang/generate_api.h"
#include "server/apis/sglang/generate_request.h"
#include "server/endpoints.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

ServedModel served() {
  static const FakeServerEngine engine;
  return {&engine.info(), &bundled_text().tokenizer, &bundled_text().chat_template};
}

Result<PreparedRequest> prepared(const Api& api, std::string_view body) {
  HOCKET_TRY(const Json json, parse_json_object(body));
  auto request = &api == &kChatApi          ? parse_chat(json, served())
                 : &api == &kCompletionsApi ? parse_completions(json, served())
                                            : parse_generate(json, served());
  if (!request) return std::unexpected(request.error());
  return prepare_request(*std::move(request), served());
}

struct RefusedFields {
  std::string fields;  // added to a good request
  std::string param;
  std::string words;  // part of message or fix
};

void expect_refused(const Api& api, const std::string& head,
                    const std::vector<RefusedFields>& refusals) {
  ASSERT_TRUE(prepared(api, head + "}")) << prepared(api, head + "}").error().message;
  for (const RefusedFields& r : refusals) {
    const auto answer = prepared(api, head + "," + r.fields + "}");
    ASSERT_FALSE(answer) << r.fields;
    const Error& e = answer.error();
    EXPECT_EQ(e.param, r.param) << r.fields << ": " << e.message;
    EXPECT_NE((e.message + " | " + e.fix).find(r.words), std::string::npos)
        << r.fields << ": " << e.message << " | " << e.fix;
  }
}

const std::string kChat = R"({"messages":[{"role":"user","content":"Hello"}])";
const std::string kCompletion = R"({"prompt":"Hello")";

// The arguments of all calls of a conversation count, since each becomes a tree.
TEST(Request, ArgumentsOfToolCallsAreBounded) {
  const auto chat = [](size_t bytes) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", std::string(bytes, ' ')}}}};
    const Json said = {{"role", "assistant"}, {"tool_calls", Json::array({call})}};
    return Json{{"messages", Json::array({said, said})}};
  };
  EXPECT_TRUE(parse_chat(chat(4 << 20), served()));
  const auto refused = parse_chat(chat((4 << 20) + 1), served());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages");
  EXPECT_NE(refused.error().message.find("8388610 bytes of arguments"), std::string::npos);
}

TEST(Request, ChatRefusals) {
  expect_refused(
      kChatApi, kChat,
      {{R"("temprature":1)", "temprature", "did you mean 'temperature'?"},
       {R"("zzzzzz":1)", "zzzzzz", "unknown field 'zzzzzz'"},
       {R"("temperature":-0.5)", "temperature", "between 0 and 2, not -0.5"},
       {R"("temperature":2.5)", "temperature", "between 0 and 2, not 2.5"},
       {R"("temperature":"hot")", "temperature", "must be a number, not a string"},
       {R"("top_p":0)", "top_p", "between 0 (excluded) and 1, not 0"},
       {R"("top_p":1.5)", "top_p", "not 1.5"},
       {R"("top_k":-2)", "top_k", "not -2"},
       {R"("min_p":1.1)", "min_p", "not 1.1"},
       {R"("frequency_penalty":3)", "frequency_penalty", "between -2 and 2, not 3"},
       {R"("presence_penalty":-3)", "presence_penalty", "between -2 and 2, not -3"},
       {R"("repetition_penalty":1e-45)", "repetition_penalty", "between 0.001 and 1000, not 1e-45"},
       {R"("max_tokens":0)", "max_tokens", "at least 1, not 0"},
       {R"("max_tokens":-1)", "max_tokens", "not -1"},
       {R"("max_tokens":1.5)", "max_tokens", "must be an integer"},
       {R"("max_tokens":99999999999999999999)", "max_tokens", "must be an integer"},
       {R"("max_completion_tokens":0)", "max_completion_tokens", "not 0"},
       {R"("max_tokens":4, "min_tokens":5)", "min_tokens", "min_tokens 5"},
       {R"("n":0)", "n", "between 1 and 64, not 0"},
       {R"("n":65)", "n", "between 1 and 64, not 65"},
       {R"("n":true)", "n", "must be an integer, not a boolean"},
       {R"("best_of":2)", "best_of", "not supported"},
       {R"("stop":"")", "stop", "empty string"},
       {R"("stop":["a",""])", "stop", "empty string"},
       {R"("stop":[1])", "stop", "must hold strings"},
       {R"("stop_regex":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17])", "stop_regex",
        "16 strings, not 17"},
       {R"("stop":{})", "stop", "a string or a list"},
       {R"("stop_token_ids":[2048])", "stop_token_ids", "0 to 2047, not 2048"},
       {R"("stop_token_ids":["1"])", "stop_token_ids", "token ids"},
       {R"("logit_bias":{"2048":1})", "logit_bias", "0 to 2047"},
       {R"("logit_bias":{"x":1})", "logit_bias", "names 'x'"},
       {R"("logit_bias":{"1":101})", "logit_bias", "between -100 and 100"},
       {R"("logit_bias":{"1":1,"01":1})", "logit_bias", "token 1 twice"},
       {R"("logprobs":1)", "logprobs", "true or false"},
       {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "between 0 and 20, not 21"},
       {R"("top_logprobs":2)", "top_logprobs", "needs \"logprobs\": true"},
       {R"("model":5)", "model", "must be a string, not an integer"},
       {R"("seed":1.5)", "seed", "must be an integer"},
       {R"("stream":"yes")", "stream", "true or false"},
       {R"("stream_options":{"include_usage":true})", "stream_options", "\"stream\": true"},
       {R"("stream":true,"stream_options":{"include_usge":true})", "stream_options.include_usge",
        "did you mean 'include_usage'?"},
       {R"("response_format":{"type":"xml"})", "response_format.type", "json_object"},
       {R"("response_format":{})", "response_format.type", "missing"},
       {R"("regex":7)", "regex", "must be a string"},
       {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools", "\"none\""},
       {R"("tool_choice":"required")", "tool_choice", "tools"},
       {R"("modalities":["audio"])", "modalities", "text only"},
       {R"("chat_template":"{{ x }}")", "chat_template", "--chat-template"},
       {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs", "beside"},
       {R"("priority":"high")", "priority", "must be an integer"},
       {R"("rid":"")", "rid", "1 to 256 bytes"},
       {R"("max_tokens":5000)", "max_tokens", "the context holds 4096"}});
}

TEST(Request, MessagesAreCheckedOneByOne) {
  const std::vector<RefusedFields> refusals = {
      {R"([])", "messages", "at least one"},
      {R"("hi")", "messages", "must be a list, not a string"},
      {R"([5])", "messages[0]", "must be an object"},
      {R"([{"content":"x"}])", "messages[0].role", "role must be a string"},
      {R"([{"role":"usr","content":"x"}])", "messages[0].role", "\"usr\""},
      {R"([{"role":"user"}])", "messages[0].content", "missing"},
      {R"([{"role":"user","content":7}])", "messages[0].content", "a string or a list of parts"},
      {R"([{"role":"system","content":"x"},{"role":"user","content":[{"type":"image_url"}]}])",
       "messages[1].content[0].type", "reads text only"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "string"}};
  for (const RefusedFields& r : refusals) {
    const auto answer = prepared(kChatApi, R"({"messages":)" + r.fields + "}");
    ASSERT_FALSE(answer) << r.fields;
    EXPECT_EQ(answer.error().param, r.param) << answer.error().message;
    EXPECT_NE(answer.error().message.find(r.words), std::string::npos) << answer.error().message;
  }
  EXPECT_EQ(prepared(kChatApi, R"({"model":"x"})").error().param, "messages");
}

TEST(Request, CompletionRefusals) {
  expect_refused(kCompletionsApi, kCompletion,
                 {{R"("suffix":"x")", "suffix", "forwards only"},
                  {R"("best_of":3)", "best_of", "not supported"},
                  {R"("logprobs":true)", "logprobs", "must be an integer"},
                  {R"("logprobs":21)", "logprobs", "between 0 and 20"},
                  {R"("max_tokens":-1)", "max_tokens", "at least 0, not -1"},
                  {R"("messages":[])", "messages", "unknown field"},
                  {R"("echo":1)", "echo", "true or false"},
                  {R"("max_tokens":4096)", "max_tokens", "together 4097"}});
  for (const char* prompt :
       {"[]", "5", "{}", R"([1,"a"])", R"(["a",1])", "[2048]", "[-1]", "[[1],5]"})
    EXPECT_EQ(prepared(kCompletionsApi, fmt::format(R"({{"prompt":{}}})", prompt)).error().param,
              "prompt")
        << prompt;
  EXPECT_EQ(prepared(kCompletionsApi, "{}").error().param, "prompt");
  EXPECT_EQ(prepared(kCompletionsApi, R"({"prompt":[[]]})").error().param, "prompt");
}

TEST(Request, GenerateRefusals) {
  expect_refused(
      kGenerateApi, R"({"text":"Hello")",
      {{R"("input_ids":[1])", "input_ids", "exactly one"},
       {R"("max_new_tokens":1)", "max_new_tokens", "unknown field"},
       {R"("sampling_params":5)", "sampling_params", "must be an object"},
       {R"("sampling_params":{"max_tokens":1})", "sampling_params.max_tokens", "max_new_tokens"},
       {R"("sampling_params":{"temperature":-1})", "sampling_params.temperature", "not -1"},
       {R"("sampling_params":{"stop":""})", "sampling_params.stop", "empty"},
       {R"("sampling_params":{"json_schema":"{"})", "sampling_params.json_schema", "holds no JSON"},
       {R"("sampling_params":[{},{}])", "sampling_params", "2 entries for 1"},
       {R"("return_logprob":1)", "return_logprob", "true or false"},
       {R"("top_logprobs_num":21)", "top_logprobs_num", "not 21"},
       {R"("return_logprob":true,"logprob_start_len":4000)", "logprob_start_len", "4000"},
       {R"("image_data":"x")", "image_data", "text only"},
       {R"("rid":["a","b"])", "rid", "2 entries for 1"},
       {R"("sampling_params":{"max_new_tokens":4096})", "max_new_tokens", "together"}});
  EXPECT_EQ(prepared(kGenerateApi, "{}").error().param, "text");
  EXPECT_EQ(prepared(kGenerateApi, R"({"text":[1]})").error().param, "text");
  EXPECT_EQ(prepared(kGenerateApi, R"({"input_ids":[[1],2]})").error().param, "input_ids");
  EXPECT_EQ(prepared(kGenerateApi, R"({"input_ids":[]})").error().param, "text");
}

TEST(Request, BodiesThatAreNoJson) {
  const auto message = [](std::string_view body) {
    return parse_json_object(body).error().message;
  };
  EXPECT_NE(message("").find("not JSON at byte"), std::string::npos) << message("");
  EXPECT_NE(message("{\"a\":}").find("at byte 6"), std::string::npos) << message("{\"a\":}");
  EXPECT_NE(message("{} x").find("not JSON"), std::string::npos);
  EXPECT_NE(message("{\"a\":\"\xff\"}").find("not UTF-8"), std::string::npos)
      << message("{\"a\":\"\xff\"}");
  EXPECT_NE(message(R"({"a":"\ud800"})").find("not JSON"), std::string::npos);
  EXPECT_NE(message(R"({"a":1,"a":2})").find("'a' is given twice"), std::string::npos);
  EXPECT_NE(message("[]").find("must be a JSON object, not a list"), std::string::npos);
  EXPECT_NE(message(R"({"a":1e999})").find("not JSON"), std::string::npos);
  std::string deep = "{\"a\":" + std::string(100000, '[');
  EXPECT_NE(message(deep).find("deeper than 64"), std::string::npos);
  std::string wide = "{";
  for (int i = 0; i < 50000; ++i) wide += fmt::format("\"k{}\":0,", i);
  EXPECT_TRUE(parse_json_object(wide + "\"z\":0}"));
  EXPECT_NE(message(wide + "\"k7\":0}").find("'k7' is given twice"), std::string::npos);
}

TEST(Request, JsonTreesKeepOrderAndValues) {
  const char* text = R"({"z":[1,-2,3.5,true,null,"ä\n"],"a":{"k":{}},"m":18446744073709551615})";
  EXPECT_EQ(to_text(parse_json(text).value()), text);
}

TEST(Request, HarmlessFieldsAreAccepted) {
  const auto answer = prepared(
      kChatApi, kChat + R"(,"user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto",
      "parallel_tool_calls":false,"tools":[],"tool_choice":"auto","response_format":{"type":"text"},
      "temperature":null,"best_of":null,"modalities":["text"],"reasoning_effort":"low",
      "prompt_cache_key":"k","model":"whatever"})");
  ASSERT_TRUE(answer) << answer.error().message;
}

TEST(Request, DefaultsComeFromTheModelThenFromUs) {
  const auto chat = prepared(kChatApi, kChat + "}").value();
  const SamplingParams& s = chat.request.prompts[0].sampling;
  EXPECT_DOUBLE_EQ(s.temperature, 0.3);
  EXPECT_DOUBLE_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.max_new_tokens, 4096 - static_cast<int>(chat.prompts[0].size()));
  const auto generate = prepared(kGenerateApi, R"({"text":"Hello"})").value();
  EXPECT_DOUBLE_EQ(generate.request.prompts[0].sampling.temperature, 1.0);
  EXPECT_DOUBLE_EQ(generate.request.prompts[0].sampling.top_p, 1.0);
}

TEST(Request, EverySamplingFieldArrives) {
  const auto answer =
      prepared(kChatApi, kChat + R"(,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,
      "frequency_penalty":1,"presence_penalty":-1,"repetition_penalty":1.5,"seed":-3,"max_tokens":9,
      "min_tokens":2,"ignore_eos":true,"stop":["x","yz"],"stop_token_ids":[5,6],
      "logit_bias":{"30":-100,"4":2.5},"logprobs":true,"top_logprobs":4,"n":3,"rid":"r",
      "priority":-4,"cache_salt":"s"})")
          .value();
  const Prompt& p = answer.request.prompts[0];
  const SamplingParams& s = p.sampling;
  EXPECT_DOUBLE_EQ(s.temperature, 0.5);
  EXPECT_DOUBLE_EQ(s.top_p, 0.25);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_DOUBLE_EQ(s.min_p, 0.125);
  EXPECT_DOUBLE_EQ(s.frequency_penalty, 1);
  EXPECT_DOUBLE_EQ(s.presence_penalty, -1);
  EXPECT_DOUBLE_EQ(s.repetition_penalty, 1.5);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(s.max_new_tokens, 9);
  EXPECT_EQ(s.min_new_tokens, 2);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(s.stop_ids, (std::vector{TokenId{5}, TokenId{6}}));
  EXPECT_EQ(std::vector(s.logit_bias.begin(), s.logit_bias.end()),
            (std::vector<LogitBias::Entry>{{TokenId{4}, 2.5f}, {TokenId{30}, -100.f}}));
  EXPECT_EQ(s.num_top_logprobs, 4);
  EXPECT_EQ(p.n, 3);
  EXPECT_EQ(p.rid, "r");
  EXPECT_EQ(answer.request.priority, -4);
}

TEST(Request, PrefixesAreKeptApartByOwnerSaltAndExtraKey) {
  EXPECT_EQ(cache_namespace_of({}), CacheNamespace());
  const std::array<std::string, 3> names[] = {{"", "s", ""},  {"", "t", ""},    {"", "", "s"},
                                              {"s", "", ""},  {"", "s", "t"},   {"", "st", ""},
                                              {"s", "t", ""}, {"", "s1:t", ""}, {}};
  const auto space = [](const std::array<std::string, 3>& n) {
    GenerationRequest request;
    request.cache_owner = n[0];
    request.cache_salt = n[1];
    request.extra_key = n[2];
    return cache_namespace_of(request);
  };
  for (const auto& a : names)
    for (const auto& b : names)
      EXPECT_EQ(space(a) == space(b), &a == &b) << a[0] << "," << a[1] << "," << a[2];
}

TEST(Request, EveryNumberHasARange) {
  const auto good = [](std::string_view field, double v) {
    return prepared(kChatApi, kChat + fmt::format(R"(,"{}":{}}})", field, v)).has_value() &&
           prepared(kGenerateApi,
                    fmt::format(R"({{"text":"x","sampling_params":{{"{}":{}}}}})", field, v))
               .has_value();
  };
  for (const auto& [field, range, value] : kSamplingNumbers) {
    EXPECT_EQ(good(field, range.low), !range.low_excluded) << field;
    EXPECT_TRUE(good(field, range.high)) << field;
    EXPECT_FALSE(good(field, std::nextafter(range.low, -1e9))) << field;
    EXPECT_FALSE(good(field, std::nextafter(range.high, 1e9))) << field;
  }
}

// Fields that 1,024 prompts share are read once and stored once.
TEST(Request, PromptsShareWhatTheyHaveInCommon) {
  const Json texts = std::vector<std::string>(kMaxPrompts, "a");
  const std::string params = R"({"stop_regex":"\\w{4}x","logit_bias":{"5":1},"regex":"a+"})";
  const auto one = prepared(
      kGenerateApi, fmt::format(R"({{"text":{},"sampling_params":{}}})", texts.dump(), params));
  ASSERT_TRUE(one) << one.error().message;
  const auto& prompts = one->request.prompts;
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.stop_regex, prompts[0].stop_regex);
    EXPECT_EQ(prompt.sampling.grammar, prompts[0].sampling.grammar);
    EXPECT_EQ(prompt.sampling.logit_bias.begin(), prompts[0].sampling.logit_bias.begin());
  }
  EXPECT_NE(prompts[0].sampling.seed, prompts[1].sampling.seed);
  Json each = Json::array();
  for (int i = 0; i < 8; ++i) each.push_back({{"stop_regex", fmt::format("x{}", i % 4)}});
  const auto body = [&] {
    return Json{{"text", std::vector<std::string>(each.size(), "a")}, {"sampling_params", each}}
        .dump();
  };
  EXPECT_TRUE(prepared(kGenerateApi, body()));
  each.push_back({{"stop_regex", "x4"}});
  const auto refused = prepared(kGenerateApi, body());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "sampling_params.stop_regex");
}

TEST(Request, SeedsOfChoicesDifferAndRepeat) {
  EXPECT_EQ(choice_seed(42, 0), 42u);
  EXPECT_NE(choice_seed(42, 1), choice_seed(42, 2));
  EXPECT_EQ(choice_seed(42, 1), choice_seed(42, 1));
  EXPECT_NE(fresh_seed(), fresh_seed());
}

TEST(Request, ChatShapesThePrompt) {
  const auto text_of = [](std::string_view fields) {
    const auto answer = prepared(kChatApi, fmt::format("{{{}}}", fields));
    EXPECT_TRUE(answer) << answer.error().message;
    return bundled_text().tokenizer.decode(answer->prompts[0], SpecialTokens::keep).value();
  };
  EXPECT_EQ(text_of(R"("messages":[{"role":"developer","content":[{"type":"text","text":"Be "},
                    {"type":"text","text":"brief."}]},{"role":"user","content":"Hi"}])"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(
      text_of(R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He"}],
                    "continue_final_message":true)"),
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHe");
  EXPECT_EQ(text_of(R"("messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false)"),
            "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_NE(text_of(R"("messages":[{"role":"user","content":"Hi"}],
                    "chat_template_kwargs":{"enable_thinking":false})")
                .find("<think>"),
            std::string::npos);
  EXPECT_NE(
      text_of(R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,
                    "tool_calls":[{"id":"1","type":"function",
                                   "function":{"name":"f","arguments":"{\"a\":1}"}}]},
                    {"role":"tool","content":"4","tool_call_id":"1"}])")
          .find(R"("arguments": {"a": 1}})"),
      std::string::npos);
  EXPECT_NE(text_of(R"("messages":[{"role":"user","content":"Hi"}],
                    "chat_template_kwargs":{"tools":[{"name":"f"}]})")
                .find("<tools>\n{\"name\": \"f\"}"),
            std::string::npos);
}

TEST(Request, NearestNames) {
  const std::vector<std::string_view> names = {"temperature", "top_p", "top_k", "n"};
  EXPECT_EQ(nearest_name("temprature", names), "temperature");
  EXPECT_EQ(nearest_name("tempreature", names), "temperature");
  EXPECT_EQ(nearest_name("topk", names), "top_k");
  EXPECT_EQ(nearest_name("completely_else", names), std::nullopt);
}

}  // namespace
}  // namespace hocket
