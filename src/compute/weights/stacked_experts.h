// Offers the experts of a layer one by one where the files hold all of them in one tensor:
//
//   ...experts.gate_up_proj  [experts, 2 width, hidden], or [experts, hidden, 2 width]
//   ...experts.down_proj     [experts, hidden, width], or [experts, width, hidden]
//
// are found as ...experts.{e}.gate_proj.weight, up_proj and down_proj; the first half of
// gate_up_proj is the gate, or every other output from the first on where they are interleaved.
// In the same way mxfp4's blocks and scales, and biases, are found under the names that a matrix of
// its own would have, and always with outputs first:
//
//   ...down_proj_blocks  [experts, hidden, width / 32, 16]  .weight_packed [hidden, width / 2]
//   ...down_proj_scales  [experts, hidden, width / 32]      .weight_scale  [hidden, width / 32]
//   ...down_proj_bias    [experts, hidden]                  .bias          [hidden]
//
// and fp8 with one scale an expert, which gate and up share:
//
//   ...gate_up_proj_scale_inv  [experts, 1, 1]              .weight_scale_inv [1, 1]
//
// Experts that are stacked apart have tensors ...gate_proj.weight, up_proj and down_proj without
// "experts." in the name, and where they are fp8 in blocks, ...gate_proj.weight_scale_inv [experts,
// outputs / 128, inputs / 128]. Nothing is copied. A tensor that the files hold for one expert is
// found as it is.   Thread: any (const).
#pragma once

#include <filesystem>
#include <memory>

#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

class StackedExperts final : public WeightSource {
 public:
  StackedExperts(std::unique_ptr<WeightSource> files, const MoeConfig& moe);

  // Errors: those of the files; wrong_shape: a stacked tensor with other axes, with another number
  // of experts, or with an odd number of rows of gate and up.
  Result<StoredTensor> find(std::string_view name) const override;
  bool has(std::string_view name) const override;
  std::vector<std::string> names() const override { return files_->names(); }
  std::vector<std::string> unread() const override { return files_->unread(); }
  void will_read(const StoredTensor& tensor) const override { files_->will_read(tensor); }
  void done_with(const StoredTensor& tensor) const override { files_->done_with(tensor); }
  std::optional<uint64_t> identity() const override { return files_->identity(); }

 private:
  std::unique_ptr<WeightSource> files_;
  MoeConfig::Stacked form_;
  bool interleaved_;
  int num_experts_;
};

// Opens a model folder (safetensors.h), and notes which tensors are read. Where its files may hold
// stacked experts, these are offered one by one. Errors: those of open_model_weights(folder).
Result<std::unique_ptr<WeightSource>> open_model_weights(const std::filesystem::path& folder,
                                                         const MoeConfig& moe);

}  // namespace hocket
