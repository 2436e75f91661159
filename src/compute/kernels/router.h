// Chooses experts. Each expert gets a score (softmax over all of them, or sigmoid of each) and a
// choice score = score + correction bias, if the model has one (NaN and -inf count as the lowest
// finite number). With groups, only the experts of the best top_groups groups stay (group score:
// best choice score, or sum of the two best; ties: lower group). The k largest choice scores win
// (ties: lower id). Weights are their scores, divided by their sum (in slot order, plus 1e-20 for
// sigmoid) if norm_topk_prob is set, times the scaling factor, times the expert's own scale if
// there are scales. A row with a NaN logit gets weights of NaN, and still k different experts.
//
// Shapes: logits [rows, E] fp32; bias, scales [E] or empty; ids, weights [rows, k], slots in
// falling choice score.   Errors: none; shapes are checked.   Thread: engine; workers split rows.
// Source: docs/contracts/arithmetic.md, "experts".
#pragma once

#include <span>

#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

struct ExpertChoice {
  View<const float> logits;
  std::span<const float> bias;
  std::span<const float> scales = {};
  const MoeConfig& moe;
  View<int32_t> ids;
  View<float> weights;
};
void select_experts(Backend& backend, const ExpertChoice& choice);

}  // namespace hocket
