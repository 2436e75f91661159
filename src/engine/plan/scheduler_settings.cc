#include "engine/plan/scheduler_settings.h"

#include <algorithm>

#include "compute/models/family.h"
#include "engine/plan/latent_form.h"

namespace hocket {
namespace {

constexpr double kPromptShare = 0.5;
// Tokens of a long prompt between two kept states.
constexpr int kMinStateInterval = 512, kMaxStateInterval = 8192;

PriorityOptions priority_options(const SchedulerSettings& settings) {
  return {.enabled = settings.enable_priority_scheduling,
          .low_values_first = settings.schedule_low_priority_values_first,
          .preempt = !settings.disable_priority_preemption,
          .preemption_threshold = settings.priority_preemption_threshold,
          .refuse_when_disabled = settings.abort_on_priority_when_disabled};
}

// Cuts a time to 100 years, which counts as no limit.
Duration seconds(double count) {
  return from_seconds(std::min(count, 3.2e9));
}

Result<void> check_useful(const SchedulerSettings& settings) {
  if (settings.max_chunked_requests > 1 && settings.chunked_prefill_size == -1)
    return fail(error(ErrorCode::bad_value,
                      "--max-chunked-requests {} changes nothing with --chunked-prefill-size -1: "
                      "no prompt is cut",
                      settings.max_chunked_requests)
                    .with_param("max-chunked-requests"));
  return {};
}

}  // namespace

Result<PrefillChoice> choose_prefill(const ServerSettings& settings) {
  const SchedulerSettings& s = settings.scheduler;
  PrefillChoice choice;
  const bool automatic = s.prefill_policy == "auto";
  const bool paces = automatic && s.chunked_prefill_size != -1 && settings.parallel.ep_size <= 1;
  if (!automatic) {
    HOCKET_TRY(choice.policy, parse_prefill_policy(s.prefill_policy));
  } else if (paces && !s.enable_mixed_chunk) {
    choice = {PrefillPolicy::latency, kPromptShare};
  }
  if (s.enable_mixed_chunk) {
    if (choice.policy == PrefillPolicy::latency)
      return fail(error(ErrorCode::bad_value,
                        "--enable-mixed-chunk and --prefill-policy {} contradict each other",
                        s.prefill_policy)
                      .with_fix("one of the two: latency mixes, too")
                      .with_param("enable-mixed-chunk"));
    choice.policy = PrefillPolicy::mixed;
  }
  if (choice.policy == PrefillPolicy::latency) {
    if (!(s.itl_slo_ms > 0))
      return fail(error(ErrorCode::bad_value, "--itl-slo-ms is {}, must be above 0", s.itl_slo_ms)
                      .with_param("itl-slo-ms"));
  } else if (s.itl_slo_ms != SchedulerSettings().itl_slo_ms) {
    return fail(error(ErrorCode::bad_value,
                      "--itl-slo-ms {} changes nothing with --prefill-policy {}", s.itl_slo_ms,
                      prefill_policy_name(choice.policy))
                    .with_fix("--prefill-policy latency")
                    .with_param("itl-slo-ms"));
  }
  return choice;
}

Result<OverlapSchedule> choose_overlap_schedule(const SchedulerSettings& settings) {
  const std::string& asked = settings.overlap_schedule;
  if (asked != "auto" && asked != "on" && asked != "off")
    return fail(
        error(ErrorCode::bad_value, "--overlap-schedule {} is not one of auto, on, off", asked)
            .with_param("overlap-schedule"));
  if (asked == "on" && settings.disable_overlap_schedule)
    return fail(error(ErrorCode::bad_value,
                      "--overlap-schedule on and --disable-overlap-schedule contradict each other")
                    .with_fix("one of the two")
                    .with_param("disable-overlap-schedule"));
  if (settings.disable_overlap_schedule) return OverlapSchedule::off;
  return asked == "on"    ? OverlapSchedule::on
         : asked == "off" ? OverlapSchedule::off
                          : OverlapSchedule::measured;
}

namespace {

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  for (char& c : capitals)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return capitals;
}

// Returns how many drafts the flags ask for; 0: they leave it open.
Result<int> drafts_asked(const SpeculationSettings& s) {
  const auto refuse = [](std::string_view flag, std::string text) {
    return fail(error(ErrorCode::bad_value, "{}", text).with_param(std::string(flag)));
  };
  if (s.eagle_topk < 0 || s.eagle_topk > 1)
    return refuse("speculative-eagle-topk",
                  fmt::format("--speculative-eagle-topk {} is not 0 or 1: the drafts of an answer "
                              "are one chain, since each of its rows attends to all before it",
                              s.eagle_topk));
  if (s.num_steps < 0 || s.num_steps > kMaxDrafts)
    return refuse(
        "speculative-num-steps",
        fmt::format("--speculative-num-steps {} is not in 0 to {}", s.num_steps, kMaxDrafts));
  if (s.num_draft_tokens == 0) return s.num_steps;
  if (s.num_draft_tokens < 2 || s.num_draft_tokens > 1 + kMaxDrafts)
    return refuse("speculative-num-draft-tokens",
                  fmt::format("--speculative-num-draft-tokens {} is not 0 or in 2 to {}: it counts "
                              "the token before the drafts, too",
                              s.num_draft_tokens, 1 + kMaxDrafts));
  if (s.num_steps > 0 && s.num_draft_tokens != 1 + s.num_steps)
    return refuse("speculative-num-draft-tokens",
                  fmt::format("--speculative-num-draft-tokens {} and --speculative-num-steps {} "
                              "contradict each other: {} drafts are {} tokens with the one before",
                              s.num_draft_tokens, s.num_steps, s.num_steps, 1 + s.num_steps));
  return s.num_draft_tokens - 1;
}

bool is_eagle(std::string_view value) {
  return in_capitals(value) == "EAGLE";
}

}  // namespace

