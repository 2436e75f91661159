// The end of a layer whose results pass norms before they are added (ModelConfig::result_norms):
//
//   residual = (residual + norm(norm(shared) + norm(experts))) * scale
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"

namespace hocket {

struct ResultNorms {
  std::span<const float> shared, experts, both;  // [hidden]
  std::span<const float> scale;                  // [1]
};

// Clears the rows of work.results, to which combine_wait() then adds the sums of the experts.
void clear_results(Backend& backend, WorkBuffers& work, const Half& half);
// The results of a half's rows, which are overwritten.
struct Results {
  View<float> shared;  // [rows, hidden]
  const ResultNorms& norms;
  float eps = 0;
};
// Adds them and those in work.results to the residual rows of `half`.
void add_results(Backend& backend, const Results& results, WorkBuffers& work, const Half& half);

}  // namespace hocket
