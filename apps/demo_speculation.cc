#include "apps/demo_speculation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "apps/demo_question.h"
#include "base/clock.h"
#include "base/log.h"
#include "policy/scheduler/draft_figures.h"

namespace hocket {
namespace {

constexpr DemoQuestion kToldStory = {"Tell me a story about a fox and a lantern.", 256, false};
constexpr int kTimedRounds =
    6;  // round 0 is not counted: memory is touched for the first time in it
// The number is fixed: this small model gains nothing by drafts, so a gate would show its trials
// alone.
const SpeculationSettings kDrafting = {.algorithm = "NEXTN", .num_steps = 2};

// One of the two services that are compared.
struct TimedService {
  RunningServer running;
  std::string tokens;  // those of all rounds
  int num_tokens = 0;  // those of the counted rounds
  double seconds = 0;

  double tokens_per_s() const { return num_tokens / seconds; }
};

Result<TimedService> start_timed(ServerSettings settings, const SpeculationSettings& drafts) {
  settings.speculation = drafts;
  HOCKET_TRY(RunningServer running, start_server(settings));
  return TimedService{.running = std::move(running), .tokens = {}};
}

Result<void> generate_once(TimedService& service, int round) {
  const TimePoint start = RealClock().now();
  HOCKET_TRY(const DemoAnswer answer, ask_for_tokens(service.running, kToldStory));
  service.tokens += answer.tokens;
  if (round == 0) return {};
  service.num_tokens += answer.num_tokens;
  service.seconds += to_seconds(RealClock().now() - start);
  return {};
}

// The services play rounds in turn, so that other load of this machine slows both alike.
Result<void> compare_services(const ServerSettings& settings) {
  HOCKET_TRY(TimedService plain, start_timed(settings, {}));
  HOCKET_TRY(TimedService drafting, start_timed(settings, kDrafting));
  for (int round = 0; round < kTimedRounds; ++round)
    for (TimedService* service : {&plain, &drafting})
      HOCKET_TRY_VOID(generate_once(*service, round));
  const SchedulerStats stats = drafting.running.model->engine->stats().scheduler;
  for (TimedService* service : {&plain, &drafting})
    service->running.server->drain(from_seconds(kDemoPatienceSeconds));
  const bool same = plain.tokens == drafting.tokens;
  fmt::print(
      "Drafts  the story by the model's own drafts: {:.2f} tokens a step, {:.0f} % of drafts "
      "accepted;\n"
      "        {}; {:.0f} tokens/s on one core, {:.0f} without\n",
      accept_length_of(stats), 100 * accept_rate_of(stats),
      same ? "same tokens" : "OTHER TOKENS than without", drafting.tokens_per_s(),
      plain.tokens_per_s());
  if (!same)
    return fail(ErrorCode::internal, "with drafts and without, a question got two answers");
  return {};
}

}  // namespace

Result<void> show_speculation(ServerSettings settings) {
  settings.http.host = "127.0.0.1", settings.http.port = 0;  // only this demo asks them
  settings.parallel.ep_size = 1;
  settings.compute.num_threads = 1;  // more cores would mostly wait: the model is small
  settings.memory.max_total_tokens = 4096;
  settings.memory.max_running_requests = 1;
  settings.scheduler.disable_radix_cache = true;  // each round computes what the first did
  log::set_level(log::Level::error);  // hides the lines about loading the model twice more
  const auto compared = compare_services(settings);
  log::set_level(log::Level::warning);
  return compared;
}

}  // namespace hocket
