// What will be computed, decided from settings and config.json alone: the form of the model. Its
// sizes follow by a load without bytes. Pure but for reading the folder.   Thread: any.
#pragma once

#include <vector>

#include "base/result.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/choose.h"
#include "compute/models/model.h"
#include "compute/weights/loader.h"
#include "core/model_config.h"
#include "core/server_settings.h"

namespace hocket {

struct ModelChoice {
  ModelConfig model;
  DType dtype = DType::bf16;                   // of activations
  WeightFormat quantize = WeightFormat::bf16;  // int8, int4: of weights the files hold unquantized
  DType kv_dtype = DType::bf16;
  DType dispatch_dtype = DType::bf16;         // of rows on their way to experts: dtype, or int8
  TokenRole prompt_role = TokenRole::prompt;  // how prompt tokens attend to latents
  int combine_groups = 1;
  std::vector<int> experts;  // of a MoE layer's that this rank holds, ascending; empty: all

  KvShape kv_shape(int page_tokens) const;
  WeightLoader::Options loader_options() const;
  // Of the layers' matrices, where config.json makes no exception.
  WeightFormat weight_format() const;
  ScratchNeed scratch_need(int max_rows, int page_tokens) const;
};

// Of all ranks alike: `experts` is empty.
// Errors: those of read_hf_config; bad_value (a setting that is not known, or contradicts another).
Result<ModelChoice> choose_model_form(const ServerSettings& settings);

// The model with the experts of `choice`. Errors: those of Model::load.
Result<Model> load_held(const ModelChoice& choice, WeightLoader& loader);

struct MeasuredWeights {
  int64_t bytes = 0;         // in memory
  uint64_t fingerprint = 0;  // of how they are packed (WeightLoader)
};
// The weights that `choice` holds. `source` may be null: then the config says how they are stored.
// Errors: those of Model::load.
Result<MeasuredWeights> measure_weights(const ModelChoice& choice, const WeightSource* source);

}  // namespace hocket
