// hocket demo: serves the bundled model, asks it over HTTP as a client would, and says where to go
// next.
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/demo_overlap.h"
#include "apps/demo_question.h"
#include "apps/demo_speculation.h"
#include "apps/flags.h"
#include "apps/running_server.h"
#include "apps/serve_until_signal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/show_bytes.h"
#include "client/blocking_http_client.h"
#include "server/apis/apis.h"
#include "server/http/http.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPort = 30000;
constexpr const char* kSum = "What is 17 + 25?";
constexpr const char* kStory = "Tell me a story about a fox and a lantern.";

// Returns `asked`. If it is 0: kPort, or 0 (any free port) if kPort is taken. Errors: those of
// HttpServer::create, for a port that was asked for and is taken too.
Result<int> choose_port(const std::string& host, int asked) {
  HttpOptions options;
  options.host = host;
  options.port = asked != 0 ? asked : kPort;
  options.error_format_of = error_format_of;
  const auto probe =
      HttpServer::create(options, [](HttpRequest&&, const std::shared_ptr<HttpExchange>&) {});
  if (probe) return options.port;
  if (asked != 0 || probe.error().code != ErrorCode::port_in_use) return fail(probe.error());
  fmt::print("          port {} is taken: using a free one\n", kPort);
  return 0;
}

struct Reply {
  std::string text;
  int prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double seconds = 0;
};

enum class Print { text, nothing };

// Asks one chat question as a stream; with Show::text prints the answer as it arrives.
// Errors: those of the client; internal, with the server's message.
Result<Reply> ask(BlockingHttpClient& client, const char* question, Print print) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", question}}}},
                     {"temperature", 0},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  Reply reply;
  std::string trouble;
  const TimePoint start = RealClock().now();
  const auto event = [&](std::string_view data) {
    if (data == kSseDone) return;
    const Json block = Json::parse(data, nullptr, false);
    if (!block.is_object() || block.contains("error")) {
      trouble = data;
      return;
    }
    const Json piece = block.value("/choices/0/delta/content"_json_pointer, Json());
    if (piece.is_string()) {
      reply.text += piece.get_ref<const std::string&>();
      if (print == Print::text) fmt::print("{}", piece.get_ref<const std::string&>());
      std::fflush(stdout);
    }
    if (const Json usage = block.value("usage", Json()); usage.is_object()) {
      reply.prompt_tokens = usage.value("prompt_tokens", 0);
      reply.output_tokens = usage.value("completion_tokens", 0);
      reply.cached_tokens = usage.value("/prompt_tokens_details/cached_tokens"_json_pointer, 0);
    }
  };
  HOCKET_TRY(const HttpAnswer answer, client.stream("/v1/chat/completions", body.dump(), event));
  reply.seconds = to_seconds(RealClock().now() - start);
  if (answer.status != 200) trouble = answer.body;
  if (trouble.empty() && reply.text.empty()) trouble = "an empty answer";
  if (!trouble.empty())
    return fail(ErrorCode::internal, "the demo's question got status {}: {}", answer.status,
                trouble);
  return reply;
}

Result<void> converse(BlockingHttpClient& client) {
  Reply story;
  for (const char* question : {kSum, kStory}) {
    fmt::print("\nyou    {}\nmodel  ", question);
    HOCKET_TRY(story, ask(client, question, Print::text));
    fmt::print("\n");
  }
  HOCKET_TRY(const Reply again, ask(client, kStory, Print::nothing));
  fmt::print("\n{} tokens in {:.2f} s, {:.0f} tokens/s for one reader\n", story.output_tokens,
             story.seconds, story.output_tokens / story.seconds);
  fmt::print("Cache  the story asked again: {} of {} prompt tokens were not computed twice; {}\n",
             again.cached_tokens, again.prompt_tokens,
             again.text == story.text ? "same answer" : "ANOTHER ANSWER");
  if (again.text != story.text)
    return fail(ErrorCode::internal, "the same question got two answers at temperature 0");
  return {};
}

void print_facts(const EngineInfo& info, const std::string& url) {
  fmt::print("CPU    {}\n", describe(inspect_machine()));
  fmt::print("KV     {} tokens, {} in {} pages; weights {}, work {}\n", info.max_total_tokens,
             show_bytes(info.kv_bytes), info.num_pages, show_bytes(info.weight_bytes),
             show_bytes(info.work_bytes));
  fmt::print("Page   {}/   open it in a browser: chat, requests, experts, steps, settings\n", url);
  fmt::print(
      "Try    curl {}/v1/chat/completions -d "
      R"('{{"messages":[{{"role":"user","content":"What is 7 x 8?"}}]}}')"
      "\n",
      url);
}

Result<int> run_demo(const Arguments& arguments) {
  ServerSettings settings;
  bool once = false;
  int port = 0;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "demo",
                          .about = "serve the bundled model and ask it a question",
                          .groups = {{"Demo",
                                      {{"once", &once, "end after the answers", ""},
                                       {"port", &port, "0: 30000, or a free one", ""}}}},
                          .takes_config = false},
                         arguments));
  if (!go) return 0;
  log::set_level(log::Level::warning);
  HOCKET_TRY_VOID(choose_model(settings));
  HOCKET_TRY(settings.http.port, choose_port(settings.http.host, port));
  settings.parallel.ep_size = inspect_machine().num_cores >= 2 ? 2 : 1;
  SignalListener signals;
  const log::Writer log_writer;
  const TimePoint start = RealClock().now();
  HOCKET_TRY(RunningServer running, start_server(settings));
  const double ready_seconds = to_seconds(RealClock().now() - start);

  const EngineInfo& info = running.model->engine->info();
  const std::string url = fmt::format("http://{}:{}", settings.http.host, running.server->port());
  fmt::print("[3/4] model     {}, {} layers of {} experts, {}, from {}\n", info.served_model_name,
             info.model.num_layers, info.model.moe.num_experts, show_bytes(info.weight_bytes),
             std::filesystem::proximate(info.model_path).string());
  if (info.num_ranks > 1)
    fmt::print(
        "          ranks     {} in this process, {} experts and {} {} each; rows travel twice "
        "a layer\n",
        info.num_ranks, info.ranks[0].experts.size(), info.ranks[0].num_workers,
        info.ranks[0].num_workers == 1 ? "core" : "cores");
  fmt::print("[4/4] serve     {}   ready in {:.2f} s\n", url, ready_seconds);
  {
    BlockingHttpClient client({.host = settings.http.host,
                               .port = running.server->port(),
                               .api_key = "",
                               .timeout_s = kDemoPatienceSeconds});
    HOCKET_TRY_VOID(converse(client));
  }
  HOCKET_TRY_VOID(show_speculation(settings));
  if (info.num_ranks > 1) HOCKET_TRY_VOID(show_overlap(settings));
  print_facts(info, url);
  if (once) return running.server->drain(from_seconds(settings.http.shutdown_timeout_s)) ? 0 : 1;
  fmt::print("Serving until Ctrl-C.\n");
  std::fflush(stdout);
  const double patience = settings.http.shutdown_timeout_s;
  signals.deliver_to_wait({.end = from_seconds(patience) + kEndMargin});
  return serve_until_signal(*running.server, signals, patience);
}

}  // namespace

int demo(const Arguments& arguments) {
  const Result<int> done = run_demo(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
