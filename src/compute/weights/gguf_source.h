// The tensors of a GGUF file under the names and in the shapes of the Hugging Face folder that it
// was made from: experts one by one, kv_b_proj in one, what the converter added taken back. Source:
// docs/models.md, "GGUF".   Thread: any (const).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "compute/weights/weight_source.h"
#include "gguf/file.h"

namespace hocket {

class GgufWeights final : public WeightSource {
 public:
  explicit GgufWeights(std::unique_ptr<const GgufFile> file);

  // Errors: missing_tensor (both names), wrong_shape.
  Result<StoredTensor> find(std::string_view name) const override;
  bool has(std::string_view name) const override;
  std::vector<std::string> names() const override;
  void done_with(const StoredTensor& tensor) const override;
  std::optional<uint64_t> identity() const override;

 private:
  std::unique_ptr<const GgufFile> file_;
  int64_t num_layers_ = 0;  // without those for multi-token prediction
};

}  // namespace hocket
