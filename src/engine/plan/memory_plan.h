// Plans memory from sizes alone, before anything is loaded. Pure, so that it can be tested with
// numbers.
//
//   budget = weights + work buffers + states of delta nets + KV pages, those of window layers apart
//            + indexes of the prefix cache
//
// One request of the whole context must fit in the pages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/machine.h"
#include "base/result.h"
#include "compute/comm/all_to_all.h"
#include "compute/forward/work_buffers.h"
#include "compute/kernels/choose.h"
#include "compute/kv/state_pool.h"
#include "compute/moe/expert_parallel.h"
#include "compute/moe/placement.h"
#include "core/dtype.h"
#include "core/model_config.h"
#include "core/server_settings.h"

namespace hocket {

struct MemoryPlan {
  int context_length = 0;
  int max_running_requests = 0;
  int max_drafts = 0;  // an answer in a step; 0: no speculation
  // All answers in a step, with all their drafts up to kMaxDraftedRows.
  int max_decode_rows = 0;
  int chunk_tokens = 0;  // -1: prompts are never cut
  int max_prefill_tokens = 0;
  int num_pages = 0;
  // Pages of the module for multi-token prediction alone, behind those: for drafts at positions for
  // which the request has no page yet.
  int num_spare_pages = 0;
  int64_t fitting_pages = 0;  // pages for which there is memory; requests may need fewer
  // Models with sliding windows: pages of the window layers, beside one that stays clear.
  int num_window_pages = 0;
  // Models with delta nets: slots of states and of running requests
  // (compute/kernels/delta_state.h).
  int num_states = 0, num_blocks = 0;
  WorkLimits work;
  int64_t window_bytes = 0;  // the part of kv_bytes that window layers take
  int64_t draft_bytes = 0;   // the part of work_bytes for grammars that follow drafts, and look-up
  int64_t moving_bytes = 0;  // the part of work_bytes for experts that are loaded while serving
  int64_t tier_bytes = 0;    // the part of work_bytes for prefixes on their way to and from stores
  // index_bytes: the most that the radix tree takes, and what the indexes of stores take.
  int64_t index_bytes = 0, tree_bytes = 0;  // tree_bytes: its first part
  int64_t max_stored_files = 0;             // in --kv-cache-dir; 0: there is none
  // work_bytes: buffers of passes, scratch of the workers, and draft, moving and tier_bytes.
  int64_t weight_bytes = 0, work_bytes = 0, kv_bytes = 0, state_bytes = 0, budget_bytes = 0;
  std::vector<SettingChange> changes;
};

struct ModelChoice;

struct MemoryPlanInput {
  const ServerSettings& settings;
  const ModelConfig& model;
  DType dtype = DType::bf16, dispatch_dtype = DType::bf16, combine_dtype = DType::bf16;
  int64_t weight_bytes = 0;
  int64_t moving_bytes = 0;       // experts of a layer that are loaded while serving; 0: none are
  int64_t page_bytes = 0;         // one page in all layers, window layers excepted
  int64_t window_page_bytes = 0;  // one page in all window layers; 0: the model has none
  int64_t module_page_bytes = 0;  // one page in one of the modules that are loaded; 0: none are
  int64_t max_stored_bytes = 0;   // size of all files in --kv-cache-dir (folder_limit.h)
  // The first two in pages of PageLayout::kMaxTokens, the largest that a peer may have.
  int64_t peer_page_bytes = 0, peer_window_page_bytes = 0;
  int64_t total_bytes = 0, available_bytes = 0;
  ScratchNeed scratch;  // its max_rows is set by the plan
  int num_workers = 0;  // 0: no scratch
  // The ranks of experts; null: one rank.
  const Placements* placement = nullptr;
  int combine_groups = 1;
  Isa isa = Isa::amx;  // sets the default chunk: long enough to keep it busy
};
// Returns the input for a model's form and pages; the caller adds its weights, the machine and the
// ranks. The arguments outlive the input.
MemoryPlanInput memory_plan_input(const ServerSettings& settings, const ModelChoice& choice);

// Default tokens of a prompt's chunk. Without tiles, more rows than kLaneChunk make the products no
// faster, and shorter chunks give prompts their first tokens sooner; tiles, and exchanges between
// ranks, need more.
inline constexpr int kTileChunk = 2048, kLaneChunk = 512;

// Share of the available memory that is planned if --mem-fraction-static is not given.
inline constexpr double kDefaultMemoryShare = 0.85;
// Memory of states as a multiple of that of pages, if --mamba-full-memory-ratio is not given.
inline constexpr double kDefaultStateRatio = 0.9;
// State slots that are planned for each running request: its own, and the one that it began with.
// It takes more while others are free.
inline constexpr int kStatesOfARequest = 2;
// Tokens of the KV cache for which the prefix cache can keep one window, unless twice its own
// length is more, if --swa-full-tokens-ratio is not given.
inline constexpr int kTokensOfAWindow = 2048;
inline constexpr int kDefaultRunningRequests = 128;
// A step of answers has at most as many rows with drafts, because each row costs logits: with 64
// answers two drafts of each gain, and more hardly do.
inline constexpr int kMaxDraftedRows = 256;
// Most bytes of the matchers that find drafts which grammars forbid, of all answers of a rank.
inline constexpr int64_t kDraftChecksBytes = 128 << 20;
inline constexpr int kLogitsRows = 128;  // rows of logits computed at a time

// Returns the most rows that the experts of a rank may get in a step: those of all ranks.
int max_rows_of_ranks(const WorkLimits& limits);

// Returns the options of the exchange of rows and agreements: slots for the longest messages.
AllToAll::Options exchange_options(const ExpertParallelDispatcher::Options& dispatcher);
// Bytes of an agreement on a step (lockstep.h).
inline constexpr size_t kAgreementBytes = 288;

// Plans all sizes except pages and what depends on them, even if the model does not fit. Errors:
// bad_value (settings that contradict each other).
Result<MemoryPlan> size_memory(const MemoryPlanInput& input);

// Returns the number of window pages beside `pages` other pages.
int64_t window_pages_for(const MemoryPlanInput& input, const MemoryPlan& plan, int64_t pages);
// Returns the bytes of both.
int64_t kv_bytes_of(const MemoryPlanInput& input, const MemoryPlan& plan, int64_t pages);

// Plans everything. Errors: those of size_memory; out_of_memory (weights do not fit),
// kv_does_not_fit.
Result<MemoryPlan> plan_memory(const MemoryPlanInput& input);

}  // namespace hocket
