// What serving a model would be like on a machine, before anything is loaded: memory by the plan
// that the engine itself makes, speed by the cost of a pass, and the one flag that would help most.
// Reads config.json and nothing else.   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/forecast/cost.h"
#include "engine/forecast/memory_plan.h"
#include "engine/forecast/stage_forecast.h"

namespace hocket {

struct ForecastQuestion {
  ServerSettings settings;
  // Of a rank, as are all figures but the speeds of several.
  int64_t total_bytes = 0, available_bytes = 0;  // of memory
  int num_workers = 1;
  MachineSpeed speed;
  Isa isa = Isa::amx;
};

struct DecodeSpeed {
  int batch = 0;            // of each rank
  double tokens_per_s = 0;  // of all sequences together, on all ranks
};

struct Forecast {
  ModelChoice choice;
  ModelCost cost;
  int num_ranks = 1;
  // Several ranks only: what they take for a step, one operation after the other.
  std::optional<StageForecast> stages;
  MemoryPlan memory;             // sizes hold even where it does not fit
  std::optional<Error> refusal;  // what serve would say; none: it fits
  int64_t fitting_tokens = 0;    // of KV cache, for which there is memory
  int largest_context = 0;       // of every request, at the wanted batch
  int largest_batch = 0;         // of requests of the whole context
  int kv_len = 0;                // tokens that a decoding sequence holds here: half the context
  std::vector<DecodeSpeed> decode;
  int prefill_len = 0;  // tokens of the chunk that stands for prompts
  double prefill_tokens_per_s = 0;

  bool fits() const { return !refusal; }
  double decode_seconds(int batch, const MachineSpeed& speed) const;
  double prefill_seconds(int tokens, const MachineSpeed& speed) const;
  int64_t total_bytes() const { return memory.weight_bytes + memory.work_bytes + memory.kv_bytes; }
};

// The wanted batch is --max-running-requests, or 1 without it. kv_len 0: half the context.
// Errors: those of choose_model_form and ModelCost::measure; bad_value. That it does not fit is no
// error but an answer.
Result<Forecast> forecast(const ForecastQuestion& question, int kv_len = 0);

// What to change, found by forecasting again.
struct Advice {
  // "--quantization int8"; several only where no single one is enough; empty where none helps.
  std::string flags;
  bool fits = false;
  int64_t needed_bytes = 0;  // of available memory
  int batch = 0;             // at which the speeds hold
  double tokens_per_s_before = 0, tokens_per_s = 0;
};

// Where the model does not fit: the mildest single change that makes it fit, else several, which
// may still need more memory. Else the change that raises decoding most, by 5 % at least, at the
// wanted batch or what of it fits; none where no change does.
std::optional<Advice> advise(const ForecastQuestion& question, const Forecast& now);

}  // namespace hocket
