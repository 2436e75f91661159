// Makes the sampling parameters of a request that sets none.   Thread: any.
#pragma once

#include "core/model_config.h"
#include "core/sampling_params.h"

namespace hocket {

// Returns the model's own defaults where it has any, and hocket's for the others. The seed is not
// set.
inline SamplingParams default_sampling(const GenerationDefaults& defaults) {
  SamplingParams s;
  s.temperature = defaults.temperature.value_or(s.temperature);
  s.top_p = defaults.top_p.value_or(s.top_p);
  s.top_k = defaults.top_k.value_or(s.top_k);
  s.min_p = defaults.min_p.value_or(s.min_p);
  s.repetition_penalty = defaults.repetition_penalty.value_or(s.repetition_penalty);
  return s;
}

}  // namespace hocket
