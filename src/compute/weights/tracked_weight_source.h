// Remembers which tensors of a source were found, so that the ones that were never asked for can be
// named: they may belong to a part of the model that is computed wrongly without them.   Thread:
// any.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "compute/weights/weight_source.h"

namespace hocket {

class TrackedWeightSource final : public WeightSource {
 public:
  explicit TrackedWeightSource(std::unique_ptr<WeightSource> files) : files_(std::move(files)) {}

  Result<StoredTensor> find(std::string_view name) const override;
  bool has(std::string_view name) const override { return files_->has(name); }
  std::vector<std::string> names() const override { return files_->names(); }
  void will_read(const StoredTensor& tensor) const override { files_->will_read(tensor); }
  void done_with(const StoredTensor& tensor) const override { files_->done_with(tensor); }
  std::optional<uint64_t> identity() const override { return files_->identity(); }
  std::vector<std::string> unread() const override;

 private:
  std::unique_ptr<WeightSource> files_;
  mutable Mutex mutex_;
  mutable std::set<std::string, std::less<>> read_ HOCKET_GUARDED_BY(mutex_);
};

// Tensors whose names differ in numbers alone.
struct UnreadTensors {
  std::string names;  // quoted for a message, each number as a star
  int count = 0;
  int64_t bytes = 0;
};
// Returns the unread tensors of a source for which is_known() is false, by names.
std::vector<UnreadTensors> unread_tensors(const WeightSource& source,
                                          const std::function<bool(std::string_view)>& is_known);

}  // namespace hocket