std::string speculation_named(std::string_view value) {
  std::string name = in_capitals(value);
  if (name == "EAGLE") return "NEXTN";
  if (name == "AUTO" || name == "NONE") return name == "AUTO" ? "auto" : "none";
  return name;
}

std::vector<std::string> speculation_notes(const SpeculationSettings& settings) {
  std::vector<std::string> notes;
  if (is_eagle(settings.algorithm))
    notes.push_back(
        fmt::format("--speculative-algorithm {}: the model's own module makes the drafts, as with "
                    "NEXTN; a draft model would need another flag",
                    settings.algorithm));
  if (settings.eagle_topk == 1)
    notes.emplace_back(
        "--speculative-eagle-topk 1: it changes nothing, since the drafts of an answer are always "
        "one chain");
  return notes;
}

Result<SpeculationChoice> choose_speculation(const ServerSettings& settings,
                                             const ModelConfig& model) {
  const SpeculationSettings& s = settings.speculation;
  HOCKET_TRY(const int asked, drafts_asked(s));
  const std::string algorithm = speculation_named(s.algorithm);
  if (algorithm == "none") {
    if (asked == 0 && s.eagle_topk == 0) return SpeculationChoice{};
    return fail(error(ErrorCode::bad_value,
                      "--speculative-num-steps, --speculative-num-draft-tokens and "
                      "--speculative-eagle-topk change nothing with --speculative-algorithm none")
                    .with_fix("--speculative-algorithm NGRAM")
                    .with_param("speculative-num-steps"));
  }
  if (algorithm != "auto" && algorithm != "NGRAM" && algorithm != "NEXTN")
    return fail(error(ErrorCode::bad_value,
                      "--speculative-algorithm {} is not one of auto, NEXTN, NGRAM, none; draft "
                      "models and EAGLE's heads are not loaded",
                      s.algorithm)
                    .with_param("speculative-algorithm"));
  if (is_eagle(s.algorithm) && !has_module(model))
    return fail(error(ErrorCode::bad_value,
                      "--speculative-algorithm {} is the model's own module here, and {} has none; "
                      "draft models and EAGLE's heads are not loaded",
                      s.algorithm, model.architecture)
                    .with_fix("--speculative-algorithm auto, which is NGRAM then")
                    .with_param("speculative-algorithm"));
  const bool by_module = algorithm == "NEXTN" || (algorithm == "auto" && has_module(model));
  const bool by_text = algorithm != "NEXTN";
  // A module that joins rows of the model only has none of its own to continue from, so each gives
  // one.
  const int most = by_module && !by_text && model.local_mtp
                       ? std::clamp(model.num_mtp_layers, 1, kMaxDrafts)
                       : kMaxDrafts;
  return SpeculationChoice{.max_drafts = asked > 0 ? std::min(asked, most) : most,
                           .fixed = asked > 0 ? std::optional(std::min(asked, most)) : std::nullopt,
                           .by_module = by_module,
                           .by_text = by_text,
                           .algorithm = !by_text     ? "NEXTN"
                                        : !by_module ? "NGRAM"
                                                     : "auto"};
}

