#include "engine/plan/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/show_bytes.h"
#include "compute/kv/page_layout.h"
#include "engine/plan/model_choice.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/plan/state_plan.h"
#include "engine/plan/tier_plan.h"
#include "policy/cache/page_allocator.h"
#include "policy/scheduler/scheduler.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {
namespace {

// This is the end of the flag's range.
constexpr double kMaxStateRatio = 1e9;

Result<void> check_settings(const ServerSettings& s) {
  const int page = s.memory.page_size;
  if (page < 1 || page > 128 || (page & (page - 1)) != 0)
    return fail(error(ErrorCode::bad_value,
                      "--page-size {} is not one of 1, 2, 4, 8, 16, 32, 64, 128", page)
                    .with_param("page-size"));
  const int chunk = s.scheduler.chunked_prefill_size;
  if (chunk != -1 && chunk != 0 && chunk < page)
    return fail(error(ErrorCode::bad_value,
                      "--chunked-prefill-size {} is below the page size {}: no chunk could be cut",
                      chunk, page)
                    .with_fix(fmt::format("--chunked-prefill-size {} or more, 0 or -1", page)));
  if (chunk != -1 && s.scheduler.max_prefill_tokens < page)
    return fail(error(ErrorCode::bad_value,
                      "--max-prefill-tokens {} is below the page size {}: no chunk could be cut",
                      s.scheduler.max_prefill_tokens, page)
                    .with_fix(fmt::format("--max-prefill-tokens {} or more", page)));
  if (!(s.memory.mamba_full_memory_ratio >= 0 &&
        s.memory.mamba_full_memory_ratio <= kMaxStateRatio))
    return fail(error(ErrorCode::bad_value,
                      "--mamba-full-memory-ratio is {}, must be between 0 and {:.0f}",
                      s.memory.mamba_full_memory_ratio, kMaxStateRatio)
                    .with_fix("--mamba-full-memory-ratio 0")
                    .with_param("mamba-full-memory-ratio"));
  if (!(s.memory.swa_full_tokens_ratio >= 0 && s.memory.swa_full_tokens_ratio <= 1))
    return fail(error(ErrorCode::bad_value, "--swa-full-tokens-ratio {} is not in 0 (planned) to 1",
                      s.memory.swa_full_tokens_ratio)
                    .with_fix("--swa-full-tokens-ratio 0")
                    .with_param("swa-full-tokens-ratio"));
  if (s.memory.mem_fraction_static < 0 || s.memory.mem_fraction_static > 1)
    return fail(ErrorCode::bad_value, "--mem-fraction-static {} is not in (0, 1]",
                s.memory.mem_fraction_static);
  return {};
}

WorkLimits work_limits(const MemoryPlan& plan, PrefillPolicy policy) {
  const int prefill_rows = plan.chunk_tokens > 0
                               ? std::min(plan.chunk_tokens, plan.max_prefill_tokens)
                               : std::max(plan.max_prefill_tokens, plan.context_length);
  const bool mixes = policy != PrefillPolicy::prefill_first;
  const int rows = std::max(prefill_rows, 1) + (mixes ? plan.max_decode_rows : 0);
  const int max_rows = std::max(rows, plan.max_decode_rows);
  return {.max_rows = max_rows,
          .max_output_rows = max_rows,
          .max_logits_rows = std::min(kLogitsRows, max_rows)};
}

int64_t exchange_bytes(const MemoryPlanInput& q, const MemoryPlan& plan) {
  if (q.placement == nullptr) return 0;
  const AllToAll::Options options =
      exchange_options({.model = q.model,
                        .dtype = q.dtype,
                        .placement = *q.placement,
                        .combine_groups = q.combine_groups,
                        .any_placement = q.settings.parallel.moves_experts(),
                        .limits = plan.work});
  return static_cast<int64_t>(AllToAll::bytes_for(q.placement->first().num_ranks(), options));
}

constexpr int64_t kMaxPoolBytes = int64_t{1} << 60;

// Returns the most pages whose keys and values, in all layers, and whose tree take at most `bytes`.
int64_t max_pages_in(const MemoryPlanInput& q, const MemoryPlan& plan, int64_t bytes) {
  if (bytes <= 0) return 0;
  // Window pages are at most as many as pages, so no sum of the search overflows.
  int64_t fits = 0, too_many = bytes / q.page_bytes + 1;
  if (q.window_page_bytes > 0) too_many = std::min(too_many, kMaxPoolBytes / q.window_page_bytes);
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const int64_t needed = kv_bytes_of(q, plan, middle) + tree_bytes_of(q, plan, middle);
    (needed <= bytes ? fits : too_many) = middle;
  }
  return fits;
}

