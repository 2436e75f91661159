// Packs the weights a model asks for. The same calls run twice: first measuring (no memory: bytes()
// is the plan), then loading. Errors are sticky: after the first, calls do nothing and status()
// returns it, so a model's load function reads straight down.
//
//   WeightLoader::Options options = {.source = ..., .dtype = DType::bf16};
//   auto plan = WeightLoader::measuring(options);   Model::load(..., plan);
//   options.bytes = plan.bytes();
//   auto load = WeightLoader::loading(options);     Model::load(..., load);
//
// The format of a matrix in memory: f32 where dtype is float32 (quantized files are dequantized);
// else as the files quantize it (fp8, int8, int4); else `quantize` for matrices the files hold
// unquantized; else bf16. The headers of the files decide, when measuring too; without a source,
// what `stored` says, and random weights are quantized to it. Matrices stacked in one product that
// the files hold in different formats become bf16.
//
// Thread: the one that loads; workers pack panels side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/worker_pool.h"
#include "compute/kernels/experts.h"
#include "compute/kernels/packed_weight.h"
#include "compute/tensor/buffer.h"
#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

struct LoadProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of packed weights
};

enum class Bias : uint8_t { none, present };

// kv_b_proj of latent attention, head by head (kernels/latent_attention.h).
struct LatentHeadWeights {
  std::vector<PackedWeight> key_up, value_up, key_absorb;  // [heads] each
};

class WeightLoader {
 public:
  struct Options {
    const WeightSource* source =
        nullptr;                // null: random weights (measuring: sizes by config alone)
    uint64_t seed = 0;          // of random weights
    DType dtype = DType::bf16;  // of activations: bf16 or f32
    QuantConfig stored;         // what the files hold
    WeightFormat quantize = WeightFormat::bf16;  // int8 or int4: quantize while loading
    int64_t bytes = 0;                           // what measuring found
    // Loading: what the same calls packed before, by weight_cache.h; nothing is filled, the views
    // lie in it, and it outlives them. Null: memory is taken and filled.
    const std::byte* packed = nullptr;
    WorkerPool* workers = nullptr;
    std::function<void(const LoadProgress&)> progress;  // called at most every 50 ms and at the end
  };
  static WeightLoader measuring(Options options);
  // Errors: out_of_memory.
  static Result<WeightLoader> loading(Options options);
  WeightLoader(WeightLoader&&) noexcept;
  ~WeightLoader();

  // One matrix [n, k] under `name`, which ends in ".weight"; the names of scales, zero points and
  // bias follow from it.
  PackedWeight matrix(const std::string& name, int n, int k, Bias bias = Bias::none);
  // Matrices of the same k stacked along n in the order given (q, k, v).
  struct Part {
    std::string name;
    int n = 0;
  };
  PackedWeight stacked(std::span<const Part> parts, int k, Bias bias = Bias::none);
  // A matrix that is never quantized in memory: embedding, gate.
  PackedWeight plain_matrix(const std::string& name, int n, int k);
  // The output head: int8 where the others are quantized while loading, be it to int4; else plain.
  PackedWeight head(const std::string& name, int n, int k);
  // gate [i, k], up [i, k], down [k, i] as experts.h wants them.
  struct SwigluNames {
    std::string gate, up, down;
  };
  ExpertWeights swiglu(const SwigluNames& names, int hidden, int intermediate,
                       Bias bias = Bias::none);
  // kv_b_proj [heads * (nope + value), rank], never quantized in memory.
  LatentHeadWeights latent_heads(const std::string& name, int heads, int nope, int value, int rank);
  // A vector as fp32.
  std::span<const float> vector(const std::string& name, int n);

  int64_t bytes() const;  // measured or filled so far
  // The first error: missing_tensor, wrong_shape (name, shape found, shape expected),
  // unsupported_model (stored type, quantization detail, a number that cannot be).
  Result<void> status() const;
  // Stored types met that hold more than `dtype` keeps ("float32"); for the announcement.
  std::vector<std::string> narrowed_from() const;
  // Whether scales of int4 were met in float32, of which float16 is kept; for the announcement.
  bool scales_narrowed() const;
  // Products of which the files hold the parts in different formats: kept in bf16; for the
  // announcement.
  int num_mixed() const;
  // Of the calls so far, and of the options that decide what they make of the files: equal for
  // calls that pack the same tensors in the same way to the same places.
  uint64_t fingerprint() const;
  // Gives the memory to the model; the views handed out stay valid while it lives. Empty over
  // Options::packed.
  Buffer take_memory();

 private:
  WeightLoader();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
