// Turns flags into the options of the scheduler. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model_config.h"
#include "core/server_settings.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/memory_plan.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// SchedulerOptions has members of the same names.
struct PrefillChoice {
  PrefillPolicy policy = PrefillPolicy::prefill_first;
  double prompt_share = 0;
};
// Chooses the policy from --prefill-policy, --enable-mixed-chunk and --itl-slo-ms. `auto` is
// latency with half of each step for prompts, so that neither they nor running requests starve. It
// is prefill-first if prompts are never cut, and also on several ranks, whose steps last as long as
// that of the slowest. Errors: bad_value, also if two flags contradict each other, or one would
// change nothing.
Result<PrefillChoice> choose_prefill(const ServerSettings& settings);

// Chooses by --overlap-schedule and --disable-overlap-schedule. `auto` is measured. Errors:
// bad_value.
Result<OverlapSchedule> choose_overlap_schedule(const SchedulerSettings& settings);

// Returns the algorithm that a value of --speculative-algorithm names: auto, NEXTN, NGRAM or none,
// whatever its case; EAGLE is NEXTN. Returns any other value in capitals.
std::string speculation_named(std::string_view value);
// Says how words of SGLang were understood: the notes of EngineInfo.
std::vector<std::string> speculation_notes(const SpeculationSettings& settings);

struct SpeculationChoice {
  int max_drafts = 0;              // an answer in a step; 0: no speculation
  std::optional<int> fixed = {};   // number of drafts that every answer gets; null: it is chosen
  bool by_module = false;          // the model's own module for multi-token prediction drafts
  bool by_text = false;            // drafts come from the request's own text
  std::string algorithm = "none";  // NEXTN, NGRAM, none; auto: both draft
};
// Chooses by the flags --speculative-*. `auto` is both drafters if the files have a module, else
// NGRAM. Errors: bad_value.
Result<SpeculationChoice> choose_speculation(const ServerSettings& settings,
                                             const ModelConfig& model);

// Makes the scheduler's options. Errors: bad_value, naming the flag.
Result<SchedulerOptions> scheduler_options(const ServerSettings& settings, const MemoryPlan& plan,
                                           const EngineInfo& info);

}  // namespace hocket
