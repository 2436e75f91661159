// Measures a model's weights, and the bytes and operations of its passes, from config.json alone,
// by a load without bytes. `hocket plan` forecasts with it, `hocket bench one-batch` compares with
// it. Pure values. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "compute/models/mtp_module.h"
#include "compute/overlap/op.h"
#include "compute/overlap/stage_times.h"
#include "engine/plan/model_choice.h"

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
  int64_t bytes = 0;                   // in memory, with padding, scales and zero points
  int64_t parameters = 0;              // counted as publishers do
  std::optional<WeightFormat> format;  // nullopt: several, or nothing there
};

// The size of one forward pass.
struct PassShape {
  double rows = 0;
  double sequences = 0;
  double experts_hit = 0;  // distinct ones, summed over layers
  double kv_tokens = 0;    // keys read, summed over sequences
  double pairs = 0;        // queries times the keys that each sees, of one layer
  double outputs = 0;      // rows of logits
  MlaForm form = MlaForm::expanded;
};

// Additions and multiplications, by the kind of unit that multiplies.
struct Operations {
  double floats = 0;    // bf16, fp32 and attention
  double fp8 = 0;       // fp8, mxfp4, mxfp8 and nvfp4 weights, widened before they are multiplied
  double integers = 0;  // int8 and int4 weights
  double probabilities = 0;  // numbers of softmax: they take time and are not operations

  double all() const { return floats + fp8 + integers; }
  Operations& operator+=(const Operations& more) {
    floats += more.floats, fp8 += more.fp8, integers += more.integers;
    probabilities += more.probabilities;
    return *this;
  }
};

// The size of one operation, over all layers that have it; empty for transfers.
struct StageSize {
  double bytes = 0;   // its weights, with all experts
  Operations of_row;  // operations per row, without scores and latents
};

// The best rates of a machine.
struct MachineSpeed {
  double read_bytes_per_s = 0;
  double operations_per_s = 0;          // float operations, two per multiply-add
  double integer_operations_per_s = 0;  // int8 operations
};
// The share of the machine's rates that whole passes reach, and the share of the float rate left
// when fp8 is widened; both from docs/performance.md.
inline constexpr double kPassEfficiency = 0.93;
inline constexpr double kFp8Efficiency = 0.65;
// A probability of softmax, with the short products around it, takes the time of this many float
// operations (docs/performance.md, "plan").
inline constexpr double kProbabilityOperations = 160;

// Returns the kind of attention of each layer. Local layers count as those with a window.
LayerKinds layer_kinds(const ModelConfig& model);

class ModelCost {
 public:
  // Measures a model. Errors: those of Model::load.
  static Result<ModelCost> measure(const ModelChoice& choice);

  const PartSize& part(WeightPart part) const { return parts_[static_cast<size_t>(part)]; }
  int64_t weight_bytes() const;  // without modules for multi-token prediction
  // Returns the bytes of all weights that are loaded: those of measure_weights().
  int64_t loaded_bytes() const {
    return weight_bytes() + (model_.num_mtp_loaded > 0 ? mtp_.bytes : 0);
  }
  int64_t parameters() const;
  // Returns the parameters without the embedding, of which a token reads one row, and without the
  // experts that it does not choose.
  int64_t active_parameters() const;
  // Returns the size of the modules for multi-token prediction: of those that are loaded, or if
  // none is, of all in the files. They share embedding and head with the model, so those are not
  // counted.
  const PartSize& mtp() const { return mtp_; }
  int64_t kv_bytes_per_token() const { return kv_bytes_per_token_; }
  // Norms belong to no operation: the sum over all is that of the layers' matrices.
  const StageSize& stage(Op op) const { return stages_[static_cast<size_t>(op)]; }

  // Returns the part of Op::attn_in or Op::attn_core in the layers of a kind.
  const StageSize& attention(Op op, AttentionKind kind) const {
    return attention_[static_cast<size_t>(kind)][op == Op::attn_core ? 1 : 0];
  }

