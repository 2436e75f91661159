// The tensors of a GGUF file under the names and in the shapes of the Hugging Face folder that it
// was made from: experts one by one, kv_b_proj in one, what the converter added taken back. Source:
// docs/models.md, "GGUF". Remembers which tensors of the file were found.   Thread: any.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "compute/weights/weight_source.h"
#include "gguf/file.h"

namespace hocket {

class GgufWeights final : public WeightSource {
 public:
  explicit GgufWeights(std::unique_ptr<const GgufFile> file);

  // Also takes the file's own names, whose tensors it offers as they are. Errors: missing_tensor
  // (both names), wrong_shape.
  Result<StoredTensor> find(std::string_view name) const override;
  bool has(std::string_view name) const override;
  std::vector<std::string> names() const override;  // those of the file
  // Those of the file, without the tensors of modules for multi-token prediction, and those that
  // the configuration reads.
  std::vector<std::string> unread() const override;
  void will_read(const StoredTensor& tensor) const override;
  void done_with(const StoredTensor& tensor) const override;
  std::optional<uint64_t> identity() const override;

 private:
  Result<StoredTensor> find_unnoted(std::string_view name) const;
  void note(const StoredTensor& tensor) const;

  std::unique_ptr<const GgufFile> file_;
  int64_t num_layers_ = 0;  // without those for multi-token prediction
  std::map<const std::byte*, std::string_view> name_at_;  // by where the tensor begins
  mutable Mutex mutex_;
  mutable std::set<std::string_view> read_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
