// Forecasts how a machine would serve a model, before anything is loaded: memory by the plan that
// the engine itself makes, speed by the cost of a pass, and the one flag that would help most.
// Reads config.json and nothing else. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/cost.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/stage_estimate.h"

namespace hocket {

struct ForecastInput {
  ServerSettings settings;
  // These sizes are of one rank, as are all figures except the speeds of several ranks.
  int64_t total_bytes = 0, available_bytes = 0;  // bytes of memory
  int num_workers = 1;
  MachineSpeed speed;
  StageLink link;  // between two ranks
  Isa isa = Isa::amx;
};

struct DecodeSpeed {
  int batch = 0;            // batch of each rank
  double tokens_per_s = 0;  // all sequences together, on all ranks
};

struct Forecast {
  ModelChoice choice;
  ModelCost cost;
  int num_ranks = 1;
  // Times of a step's operations, one after the other; nullopt for one rank.
  std::optional<StageEstimate> stages;
  MemoryPlan memory;             // sizes are valid even if it does not fit
  std::optional<Error> refusal;  // error that serve would give; nullopt if it fits
  int64_t fitting_tokens = 0;    // tokens of KV cache for which there is memory
  int largest_context = 0;       // context of every request at the wanted batch
  int largest_batch = 0;         // requests of the whole context
  int kv_len = 0;                // tokens that a decoding sequence holds: half the context
  std::vector<DecodeSpeed> decode;
  int prefill_len = 0;  // tokens of the chunk that prefill speed is for
  double prefill_tokens_per_s = 0;

  bool fits() const { return !refusal; }
  double decode_seconds(int batch, const MachineSpeed& speed) const;
  double prefill_seconds(int tokens, const MachineSpeed& speed) const;
  int64_t total_bytes() const {
    return memory.weight_bytes + memory.work_bytes + memory.state_bytes + memory.kv_bytes +
           memory.index_bytes;
  }
};

// Forecasts for the wanted batch: --max-running-requests, or 1 without it. kv_len 0 means half the
// context. Errors: those of choose_model_form and ModelCost::measure; bad_value. A model that does
// not fit is no error: then `refusal` is set.
Result<Forecast> forecast(const ForecastInput& input, int kv_len = 0);

// A change of flags, found by forecasting again.
struct Advice {
  // Flags such as "--quantization int8"; several if no single one is enough; empty if none helps.
  std::string flags;
  ServerSettings settings;  // with these flags
  bool fits = false;
  int64_t needed_bytes = 0;  // available memory that would be enough
  int context_length = 0;    // tokens of the longest request: here, or in that memory
  int batch = 0;             // batch of the speeds
  double tokens_per_s_before = 0, tokens_per_s = 0;
};

// Returns the best change. If the model does not fit: the mildest single change that makes it fit,
// else several, which may still need more memory. If it fits: the change that raises decode speed
// most, by at least 5 %, at the wanted batch or the part of it that fits; nullopt if no change
// does.
std::optional<Advice> advise(const ForecastInput& input, const Forecast& now);

inline constexpr int kMaxRanksTried = 64;
struct FittingRanks {
  int ranks = 0;
  int context_length = 0;  // tokens of the longest request there
};
// Returns over how many ranks like this one the experts of a model that does not fit have to be
// spread so that it fits, a multiple of `a_host`; nullopt if kMaxRanksTried would not be enough, or
// the model is dense.
std::optional<FittingRanks> fitting_ranks(const ForecastInput& input, const Forecast& now,
                                          int a_host);

}  // namespace hocket
