// What the engine decided at start: sizes, and what it changed by itself. Constant afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine.h"
#include "compute/kernels/attention.h"
#include "core/model_config.h"
#include "core/server_settings.h"

namespace hocket {

// What one rank has.
struct RankInfo {
  int num_workers = 1;
  std::vector<int> cpus;     // that its workers are pinned to, in turn; empty: any
  std::vector<int> experts;  // of every MoE layer, ascending; empty: all
  int max_running_requests = 0;
  int num_pages = 0;
  int64_t max_total_tokens = 0;
  int64_t weight_bytes = 0, kv_bytes = 0, work_bytes = 0;
};

// Sizes are those of all ranks together, but for the context of a request.
struct EngineInfo {
  ModelConfig model;
  GenerationDefaults generation_defaults;
  std::string model_path, served_model_name;
  Isa isa = Isa::ref;
  DType dtype = DType::bf16;                        // of activations
  DType kv_dtype = DType::bf16;                     // of keys and values in their pages
  DType dispatch_dtype = DType::bf16;               // of rows on their way to experts
  WeightFormat weight_format = WeightFormat::bf16;  // of the layers' matrices, where nothing says
                                                    // otherwise
  TokenRole prompt_role = TokenRole::prompt;        // generated: --mla-form absorbed
  int num_workers = 1;
  int combine_groups = 1;
  std::string grammar_backend = "none";  // of structured output: llguidance, none
  std::string why_no_grammar;            // where it is none
  bool overlap_schedule = false;         // a step's results are handled while the next one computes
  int context_length = 0;                // tokens, prompt and answer together
  int max_running_requests = 0;
  int chunk_tokens = 0;  // of prompts; -1: they are never cut
  int num_pages = 0, page_tokens = 0;
  int64_t max_total_tokens = 0;  // num_pages * page_tokens
  int64_t weight_bytes = 0, kv_bytes = 0, work_bytes = 0;
  int num_ranks = 1;
  std::vector<RankInfo> ranks;
  std::string overlap = "none";  // --overlap, as it counts: "auto", "two-batch", "four-phase"
  int num_orders = 0;            // that a step may be played in
  std::string network;  // between ranks, for people: "loopback, 1 Gbit/s, 50 us"; empty: none
  double load_seconds = 0;
  std::vector<SettingChange> changes;
};

// All choices that change a model's numbers, as one name: "bfloat16", "fp8-kv-int8-groups-4",
// "bfloat16-groups-2-dispatch-int8".
std::string form_of(const EngineInfo& info);

// Why grammars cannot be followed, which the log is told too: a token that they name may have no
// logit. Empty if all ids of the tokenizer have one.
std::string tell_tokenizer_misfit(int tokenizer_size, int vocab_size);

}  // namespace hocket
