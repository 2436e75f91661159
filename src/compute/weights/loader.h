// Packs the weights a model asks for. The same calls run twice: first measuring (no files, no
// memory: bytes() is the plan), then loading. Errors are sticky: after the first, calls do nothing
// and status() returns it, so a model's load function reads straight down.
//
//   auto plan = WeightLoader::measuring(DType::bf16);           Model::load(..., plan);
//   auto load = WeightLoader::loading({.bytes = plan.bytes()}); Model::load(..., load);
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

namespace hocket {

struct LoadProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of packed weights
};

class WeightLoader {
 public:
  struct Options {
    const WeightSource* source = nullptr;  // null: random weights
    uint64_t seed = 0;                     // of random weights
    DType dtype = DType::bf16;             // of the packed matrices
    int64_t bytes = 0;                     // what measuring found
    WorkerPool* workers = nullptr;
    std::function<void(const LoadProgress&)> progress;  // called at most every 50 ms and at the end
  };
  static WeightLoader measuring(DType dtype);
  // Errors: out_of_memory.
  static Result<WeightLoader> loading(Options options);
  WeightLoader(WeightLoader&&) noexcept;
  ~WeightLoader();

  // One matrix [n, k] under `name`.
  PackedWeight matrix(const std::string& name, int n, int k);
  // Matrices of the same k stacked along n in the order given (q, k, v).
  struct Part {
    std::string name;
    int n = 0;
  };
  PackedWeight stacked(std::span<const Part> parts, int k);
  // gate [i, k], up [i, k], down [k, i] as experts.h wants them.
  ExpertWeights swiglu(const std::string& gate, const std::string& up, const std::string& down,
                       int hidden, int intermediate);
  // A vector as fp32.
  std::span<const float> vector(const std::string& name, int n);

  int64_t bytes() const;  // measured or filled so far
  // The first error: missing_tensor, wrong_shape (name, shape found, shape expected), unsupported
  // stored type.
  Result<void> status() const;
  // Stored types met that hold more than `dtype` keeps ("float32"); for the announcement.
  std::vector<std::string> narrowed_from() const;
  // Gives the memory to the model; the views handed out stay valid while it lives.
  Buffer take_memory();

 private:
  WeightLoader();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
