// What a model weighs, and what its passes read and compute: from config.json alone, by a load
// without bytes. `hocket plan` foretells with it, `hocket bench one-batch` compares with it.
// Pure values.   Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "compute/models/family.h"
#include "compute/overlap/op.h"
#include "engine/forecast/model_choice.h"

namespace hocket {

enum class WeightPart : uint8_t {
  embedding,
  attention,
  dense_mlp,
  experts,
  shared_experts,
  gate,
  head,
  norms,  // and biases: all that is no matrix
};
inline constexpr int kNumWeightParts = 8;
std::string_view weight_part_name(WeightPart part);

struct PartSize {
  int64_t bytes = 0;                   // in memory, padding, scales and zero points counted
  int64_t parameters = 0;              // as publishers count
  std::optional<WeightFormat> format;  // none: several, or nothing there
};

// One forward pass in numbers.
struct PassShape {
  double rows = 0;
  double experts_hit = 0;  // distinct ones, summed over layers
  double kv_tokens = 0;    // keys read, summed over sequences
  double pairs = 0;        // queries times the keys that each sees, of one layer
  double outputs = 0;      // rows of logits
  TokenRole role = TokenRole::prompt;
};

// Additions and multiplications, by what multiplies.
struct Operations {
  double floats = 0;    // bf16, fp32 and attention
  double fp8 = 0;       // widened on the way
  double integers = 0;  // int8 and int4 weights

  double all() const { return floats + fp8 + integers; }
};

// Of one operation, in all layers that have it. Those of transfers are empty.
struct StageSize {
  double bytes = 0;   // of its weights, those of all experts
  Operations of_row;  // of one row, without scores and latents
};

// What a machine can do at best.
struct MachineSpeed {
  double read_bytes_per_s = 0;
  double operations_per_s = 0;          // of floats, two a multiply-add
  double integer_operations_per_s = 0;  // of int8
};
// The share of it that whole passes reach, and that widening fp8 leaves of the float rate; both
// from docs/performance.md.
inline constexpr double kPassEfficiency = 0.93;
inline constexpr double kFp8Efficiency = 0.65;

class ModelCost {
 public:
  // Errors: those of Model::load.
  static Result<ModelCost> measure(const ModelChoice& choice);

  const PartSize& part(WeightPart part) const { return parts_[static_cast<size_t>(part)]; }
  int64_t weight_bytes() const;  // equal to measure_weights()
  int64_t parameters() const;
  // Without the embedding, of which a token reads one row, and the experts that it does not choose.
  int64_t active_parameters() const;
  // Of the multi-token-prediction layers, which are in the files and not loaded. They share
  // embedding and head with the model, so those are not counted.
  const PartSize& mtp() const { return mtp_; }
  int64_t kv_bytes_per_token() const { return kv_bytes_per_token_; }
  // Norms belong to none: their sum is that of the layers' matrices.
  const StageSize& stage(Op op) const { return stages_[static_cast<size_t>(op)]; }

  // Distinct experts that `rows` tokens hit under uniform routing, summed over layers:
  // E (1 - (1 - k / E)^rows) in each.
  double expected_experts(double rows) const;
  // Weights and keys that a pass must read; the head only where logits are wanted.
  double bytes(const PassShape& pass) const;
  // Of the weights, the scores and the head.
  Operations operations(const PassShape& pass) const;
  // Of scores and latents alone; of the head alone.
  double attention_operations(const PassShape& pass) const;
  Operations head_operations(const PassShape& pass) const;
  // That reading keys takes as long as, in all layers.
  double kv_bytes(const PassShape& pass) const {
    return pass.kv_tokens * (static_cast<double>(kv_bytes_per_token_) + widened_kv_bytes_);
  }
  // One token of each of `batch` sequences that hold `context` tokens.
  PassShape decode(double batch, double context) const;
  // A prompt's chunk of `rows` tokens after `context` others; its last row wants logits.
  PassShape prefill(double rows, double context) const;
  // Reading and computing take turns in a core, so their times add up: this fits every pass of
  // docs/performance.md within 14 %, where the larger of the two alone misses by 40 %.
  static double seconds(double bytes, const Operations& operations, const MachineSpeed& speed);
  double seconds(const PassShape& pass, const MachineSpeed& speed) const {
    return seconds(bytes(pass) + pass.kv_tokens * widened_kv_bytes_, operations(pass), speed);
  }

 private:
  ModelCost() = default;
  static Result<PartSize> measure_mtp(const ModelChoice& choice, const ModelFamily& family);
  PartSize& at(WeightPart part) { return parts_[static_cast<size_t>(part)]; }
  void add(WeightPart part, const PackedWeight& weight, int64_t parameters);
  StageSize& stage_at(Op op) { return stages_[static_cast<size_t>(op)]; }
  void add_row_operations(Op op, const PackedWeight& weight, double parameters);
  void add_matrix(WeightPart part, const PackedWeight& weight);
  void add_stage_matrix(WeightPart part, Op op, const PackedWeight& weight);
  void add_mlp(WeightPart part, Op op, const ExpertWeights& mlp, int intermediate);
  void add_layer(const Layer& layer);
  void add_vectors(int64_t all_bytes);

  ModelConfig model_;
  TokenRole prompt_role_ = TokenRole::prompt;
  std::array<PartSize, kNumWeightParts> parts_{};
  PartSize mtp_;
  std::array<StageSize, kNumOps> stages_{};
  int num_moe_layers_ = 0;
  int64_t kv_bytes_per_token_ = 0;
  // int8 keys are widened before they are multiplied: no faster than reading them as bf16.
  double widened_kv_bytes_ = 0;
  // Of kv_b_proj: expanded once a key by prompts, used once a row by generated tokens.
  int64_t latent_parameters_ = 0;
  int64_t unread_bytes_ = 0;  // of the two forms of a latent's keys, the one a pass leaves alone
};

}  // namespace hocket