// Names the memory that is not left for pages.
std::string taken(const MemoryPlan& plan) {
  const std::string states =
      plan.state_bytes > 0 ? fmt::format(" + states {}", show_bytes(plan.state_bytes)) : "";
  const std::string indexes =
      plan.index_bytes > 0 ? fmt::format(" + indexes {}", show_bytes(plan.index_bytes)) : "";
  return fmt::format("weights {} + work buffers {}{}{}", show_bytes(plan.weight_bytes),
                     show_bytes(plan.work_bytes), states, indexes);
}

// Says which ratios have no layers whose memory they could plan.
void note_needless_ratios(const MemoryPlanInput& q, MemoryPlan& plan) {
  const auto note = [&](const char* flag, double ratio, bool is_used, const char* why) {
    if (ratio > 0 && !is_used)
      plan.changes.push_back(
          {.flag = flag, .from = fmt::format("{}", ratio), .to = "0", .why = why});
  };
  note("--mamba-full-memory-ratio", q.settings.memory.mamba_full_memory_ratio,
       q.model.num_linear_layers() > 0, "the model has no linear attention, so it has no states");
  note("--swa-full-tokens-ratio", q.settings.memory.swa_full_tokens_ratio, q.window_page_bytes > 0,
       "no layer of the model gives up the pages behind a window");
}

// Says that requests need more pages of window layers than the ratio gives.
void note_raised_ratio(const MemoryPlanInput& q, MemoryPlan& plan) {
  const double asked = q.settings.memory.swa_full_tokens_ratio;
  if (asked == 0 || q.window_page_bytes == 0) return;
  const auto wanted = static_cast<int>(std::ceil(asked * plan.num_pages));
  if (plan.num_window_pages > wanted)
    plan.changes.push_back(
        {.flag = "--swa-full-tokens-ratio",
         .from = fmt::format("{}", asked),
         .to = fmt::format("{:.3g}", static_cast<double>(plan.num_window_pages) / plan.num_pages),
         .why = fmt::format("requests need {} pages of window layers, and the ratio gives {}",
                            plan.num_window_pages, wanted)});
}

// Says how many requests the pages of window layers hold beside a chunk of a prompt.
void note_few_windows(const MemoryPlanInput& q, MemoryPlan& plan) {
  if (q.settings.memory.swa_full_tokens_ratio == 0 || q.window_page_bytes == 0) return;
  const SchedulerOptions options{.page_tokens = q.settings.memory.page_size,
                                 .window = q.model.window()};
  const int rows = plan.chunk_tokens < 0 ? plan.max_prefill_tokens
                                         : std::min(plan.chunk_tokens, plan.max_prefill_tokens);
  const int remaining = plan.num_window_pages - pages_for(rows, options.page_tokens);
  const int held = std::max(0, remaining) / window_pages_of_request(options);
  if (plan.num_window_pages < plan.num_pages && held < plan.max_running_requests)
    plan.changes.push_back(
        {.flag = "requests that run beside a chunk of a prompt",
         .from = std::to_string(plan.max_running_requests),
         .to = std::to_string(held),
         .why = fmt::format("--swa-full-tokens-ratio gives {} window pages; while more requests "
                            "run, chunks are shorter and prompts wait",
                            plan.num_window_pages)});
}

// Returns the largest context, a multiple of 1024, that `pages` can hold for one request.
int fitting_context(int64_t pages, int page_tokens) {
  return static_cast<int>(std::max<int64_t>(0, pages) * page_tokens / 1024 * 1024);
}

