// A source that has the kernel read the file pages of every tensor that is found in it. A measuring
// run over it (WeightLoader::measuring()) so asks for what a load will need, without waiting.
// Thread: any (const).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compute/weights/weight_source.h"

namespace hocket {

class ReadAhead final : public WeightSource {
 public:
  // `files` outlives it.
  explicit ReadAhead(const WeightSource& files) : files_(files) {}

  Result<StoredTensor> find(std::string_view name) const override {
    Result<StoredTensor> found = files_.find(name);
    if (!found) return found;
    for (const std::span<const std::byte> bytes : stored_bytes(*found)) {
      StoredTensor piece;
      piece.data = bytes.data();
      piece.bytes = std::ssize(bytes);
      files_.will_read(piece);
    }
    return found;
  }
  bool has(std::string_view name) const override { return files_.has(name); }
  std::vector<std::string> names() const override { return files_.names(); }

 private:
  const WeightSource& files_;
};

}  // namespace hocket
