// Streams that another rank had begun, in the format of each API: the bytes that the client gets
// are those of a stream that was never cut, wherever it was cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "server/apis/apis.h"
#include "server/apis/responses/response_store.h"
#include "server/reply/reply.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

struct ResumeCase {
  const char *name, *path;
  Json body;
  friend void PrintTo(const ResumeCase& c, std::ostream* out) { *out << c.name; }
};

// Tokens that are words, then some that are not whole characters.
std::vector<TokenId> answer_of(const RequestInput& input) {
  std::vector<TokenId> tokens = ids_of("One two three. A few \"words\" more, and né? ");
  for (int i = 0; i < 12; ++i)
    tokens.push_back(TokenId{300 + static_cast<int>((input.sampling.seed >> (4 * i)) & 15) * 90});
  return tokens;
}

// Times differ between two answers, and /v1/responses draws its id again.
std::string without_times_and_ids(std::string text) {
  static const std::regex latency(R"("e2e_latency":[-+.e0-9]+)"), timings(R"("timings":\{[^}]*\})"),
      completed(R"("completed_at":[0-9]+)"), id("resp_[0-9a-f]+");
  text = std::regex_replace(text, latency, "E");
  text = std::regex_replace(text, timings, "T");
  text = std::regex_replace(text, completed, "C");
  return std::regex_replace(text, id, "I");
}

// A reply service that answers requests as it is asked to: as another rank would, which tells its
// progress, or behind a progress.
class ResumeTest : public ::testing::TestWithParam<ResumeCase> {
 protected:
  void SetUp() override {
    engine_.script = answer_of;
    engine_.start(outbox_);
    auto made = HttpServer::create(
        {.error_format_of = error_format_of},
        [this](HttpRequest&& request, auto exchange) { answer(request, exchange); });
    ASSERT_TRUE(made);
    http_ = *std::move(made);
  }
  void TearDown() override {
    engine_.stop();
    reply_.stop();
    http_.reset();
  }

  void answer(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    const auto api = std::ranges::find(all_apis(), request.path, &Api::path);
    ASSERT_NE(api, all_apis().end());
    const ServedModel model{&engine_.info(), &bundled_text().tokenizer,
                            &bundled_text().chat_template, &formats_};
    auto asked = (*api)->parse(Json::parse(request.body), model, {.store = &responses_});
    ASSERT_TRUE(asked) << asked.error().message;
    auto prepared =
        prepare_request(*std::move(asked), model, nullptr,
                        AnswerIdentity{.id = "resp_77", .created = 1'700'000'000, .call_seed = 77});
    ASSERT_TRUE(prepared) << prepared.error().message;
    prepared->sends_progress = tells_;
    if (!progress_) return reply_.begin(exchange, *std::move(prepared));
    ASSERT_TRUE(exchange->start_stream("text/event-stream"));
    reply_.resume(exchange, *std::move(prepared), nullptr, *std::exchange(progress_, {}));
  }
  std::string ask() {
    Json body = GetParam().body;
    body["stream"] = true;
    TestClient client(http_->port());
    client.send(TestServer::request_text("POST", GetParam().path, body.dump()));
    TestAnswer got = client.receive();
    EXPECT_EQ(got.status, 200) << got.body;
    return got.body;
  }

  // Set between requests, which the client sends one by one.
  bool tells_ = false;
  std::optional<AnswerProgress> progress_;
  FakeServerEngine engine_;
  Outbox outbox_{1 << 16};
  ResponseStore responses_{{.max_bytes = 1 << 20}};
  const ModelFormats formats_ =
      choose_model_formats({}, &bundled_text().chat_template, &bundled_text().tokenizer).value();
  ReplyService reply_{{.engine = &engine_, .outbox = &outbox_}};
  std::unique_ptr<HttpServer> http_;
};

TEST_P(ResumeTest, GivesTheBytesOfAStreamThatWasNeverCut) {
  const std::string want = without_times_and_ids(ask());
  ASSERT_GE(want.size(), 1000u);
  ASSERT_EQ(want.find("\"error\":{"), want.npos) << want;
  const bool scores = GetParam().body.contains("logprobs");
  EXPECT_EQ(want.find("\"cache") == want.npos, scores) << want;  // the usage
  tells_ = true;
  const std::string told = ask();
  tells_ = false;
  bool knew = false;
  size_t num_cuts = 0;
  for (size_t at = 0; at <= told.size(); at += std::max<size_t>(told.size() / 40, 1)) {
    SCOPED_TRACE(at);
    ProgressReader reader;
    std::string had;
    reader.take(std::string_view(told).substr(0, at), had);
    ASSERT_FALSE(reader.failed());
    if (had.ends_with("data: [DONE]\n\n")) break;
    progress_ = reader.take_progress();
    const std::string rest = ask();
    ASSERT_EQ(without_times_and_ids(had + rest), want);
    knew |= !engine_.last_seen().answer.empty();
    ++num_cuts;
  }
  EXPECT_GE(num_cuts, 30u);
  EXPECT_EQ(knew, !scores);
}

std::vector<ResumeCase> resume_cases() {
  Json chat = chat_body(), text = {{"prompt", "The capital"}}, scored = text;
  chat.update({{"seed", 5}, {"stream_options", {{"include_usage", true}}}});
  text.update({{"seed", 6}, {"max_tokens", 40}, {"stream_options", {{"include_usage", true}}}});
  scored.update({{"seed", 6}, {"max_tokens", 20}, {"logprobs", 2}});
  Json stops = chat;
  stops.update({{"stop", "words"}});
  Json message = chat_body();
  message.update({{"max_tokens", 40}, {"model", "tiny"}});
  Json kept = {{"input", "Hi there"}, {"max_output_tokens", 40}};
  Json generate = {{"text", "The capital"},
                   {"rid", "r"},
                   {"sampling_params", {{"max_new_tokens", 40}, {"sampling_seed", 7}}}};
  return {
      {"chat", "/v1/chat/completions", chat},   {"chat_stop", "/v1/chat/completions", stops},
      {"completions", "/v1/completions", text}, {"completions_logprobs", "/v1/completions", scored},
      {"responses", "/v1/responses", kept},     {"messages", "/v1/messages", message},
      {"generate", "/generate", generate}};
}

INSTANTIATE_TEST_SUITE_P(Apis, ResumeTest, ::testing::ValuesIn(resume_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