// Says that layers with chunks keep all tokens, and why.
void note_kept_chunks(const MemoryPlanInput& q, MemoryPlan& plan) {
  if (!q.model.keeps_chunks) return;
  plan.changes.push_back(
      {.flag = "pages of layers with chunks",
       .from = "given up behind each chunk",
       .to = "kept for all tokens",
       .why =
           fmt::format("each prefix in --kv-cache-dir, a store or a peer would take {} tokens of "
                       "these layers, however short it is",
                       q.model.local.visible.chunk)});
}

// Notes each flag of drafts that is not followed as it was asked.
void note_drafts(const SpeculationSettings& asked, const SpeculationChoice& choice,
                 MemoryPlan& plan) {
  // The other flag counts the token before the drafts, too.
  const int more = asked.num_steps > 0 ? 0 : 1;
  const int drafts = more == 0 ? asked.num_steps : asked.num_draft_tokens - more;
  if (drafts > choice.max_drafts)
    plan.changes.push_back(
        {.flag = more == 0 ? "--speculative-num-steps" : "--speculative-num-draft-tokens",
         .from = std::to_string(drafts + more),
         .to = std::to_string(choice.max_drafts + more),
         .why = fmt::format("the model has {} modules, which read the model's rows only, so each "
                            "guesses one token",
                            choice.max_drafts)});
}

}  // namespace

AllToAll::Options exchange_options(const ExpertParallelDispatcher::Options& dispatcher) {
  AllToAll::Options options{.max_bytes = ExpertParallelDispatcher::max_bytes(dispatcher)};
  options.max_bytes[0][static_cast<size_t>(MessageKind::agree)] = kAgreementBytes;
  return options;
}

int max_rows_of_ranks(const WorkLimits& limits) {
  return limits.max_rows * std::max(1, limits.exchange.num_ranks);
}

// A request needs its window and a page while it decodes, and a prompt the rows of a chunk beside
// them; the remaining pages serve the prefix cache. More pages than the other layers have are never
// of use.
int64_t window_pages_for(const MemoryPlanInput& q, const MemoryPlan& plan, int64_t pages) {
  if (q.window_page_bytes == 0) return 0;
  const SchedulerOptions options{.page_tokens = q.settings.memory.page_size,
                                 .window = q.model.window()};
  const int64_t request = window_pages_of_request(options);
  const bool whole = plan.chunk_tokens < 0;
  int64_t least = 2 * request;
  if (whole) least = std::max<int64_t>(least, pages_for(plan.context_length, options.page_tokens));
  const double asked = q.settings.memory.swa_full_tokens_ratio;
  int64_t wanted = static_cast<int64_t>(std::ceil(asked * static_cast<double>(pages)));
  if (asked == 0) {
    const int64_t apart =
        std::max<int64_t>(kTokensOfAWindow, int64_t{2} * options.window.max_keys());
    const int64_t kept = pages * options.page_tokens / apart + 1;
    const int rows = whole ? 0 : std::min(plan.chunk_tokens, plan.max_prefill_tokens);
    wanted = (plan.max_running_requests + kept) * request + pages_for(rows, options.page_tokens);
  }
  return std::min(pages, std::max(least, wanted));
}

int64_t kv_bytes_of(const MemoryPlanInput& q, const MemoryPlan& plan, int64_t pages) {
  const int64_t windows =
      q.window_page_bytes > 0 ? window_pages_for(q, plan, pages) + 1 : int64_t{0};
  return pages * q.page_bytes + windows * q.window_page_bytes +
         plan.num_spare_pages * q.module_page_bytes;
}

MemoryPlanInput memory_plan_input(const ServerSettings& settings, const ModelChoice& choice) {
  const int page_tokens = settings.memory.page_size;
  return {.settings = settings,
          .model = choice.model,
          .dtype = choice.dtype,
          .dispatch_dtype = choice.dispatch_dtype,
          .combine_dtype = choice.combine_dtype,
          .page_bytes = choice.kv_full_page_bytes(page_tokens),
          .window_page_bytes = choice.kv_window_page_bytes(page_tokens),
          .module_page_bytes = choice.module_page_bytes(page_tokens),
          .peer_page_bytes = choice.kv_full_page_bytes(PageLayout::kMaxTokens),
          .peer_window_page_bytes = choice.kv_window_page_bytes(PageLayout::kMaxTokens),
          .scratch = choice.scratch_need(0, page_tokens),
          .placement = nullptr,
          .combine_groups = choice.combine_groups};
}

