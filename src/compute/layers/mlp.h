// A dense SwiGLU MLP: norm, MLP, result added to the residual.
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"

namespace hocket {

struct MlpWeights {
  std::span<const float> norm;  // [hidden]
  ExpertWeights mlp;
  int intermediate = 0;
};

// Adds the MLP's result to the residual rows of `half`.
void dense_mlp(Backend& backend, const MlpWeights& weights, float eps, WorkBuffers& work,
               const Half& half);

}  // namespace hocket
