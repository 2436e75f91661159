#include "apps/demo_overlap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "apps/running_server.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/http_client.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLinkGbit = 1, kLinkLatencyUs = 20;
constexpr double kPatienceSeconds = 60;
constexpr int kMaxTokens = 64, kRounds = 4;  // the first shows the planner what steps take
constexpr std::array kQuestions = {"What is 17 + 25?",
                                   "What is 7 x 8?",
                                   "Tell me a story about a fox and a lantern.",
                                   "Tell me a story about a bear and a boat.",
                                   "Tell me a story about an owl and a clock.",
                                   "Tell me a story about a cat and a kite.",
                                   "Tell me a story about a goose and a bell.",
                                   "Tell me a story about a mouse and a map."};

// One answer: each token with its log-probability, as the server wrote them.
struct Heard {
  Result<Json> tokens = fail(ErrorCode::internal, "not asked");
};

struct Trial {
  std::vector<std::string> answers;  // all that was told of them, as text
  double seconds = 0;                // of all rounds but the first
  double hidden = 0, exposed = 0;    // seconds of transfers, of all ranks
  std::string plan;                  // of most steps of answers

  double tokens_per_s() const {
    return (kRounds - 1) * static_cast<double>(kQuestions.size()) * kMaxTokens / seconds;
  }
};

Result<Json> ask(int port, const ServerSettings& settings, const char* question) {
  BlockingHttpClient client(
      {.host = settings.http.host, .port = port, .api_key = "", .timeout_s = kPatienceSeconds});
  const Json body = {{"messages", {{{"role", "user"}, {"content", question}}}},
                     {"temperature", 0},
                     {"max_tokens", kMaxTokens},
                     {"ignore_eos", true},
                     {"logprobs", true}};
  HOCKET_TRY(const HttpAnswer answer, client.post("/v1/chat/completions", body.dump()));
  const Json parsed = Json::parse(answer.body, nullptr, false);
  const Json tokens = parsed.value("/choices/0/logprobs/content"_json_pointer, Json());
  if (answer.status != 200 || !tokens.is_array() || tokens.size() != kMaxTokens)
    return fail(ErrorCode::internal, "the demo's question got status {}: {}", answer.status,
                answer.body);
  return tokens;
}

// All questions at once; each client asks for itself.
Result<void> ask_all(int port, const ServerSettings& settings, Trial& trial) {
  std::array<Heard, kQuestions.size()> heard;
  {
    std::vector<std::jthread> clients;
    for (size_t i = 0; i < kQuestions.size(); ++i)
      clients.emplace_back([&, i] { heard[i].tokens = ask(port, settings, kQuestions[i]); });
  }
  for (Heard& one : heard) {
    if (!one.tokens) return fail(std::move(one.tokens.error()));
    trial.answers.push_back(one.tokens->dump());
  }
  return {};
}

void add_transfers(const OverlapView& view, int sign, Trial& trial) {
  for (const OverlapView::OfRank& rank : view.ranks) {
    trial.hidden += sign * rank.stats.hidden_seconds;
    trial.exposed += sign * rank.stats.exposed_seconds;
  }
}

void name_plan(const OverlapView& view, Trial& trial) {
  if (!view.planner) return;
  const OverlapDecision* most = nullptr;
  for (const OverlapDecision& decision : view.planner->decisions)
    if (decision.bucket.phase == Phase::decode &&
        (most == nullptr || decision.num_steps > most->num_steps))
      most = &decision;
  if (most != nullptr) trial.plan = describe(most->plan, OrderTable::builtin());
}

Result<Trial> answer_with(ServerSettings settings, const char* overlap) {
  settings.parallel.overlap = overlap;
  HOCKET_TRY(RunningServer running, start_server(settings));
  const Engine& engine = *running.model->engine;
  const int port = running.server->port();
  Trial trial;
  HOCKET_TRY_VOID(ask_all(port, settings, trial));
  add_transfers(engine.overlap(), -1, trial);
  const TimePoint start = RealClock().now();
  for (int round = 1; round < kRounds; ++round) HOCKET_TRY_VOID(ask_all(port, settings, trial));
  trial.seconds = to_seconds(RealClock().now() - start);
  const OverlapView view = engine.overlap();
  add_transfers(view, 1, trial);
  name_plan(view, trial);
  running.server->drain(from_seconds(kPatienceSeconds));
  return trial;
}

}  // namespace

Result<void> show_overlap(ServerSettings settings) {
  settings.http.port = 0;
  settings.parallel.ep_size = 2;
  settings.parallel.ep_link_gbit = kLinkGbit;
  settings.parallel.ep_link_latency_us = kLinkLatencyUs;
  settings.memory.max_total_tokens = 4096;
  settings.memory.max_running_requests = static_cast<int>(kQuestions.size());
  settings.scheduler.disable_radix_cache = true;  // each round computes what the first did
  log::set_level(log::Level::error);  // that a model is loaded twice more is nobody's news
  auto plain_trial = answer_with(settings, "none");
  auto overlapped_trial = answer_with(settings, "auto");
  log::set_level(log::Level::warning);
  HOCKET_TRY(const Trial plain, std::move(plain_trial));
  HOCKET_TRY(const Trial overlapped, std::move(overlapped_trial));
  const double transfers = overlapped.hidden + overlapped.exposed;
  fmt::print(
      "Overlap  plan {}; {:.0f} % of the exchange hidden\n"
      "         (link model: {:g} Gbit/s, {:g} us, between the two ranks here)\n",
      overlapped.plan.empty() ? "none" : overlapped.plan,
      transfers > 0 ? 100 * overlapped.hidden / transfers : 0.0, kLinkGbit, kLinkLatencyUs);
  const bool same = plain.answers == overlapped.answers;
  fmt::print("Overlap check: {}: {} answers of {} tokens; {:.0f} tokens/s, {:.0f} without\n",
             same ? "same tokens as the plain path" : "OTHER TOKENS than the plain path",
             plain.answers.size(), kMaxTokens, overlapped.tokens_per_s(), plain.tokens_per_s());
  if (!same)
    return fail(ErrorCode::internal, "with --overlap auto and none, a question got two answers");
  return {};
}

}  // namespace hocket
