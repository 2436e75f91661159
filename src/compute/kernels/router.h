// Expert choice: softmax over all experts in fp32, the k largest (ties: lower id), weights those
// probabilities, divided by their sum (in slot order) where the model says so.
// Shapes: logits [rows, E] fp32; ids, weights [rows, k], slots in falling probability.
// Thread: engine; workers split rows.
#pragma once

#include "compute/kernels/backend.h"

namespace hocket {

enum class TopKWeights : uint8_t { plain, normalised };

void select_top_k(Backend& backend, View<const float> logits, TopKWeights kind, View<int32_t> ids,
                  View<float> weights);

}  // namespace hocket
