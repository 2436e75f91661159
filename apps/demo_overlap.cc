#include "apps/demo_overlap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "apps/demo_question.h"
#include "base/clock.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr double kLinkGbit = 1, kLinkLatencyUs = 20;
constexpr int kMaxTokens = 64, kRounds = 6;  // round 0 is not counted: the planner learns in it
constexpr std::array kQuestions = {"What is 17 + 25?",
                                   "What is 7 x 8?",
                                   "Tell me a story about a fox and a lantern.",
                                   "Tell me a story about a bear and a boat.",
                                   "Tell me a story about an owl and a clock.",
                                   "Tell me a story about a cat and a kite.",
                                   "Tell me a story about a goose and a bell.",
                                   "Tell me a story about a mouse and a map."};

struct DemoRun {
  std::vector<std::string> answers;  // tokens and log-probabilities as JSON
  double seconds = 0;                // all rounds without round 0
  double hidden = 0, exposed = 0;    // seconds of transfers, summed over ranks and rounds 1 to 5
  std::string plan;                  // the plan that most decode steps had

  double tokens_per_s() const {
    return (kRounds - 1) * static_cast<double>(kQuestions.size()) * kMaxTokens / seconds;
  }
};

// Asks all questions at once, each from a thread and connection of its own.
Result<void> ask_all(const RunningServer& running, DemoRun& run) {
  std::vector<Result<DemoAnswer>> answers(kQuestions.size(),
                                          fail(ErrorCode::internal, "not asked"));
  {
    std::vector<std::jthread> clients;
    for (size_t i = 0; i < kQuestions.size(); ++i)
      clients.emplace_back(
          [&, i] { answers[i] = ask_for_tokens(running, {kQuestions[i], kMaxTokens, true}); });
  }
  for (Result<DemoAnswer>& one : answers) {
    if (!one) return fail(std::move(one.error()));
    run.answers.push_back(std::move(one->tokens));
  }
  return {};
}

void add_transfers(const OverlapView& view, int sign, DemoRun& run) {
  for (const OverlapView::RankEntry& rank : view.ranks) {
    run.hidden += sign * rank.stats.hidden_seconds;
    run.exposed += sign * rank.stats.exposed_seconds;
  }
}

void name_plan(const OverlapView& view, DemoRun& run) {
  if (!view.planner) return;
  const OverlapDecision* most = nullptr;
  for (const OverlapDecision& decision : view.planner->decisions)
    if (decision.bucket.phase == Phase::decode &&
        (most == nullptr || decision.num_steps > most->num_steps))
      most = &decision;
  if (most != nullptr) run.plan = describe(most->plan, OrderTable::builtin());
}

// One of the two services that are compared; both run beside the one that the demo shows.
struct ComparedService {
  RunningServer running;
  DemoRun run;

  const Engine& engine() const { return *running.model->engine; }
};

Result<ComparedService> start_with(ServerSettings settings, const char* overlap) {
  settings.parallel.overlap = overlap;
  HOCKET_TRY(RunningServer running, start_server(settings));
  return ComparedService{std::move(running), {}};
}

Result<void> play_round(ComparedService& service) {
  const TimePoint start = RealClock().now();
  HOCKET_TRY_VOID(ask_all(service.running, service.run));
  service.run.seconds += to_seconds(RealClock().now() - start);
  return {};
}

// The services play rounds in turn, so that other load of this machine slows both alike.
Result<void> play_all(ComparedService& plain, ComparedService& overlapped) {
  for (int round = 0; round < kRounds; ++round) {
    HOCKET_TRY_VOID(play_round(plain));
    HOCKET_TRY_VOID(play_round(overlapped));
    if (round > 0) continue;
    plain.run.seconds = overlapped.run.seconds = 0;
    add_transfers(overlapped.engine().overlap(), -1, overlapped.run);
  }
  const OverlapView view = overlapped.engine().overlap();
  add_transfers(view, 1, overlapped.run);
  name_plan(view, overlapped.run);
  return {};
}

Result<std::array<DemoRun, 2>> compare(const ServerSettings& settings) {
  HOCKET_TRY(ComparedService plain, start_with(settings, "none"));
  HOCKET_TRY(ComparedService overlapped, start_with(settings, "auto"));
  HOCKET_TRY_VOID(play_all(plain, overlapped));
  for (ComparedService* service : {&plain, &overlapped})
    service->running.server->drain(from_seconds(kDemoPatienceSeconds));
  return std::array{std::move(plain.run), std::move(overlapped.run)};
}

}  // namespace

Result<void> show_overlap(ServerSettings settings) {
  settings.http.host = "127.0.0.1", settings.http.port = 0;  // only this demo asks them
  settings.parallel.ep_size = 2;
  settings.parallel.ep_link_gbit = kLinkGbit;
  settings.parallel.ep_link_latency_us = kLinkLatencyUs;
  settings.memory.max_total_tokens = 4096;
  settings.memory.max_running_requests = static_cast<int>(kQuestions.size());
  settings.scheduler.disable_radix_cache = true;  // each round computes what the first did
  log::set_level(log::Level::error);  // hides the lines about loading the model twice more
  auto compared = compare(settings);
  log::set_level(log::Level::warning);
  if (!compared) return fail(std::move(compared.error()));
  const auto& [plain, overlapped] = *compared;
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