Result<MemoryPlan> size_memory(const MemoryPlanInput& q) {
  const ServerSettings& s = q.settings;
  HOCKET_TRY_VOID(check_settings(s));
  HOCKET_TRY(const PrefillChoice prefill, choose_prefill(s));
  HOCKET_TRY(const SpeculationChoice speculation, choose_speculation(s, q.model));
  const int asked = s.model.context_length;
  if (asked > q.model.max_position_embeddings)
    return fail(error(ErrorCode::bad_value,
                      "--context-length {} is beyond the {} positions of the model", asked,
                      q.model.max_position_embeddings)
                    .with_fix(fmt::format("--context-length {}", q.model.max_position_embeddings)));

  MemoryPlan plan;
  plan.weight_bytes = q.weight_bytes;
  plan.context_length = asked > 0 ? asked : q.model.max_position_embeddings;
  plan.max_running_requests =
      s.memory.max_running_requests > 0 ? s.memory.max_running_requests : kDefaultRunningRequests;
  plan.max_drafts = speculation.max_drafts;
  const int drafted = std::min(plan.max_running_requests, kMaxDraftedRows) * (1 + plan.max_drafts);
  plan.max_decode_rows = std::max(plan.max_running_requests, std::min(kMaxDraftedRows, drafted));
  note_drafts(s.speculation, speculation, plan);
  plan.chunk_tokens = s.scheduler.chunked_prefill_size != 0 ? s.scheduler.chunked_prefill_size
                      : q.isa >= Isa::amx || q.placement != nullptr ? kTileChunk
                                                                    : kLaneChunk;
  plan.max_prefill_tokens = s.scheduler.max_prefill_tokens;
  plan.work = work_limits(plan, prefill.policy);
  if (q.model.local_mtp && q.model.num_mtp_loaded > 1)
    plan.work.max_kept_rows = plan.max_running_requests * (q.model.num_mtp_loaded - 1);
  plan.work.int8_dispatch = q.dispatch_dtype == DType::int8;
  plan.work.int8_combine = q.combine_dtype == DType::int8;
  if (q.placement != nullptr)
    plan.work.exchange = ExpertParallelDispatcher::exchange_limits(
        *q.placement, std::min(plan.max_decode_rows, plan.work.max_rows));
  plan.work_bytes = WorkBuffers::bytes_for(q.model, q.dtype, plan.work) + exchange_bytes(q, plan);
  if (plan.max_drafts > 0 && s.model.grammar_backend != "none")
    plan.draft_bytes = kDraftChecksBytes;
  if (speculation.by_text)
    plan.draft_bytes += static_cast<int64_t>(NgramDrafter::bytes_per_seat(plan.context_length)) *
                        plan.max_running_requests;
  plan.moving_bytes = q.moving_bytes;
  plan.budget_bytes =
      static_cast<int64_t>(s.memory.mem_fraction_static > 0
                               ? s.memory.mem_fraction_static * static_cast<double>(q.total_bytes)
                               : kDefaultMemoryShare * static_cast<double>(q.available_bytes));
  plan_tier(q, plan);
  plan.work_bytes += plan.draft_bytes + plan.moving_bytes + plan.tier_bytes;
  if (q.num_workers > 0) {
    ScratchNeed scratch = q.scratch;
    scratch.max_rows = max_rows_of_ranks(plan.work);
    plan.work_bytes += q.num_workers * scratch_bytes_for(scratch);
  }
  note_needless_ratios(q, plan);
  note_kept_chunks(q, plan);
  plan_states(q, plan);
  if (q.module_page_bytes > 0 && plan.max_drafts > 1 && !q.model.local_mtp)
    plan.num_spare_pages =
        plan.max_running_requests * pages_for(plan.max_drafts - 1, s.memory.page_size);
  const int64_t remaining =
      plan.budget_bytes - plan.weight_bytes - plan.work_bytes - plan.state_bytes - plan.index_bytes;
  plan.fitting_pages = max_pages_in(q, plan, remaining);
  return plan;
}

