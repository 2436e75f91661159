// Packs the weights that a model asks for. The same calls run twice: first measuring (no memory;
// bytes() is the plan), then loading. Errors are sticky: after the first error, calls do nothing
// and status() returns it, so a model's load function needs no checks in between.
//
//   WeightLoader::Options options = {.source = ..., .dtype = DType::bf16};
//   auto plan = WeightLoader::measuring(options);   Model::load(..., plan);
//   options.bytes = plan.bytes();
//   auto load = WeightLoader::loading(options);     Model::load(..., load);
//
// The format of a matrix in memory is f32 if dtype is float32 (quantized files are dequantized);
// else `quantize`, unless the files hold integers of as few bits; else the format that the files
// hold. A matrix whose format changes is read, widened and quantized some rows at a time. The
// headers of the files decide, also when measuring. Without a source `stored` decides, and random
// weights are quantized to it. If the matrices of one stacked product would have different formats,
// it becomes bf16.
//
// Matrices of views are filled when status() or take_memory() returns, vectors and biases at once:
// what is asked for next is read while workers pack (packing_queue.h).
//
// Thread: the one that loads; workers pack panels in parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/worker_pool.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/experts.h"
#include "compute/tensor/buffer.h"
#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

struct LoadProgress {
  // Bytes of the packed form: of all weights, and of those that are packed so far.
  int64_t bytes_done = 0, bytes_total = 0;
};

enum class Bias : uint8_t { none, present };

// Products of which the files hold matrices in another format under scales: their number, and their
// bytes in the formats of the files and as they are kept.
struct FormatChange {
  int num_products = 0;
  int64_t stored_bytes = 0, kept_bytes = 0;
};
// The products that are kept in bf16, those whose matrices were quantized again because they have
// several formats, and those that were by Options::quantize.
struct FormatChanges {
  FormatChange widened, joined, requantized;
};

// Returns the format in memory of numbers that the files hold in `held`, if Options::quantize is
// `asked`; bf16 asks for nothing. Formats that already take about as few bits stay.
constexpr WeightFormat format_asked(WeightFormat held, WeightFormat asked) {
  const bool has_more_bits =
      held == WeightFormat::q8_0 || held == WeightFormat::q5_k || held == WeightFormat::q6_k;
  const bool stays = has_more_bits ? asked == WeightFormat::int8
                                   : held == WeightFormat::int4 || has_block_scales(held);
  return asked == WeightFormat::bf16 || stays ? held : asked;
}

// The kv_b_proj of latent attention, per head (kernels/latent_attention.h).
struct LatentHeadWeights {
  std::vector<PackedWeight> key_up, value_up, key_absorb;  // [heads] each
};

struct RoundedScales {
  bool from_float32 = false;  // some were stored in float32
  // Scales that float16 does not hold, float32 and bfloat16 alike; 0 if the weights were packed
  // before.
  int64_t changed = 0;
};

class WeightLoader {
 public:
  struct Options {
    // Null: random weights (measuring: sizes by config alone).
    const WeightSource* source = nullptr;
    uint64_t seed = 0;                           // seed of random weights
    DType dtype = DType::bf16;                   // type of activations: bf16 or f32
    QuantConfig stored;                          // the formats that the files hold
    WeightFormat quantize = WeightFormat::bf16;  // int8 or int4: what they are to be
    int64_t bytes = 0;                           // bytes() of the measuring run
    // Loading: weights that the same calls packed before (packed_file.h). The views point into
    // them, nothing is filled, and they must outlive the views. Null: memory is allocated and
    // filled.
    const std::byte* packed = nullptr;
    // Loading: memory of `bytes` bytes, aligned to 64, that is filled instead of memory of its own.
    // It must outlive the views.
    std::byte* memory = nullptr;
    WorkerPool* workers = nullptr;
    std::function<void(const LoadProgress&)> progress;  // called at most every 50 ms and at the end
  };
  static WeightLoader measuring(Options options);
  // Errors: out_of_memory.
  static Result<WeightLoader> loading(Options options);
  WeightLoader(WeightLoader&&) noexcept;
  ~WeightLoader();

  // From here on `quantize` is int8 where it was int4.
  void keep_eight_bits();
  // Loads one matrix [n, k]. Its name ends in ".weight"; the names of scales, zero points and bias
  // are derived from it.
  PackedWeight matrix(const std::string& name, int n, int k, Bias bias = Bias::none);
  // Loads matrices of the same k, stacked along n in the given order (q, k, v).
  struct Part {
    std::string name;
    int n = 0;
  };
  PackedWeight stacked(std::span<const Part> parts, int k, Bias bias = Bias::none);
  // The same, but neighbours stay apart if GGUF files hold them in several formats.
  std::vector<PackedWeight> stacked_by_format(std::span<const Part> parts, int k,
                                              Bias bias = Bias::none);
  // Load a matrix that is never quantized in memory: gate; or several, stacked.
  PackedWeight plain_matrix(const std::string& name, int n, int k, Bias bias = Bias::none);
  PackedWeight plain_stacked(std::span<const Part> parts, int k, Bias bias = Bias::none);
  // Loads the output head: in the format of a GGUF file where it is q8_0 or has block scales; else
  // int8 if `quantize` is int8 or int4, or not quantized.
  PackedWeight head(const std::string& name, int n, int k);
  // Loads the embedding: in the format of a GGUF file, but not in int4 if the head is the
  // embedding, since its products would have other bits than those of bf16; else not quantized.
  PackedWeight embedding(const std::string& name, const ModelConfig& config);
  // Loads gate [i, k], up [i, k] and down [k, i] in the layout of experts.h.
  struct SwigluNames {
    std::string gate, up, down;
  };
  ExpertWeights swiglu(const SwigluNames& names, int hidden, int intermediate,
                       Bias bias = Bias::none);
  // Loads kv_b_proj [heads * (nope + value), rank], never quantized in memory.
  LatentHeadWeights latent_heads(const std::string& name, int heads, int nope, int value, int rank);
  // Loads a vector as fp32 (in files perhaps with further dims of 1), and adds `added` to each
  // number, in fp32.
  std::span<const float> vector(const std::string& name, int n, float added = 0);
  // Loads the taps of a convolution of each channel by itself, parts of [channels, 1, num_taps] in
  // the files, as fp32 [num_taps][all channels].
  std::span<const float> taps(std::span<const Part> parts, int num_taps);

  int64_t bytes() const;  // bytes measured or filled so far
  // Fills all matrices. Returns the first error: missing_tensor, wrong_shape (name, shape found,
  // shape expected), unsupported_model (stored type, quantization detail, an impossible number).
  Result<void> status() const;
  // Returns the stored types found that are more precise than `dtype` ("float32"), for a log line.
  std::vector<std::string> narrowed_from() const;
  // Says how scales of int4 became float16; for a log line.
  RoundedScales rounded_scales() const;
  // Returns what became bf16 although the files hold less (products of parts in different formats,
  // and matrices that are never quantized in memory), and what became int8 or int4 by `quantize`.
  // Empty if dtype is float32. For log lines.
  FormatChanges format_changes() const;
  // Returns a hash over the calls so far and the options that decide how files are packed. Calls
  // that pack the same tensors in the same way to the same places have the same hash.
  uint64_t fingerprint() const;
  // Moves the memory to the model; the views stay valid as long as it lives. Empty if
  // Options::packed or Options::memory is set.
  Buffer take_memory();

 private:
  WeightLoader();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
