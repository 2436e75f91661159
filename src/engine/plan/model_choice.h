// Chooses the form of the model from settings and config.json alone. Its sizes follow by a load
// without bytes. Pure, except that it reads the folder. Thread: any.
#pragma once

#include <memory>
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
  DType dtype = DType::bf16;                   // type of activations
  WeightFormat quantize = WeightFormat::bf16;  // int8 or int4, if the files are unquantized
  DType kv_dtype = DType::bf16;
  DType dispatch_dtype = DType::bf16;       // type of rows sent to experts: dtype, or int8
  DType combine_dtype = DType::bf16;        // type of sums sent back: dtype, or int8
  MlaForm prompt_form = MlaForm::expanded;  // decides how prompt tokens attend to latents
  // Ids that open an answer in the chat format; empty: none, or no latents.
  std::vector<TokenId> answer_begins;
  int combine_groups = 1;
  HeldExperts experts;  // this rank's; empty: all
  // Says how each matrix is stored where the configuration cannot: the headers of a GGUF file.
  std::shared_ptr<const WeightSource> headers;

  KvShapes kv_shapes(int page_tokens) const;
  // Return the bytes of one page in all layers without a window, and in those with one.
  int64_t kv_full_page_bytes(int page_tokens) const;
  int64_t kv_window_page_bytes(int page_tokens) const;
  // Returns the part of the first in the last module for multi-token prediction; 0: none is loaded.
  int64_t module_page_bytes(int page_tokens) const;
  WeightLoader::Options loader_options() const;
  // Return the format of the layers' matrices in memory, and in the files, unless config.json makes
  // an exception.
  WeightFormat weight_format() const;
  WeightFormat stored_format() const;
  ScratchNeed scratch_need(int max_rows, int page_tokens) const;
};

// Chooses the form that all ranks share: `experts` is empty. Errors: those of read_hf_config;
// bad_value (a setting that is unknown, or contradicts another).
Result<ModelChoice> choose_model_form(const ServerSettings& settings);

// Loads the model with the experts of `choice`. Errors: those of Model::load.
Result<Model> load_held(const ModelChoice& choice, WeightLoader& loader);

// Loads one expert, numbered in all of its layer, as load_held() does.
ExpertWeights load_expert(const ModelChoice& choice, int layer, int expert, WeightLoader& loader);
// Measures an expert of the layer in which they are largest, and one of the loaded modules; 0 where
// there are none. `source`: as in measure_weights(). Errors: those of Model::load.
struct ExpertBytes {
  int64_t of_layers = 0, of_modules = 0;
};
Result<ExpertBytes> largest_expert_bytes(const ModelChoice& choice, const WeightSource* source);

struct MeasuredWeights {
  int64_t bytes = 0;         // size in memory
  uint64_t fingerprint = 0;  // hash of how they are packed (WeightLoader)
};
// Measures the weights that `choice` holds. `source` may be null: then config.json says how they
// are stored. Errors: those of Model::load.
Result<MeasuredWeights> measure_weights(const ModelChoice& choice, const WeightSource* source);

}  // namespace hocket