// Returns how many tokens of a long prompt are between two kept states, such that all states of a
// full KV cache take half of the slots that running requests leave.
int cached_state_interval(const MemoryPlan& plan, int page_tokens) {
  const int64_t spare = plan.num_states - int64_t{kStatesOfARequest} * plan.num_blocks;
  const int64_t tokens = int64_t{plan.num_pages} * page_tokens;
  if (spare <= 0) return kMaxStateInterval;
  const int64_t wanted = round_up(2 * tokens / spare, kDeltaBlock);
  return static_cast<int>(std::clamp<int64_t>(wanted, kMinStateInterval, kMaxStateInterval));
}

Result<SchedulerOptions> scheduler_options(const ServerSettings& settings, const MemoryPlan& plan,
                                           const EngineInfo& info) {
  const SchedulerSettings& s = settings.scheduler;
  HOCKET_TRY(const SchedulePolicy policy, parse_schedule_policy(s.schedule_policy));
  HOCKET_TRY(const EvictionPolicy eviction, parse_eviction_policy(s.radix_eviction_policy));
  HOCKET_TRY(const PrefillChoice prefill, choose_prefill(settings));
  HOCKET_TRY_VOID(check_useful(s));
  SchedulerOptions options{
      .num_pages = plan.num_pages,
      .page_tokens = info.page_tokens,
      .num_states = plan.num_states,
      .cached_state_interval = cached_state_interval(plan, info.page_tokens),
      .num_window_pages = plan.num_window_pages,
      .window = plan.num_window_pages > 0 ? info.model.window() : VisibleKeys(),
      .max_running_requests = plan.max_running_requests,
      .max_decode_rows = plan.max_decode_rows,
      .max_queued_requests = settings.memory.max_queued_requests,
      .max_queued_tokens = settings.memory.max_queued_tokens,
      .chunk_tokens = plan.chunk_tokens,
      .max_prefill_tokens = plan.max_prefill_tokens,
      .max_chunked_requests = s.max_chunked_requests,
      .prefill_policy = prefill.policy,
      .itl_goal = seconds(s.itl_slo_ms / 1e3),
      .prompt_share = prefill.prompt_share,
      .conservativeness = s.schedule_conservativeness,
      .policy = policy,
      .prefix_cache = !s.disable_radix_cache,
      .cache_whole_answers = caches_whole_answers(info.model, info.prompt_form),
      .answer_begins = info.answer_begins,
      .eviction = eviction,
      .context_length = plan.context_length,
      .eos_ids = info.model.eos_ids,
      .vocab_size = info.model.vocab_size,
      .priorities = priority_options(s),
      .waiting_timeout = seconds(s.waiting_timeout_s),
      .running_timeout = seconds(s.running_timeout_s),
      .session_timeout = seconds(settings.memory.session_timeout_s),
      .prefill_max_requests = s.prefill_max_requests,
      .in_batch = {.max_cached = s.in_batch_prefix_check, .min_common = s.in_batch_prefix_common},
      .max_overtaken = s.max_overtaken,
      .seed = static_cast<uint64_t>(s.schedule_seed)};
  HOCKET_TRY_VOID(check(options));
  return options;
}

}  // namespace hocket
