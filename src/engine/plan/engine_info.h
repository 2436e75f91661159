// The sizes that the engine chose at start, and the settings that it changed. Constant afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine.h"
#include "compute/kernels/attention.h"
#include "core/model_config.h"
#include "core/server_settings.h"

namespace hocket {

// The resources of one rank.
struct RankInfo {
  int num_workers = 1;
  std::vector<int> cpus;     // cpus that its workers are pinned to, in turn; empty: any
  std::vector<int> experts;  // its experts in every MoE layer, ascending; empty: all
  int max_running_requests = 0;
  int num_pages = 0;
  int64_t max_total_tokens = 0;
  int64_t weight_bytes = 0, kv_bytes = 0, window_bytes = 0, state_bytes = 0, work_bytes = 0;
  int64_t index_bytes = 0;  // the most that the indexes of the prefix cache take
};

// The effect of --overlap-schedule. measured: steps overlap while that was measured to be faster.
enum class OverlapSchedule : uint8_t { off, on, measured };

// The drafts that steps have in effect: none if max_drafts is 0, whatever the algorithm was.
struct SpeculationInfo {
  std::string algorithm = "none";
  int max_drafts = 0;       // an answer in a step
  int64_t draft_bytes = 0;  // the part of work_bytes for grammars that follow drafts, and look-up
};

// The sizes add up all ranks, except context_length.
struct EngineInfo {
  ModelConfig model;
  GenerationDefaults generation_defaults;
  std::string model_path, served_model_name;
  Isa isa = Isa::ref;
  DType dtype = DType::bf16;           // type of activations
  DType kv_dtype = DType::bf16;        // type of keys and values in their pages
  DType dispatch_dtype = DType::bf16;  // type of rows that are sent to experts
  DType combine_dtype = DType::bf16;   // type of the returned sums
  // The format of the layers' matrices, except those that have their own.
  WeightFormat weight_format = WeightFormat::bf16;
  MlaForm prompt_form = MlaForm::expanded;  // `absorbed` with --mla-form absorbed
  // Ids that open an answer in the chat format; empty: none, or no latents.
  std::vector<TokenId> answer_begins;
  int num_workers = 1;
  int combine_groups = 1;
  std::string grammar_backend = "none";  // "llguidance" or "none"; makes structured output
  std::string why_no_grammar;            // set if the backend is "none"
  // A step's results are handled while the next one computes.
  OverlapSchedule overlap_schedule = OverlapSchedule::off;
  SpeculationInfo speculation;
  int context_length = 0;  // tokens, prompt and answer together
  int max_running_requests = 0;
  int chunk_tokens = 0;  // most tokens in a chunk; -1: prompts are never cut
  int num_pages = 0, page_tokens = 0;
  int64_t max_total_tokens = 0;  // num_pages * page_tokens
  // window_bytes: the part of kv_bytes that window layers take.
  int64_t weight_bytes = 0, kv_bytes = 0, window_bytes = 0, state_bytes = 0, work_bytes = 0;
  int64_t index_bytes = 0;   // the most that the indexes of the prefix cache take
  int num_window_pages = 0;  // pages of window layers; models with sliding windows only
  int num_states = 0;        // slots of states; models with delta nets only
  int num_ranks = 1;
  std::vector<RankInfo> ranks;
  std::string overlap = "none";  // --overlap as it counts: "auto", "two-batch", "four-phase"
  int num_orders = 0;            // number of orders that a step may be played in
  std::string network;           // "loopback, 1 Gbit/s, 50 us", for people; empty if one rank
  double load_seconds = 0;
  std::vector<SettingChange> changes;
  // Defaults that cost something, with the flag that changes them; printed as `note: --x a: ...`.
  std::vector<std::string> notes;
};

// Names all choices that change a model's numbers: "bfloat16", "fp8-kv-int8-groups-4",
// "bfloat16-groups-2-dispatch-int8".
std::string form_of(const EngineInfo& info);

// Returns, after logging it, why grammars cannot be used: some ids of the tokenizer have no logit.
// Empty if all have one.
std::string tokenizer_misfit(int tokenizer_size, int vocab_size);

}  // namespace hocket