Result<MemoryPlan> plan_memory(const MemoryPlanInput& q) {
  HOCKET_TRY(MemoryPlan plan, size_memory(q));
  const ServerSettings& s = q.settings;
  const int page_tokens = s.memory.page_size;
  const int64_t remaining =
      plan.budget_bytes - plan.weight_bytes - plan.work_bytes - plan.state_bytes - plan.index_bytes;
  if (plan.state_bytes > 0 && plan.num_states == 0) return fail(no_room_for_states(q, plan));
  if (plan.fitting_pages == 0)
    return fail(error(ErrorCode::out_of_memory,
                      "the model does not fit\n  {} of {} leave no room "
                      "for a page of the KV cache",
                      taken(plan), show_bytes(plan.budget_bytes))
                    .with_fix("--quantization int4 | --chunked-prefill-size 512" +
                              smaller_index(q, plan) +
                              " | a larger --mem-fraction-static | "
                              "more memory (hocket plan compares them)"));

  int64_t wanted_tokens = int64_t{plan.max_running_requests} * plan.context_length;
  if (s.memory.max_total_tokens > 0) wanted_tokens = s.memory.max_total_tokens;
  const int64_t wanted_pages =
      std::min<int64_t>((wanted_tokens + page_tokens - 1) / page_tokens, 1 << 30);
  const int64_t pages = std::min(plan.fitting_pages, wanted_pages);
  if (s.memory.max_total_tokens > 0 && plan.fitting_pages < wanted_pages)
    return fail(
        error(ErrorCode::kv_does_not_fit,
              "--max-total-tokens {} does not fit\n  {} of {} "
              "leave {}, room for {} tokens",
              s.memory.max_total_tokens, taken(plan), show_bytes(plan.budget_bytes),
              show_bytes(remaining), plan.fitting_pages * page_tokens)
            .with_fix(fmt::format("--max-total-tokens {}", plan.fitting_pages * page_tokens)));

  const int64_t one_request = pages_for(plan.context_length, page_tokens);
  if (pages < one_request) {
    const int fitting = fitting_context(pages, page_tokens);
    const bool is_refused = s.model.context_length > 0 || fitting < 1024;
    if (is_refused && wanted_pages < one_request && one_request <= plan.fitting_pages)
      return fail(
          error(ErrorCode::kv_does_not_fit, "--max-total-tokens {} holds no request of {} tokens",
                s.memory.max_total_tokens, plan.context_length)
              .with_param("max-total-tokens")
              .with_fix(fmt::format("--max-total-tokens {} | --context-length {}",
                                    one_request * page_tokens, std::max(fitting, page_tokens))));
    if (is_refused)
      return fail(
          error(ErrorCode::kv_does_not_fit,
                "the KV cache does not fit\n  {} of {} leave {}; "
                "one {}-token request needs {}",
                taken(plan), show_bytes(plan.budget_bytes), show_bytes(remaining),
                plan.context_length, show_bytes(kv_bytes_of(q, plan, one_request)))
              .with_fix(fmt::format("--context-length {} | --kv-cache-dtype int8{} | a larger "
                                    "--mem-fraction-static (hocket plan compares them)",
                                    std::max(fitting, page_tokens), smaller_index(q, plan))));
    plan.changes.push_back(
        {.flag = "--context-length",
         .from = std::to_string(plan.context_length),
         .to = std::to_string(fitting),
         .why = fmt::format("the KV cache holds {} tokens", pages * page_tokens)});
    plan.context_length = fitting;
  }
  plan.num_pages = static_cast<int>(pages);
  plan.kv_bytes = kv_bytes_of(q, plan, pages);
  plan.tree_bytes = tree_bytes_of(q, plan, pages);
  plan.index_bytes += plan.tree_bytes;
  plan.window_bytes =
      plan.kv_bytes - pages * q.page_bytes - plan.num_spare_pages * q.module_page_bytes;
  plan.num_window_pages = static_cast<int>(window_pages_for(q, plan, pages));
  note_raised_ratio(q, plan);
  note_few_windows(q, plan);
  return plan;
}

}  // namespace hocket