  // Returns how many distinct experts `rows` tokens hit under uniform routing, summed over layers:
  // E (1 - (1 - k / E)^rows) in each.
  double expected_experts(double rows) const;
  // Returns the bytes of weights and keys that a pass must read; the head only if it has outputs.
  double bytes(const PassShape& pass) const;
  // Returns the operations of the weights, the scores, the states and the head.
  Operations operations(const PassShape& pass) const;
  // Return the operations of scores, latents and states alone: in all layers, and in those of one
  // of the model's kinds.
  Operations attention_operations(const PassShape& pass) const;
  Operations attention_operations(const PassShape& pass, AttentionKind kind) const;
  Operations head_operations(const PassShape& pass) const;
  // Return the bytes that take as long to read as keys and states do: in all layers, and in those
  // of a kind.
  double kv_bytes(const PassShape& pass) const {
    return key_bytes_read(pass) * (1 + kv_widening_) + state_bytes(pass);
  }
  double kv_bytes(const PassShape& pass, AttentionKind kind) const;
  // Returns the bytes of states that a pass reads and writes, in all layers: each sequence reads
  // its block slot, and each block of tokens makes a state from the one before.
  double state_bytes(const PassShape& pass) const {
    return pass.sequences * block_bytes_ + pass.rows * state_bytes_of_row_;
  }
  // Returns a pass with one token of each of `batch` sequences that hold `context` tokens.
  PassShape decode(double batch, double context) const;
  // Returns a pass with a chunk of `rows` tokens after `context` others; its last row has logits.
  PassShape prefill(double rows, double context) const;
  // Returns the time of a pass. A core reads and computes in turn, so the times add up: this fits
  // every pass of docs/results.md within 14 %; the larger of the two alone misses by 40 %.
  static double seconds(double bytes, const Operations& operations, const MachineSpeed& speed);
  double seconds(const PassShape& pass, const MachineSpeed& speed) const {
    return seconds(bytes(pass) + key_bytes_read(pass) * kv_widening_, operations(pass), speed);
  }

 private:
  ModelCost() = default;
  static Result<PartSize> measure_mtp(const ModelChoice& choice, const ModelFamily& family);
  PartSize& at(WeightPart part) { return parts_[static_cast<size_t>(part)]; }
  void add(WeightPart part, const PackedWeight& weight, int64_t parameters);
  StageSize& stage_at(Op op) { return stages_[static_cast<size_t>(op)]; }
  static void add_row_operations(Operations& of_row, const PackedWeight& weight, double parameters);
  void add_matrix(WeightPart part, const PackedWeight& weight);
  void add_stage_matrix(WeightPart part, Op op, const PackedWeight& weight);
  static void add_to(StageSize& stage, const PackedWeight& weight);
  void add_mlp(WeightPart part, Op op, const ExpertWeights& mlp, int intermediate);
  void add_layer(const Layer& layer, AttentionKind kind);
  void add_attention(const LayerWeights& weights, AttentionKind kind);
  void add_vectors(int64_t all_bytes);
  void add_states(DType dtype);
  double max_local_keys() const;  // keys that a query of a local layer sees at most
  double local_key_bytes_read(const PassShape& pass) const;
  double key_bytes_read(const PassShape& pass) const;

  ModelConfig model_;
  LayerKinds kinds_;
  MlaForm prompt_form_ = MlaForm::expanded;
  std::array<PartSize, kNumWeightParts> parts_{};
  PartSize mtp_;
  std::array<StageSize, kNumOps> stages_{};
  // By kind: attn_in, attn_core.
  std::array<std::array<StageSize, 2>, kNumAttentionKinds> attention_{};
  int num_moe_layers_ = 0;
  int64_t kv_bytes_per_token_ = 0;
  int64_t local_kv_bytes_ = 0;  // the part of them in local layers
  // Extra time of int8 keys, as a share of their bytes: they are widened first, so they are no
  // faster than bf16 keys.
  double kv_widening_ = 0;
  // Parameters of kv_b_proj: prompts expand each key once, generated tokens use it once per row.
  int64_t latent_parameters_ = 0;
  // Delta nets, in all layers: bytes of a block slot of average length, bytes of states for a row,
  // and operations of a row.
  double block_bytes_ = 0, state_bytes_of_row_ = 0, state_operations_of_row_ = 0;
  int64_t unread_bytes_ = 0;  // the form of a latent's keys that a pass does not read
};

}  // namespace hocket
