// The file of --weight-cache that has the packed weights of one rank: a start maps it, or packs the
// weights and writes it for the next start. Owner: the runner.   Thread: the one that loads; a
// thread of its own writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <semaphore>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/thread.h"
#include "base/worker_pool.h"
#include "compute/weights/packed_file.h"
#include "engine/plan/engine_info.h"

namespace hocket {

class PackedWeightCache {
 public:
  // The destructor waits for a file that is being written, for `patience` at most.
  PackedWeightCache(std::string folder, std::filesystem::path path, const PackedKey& key,
                    Duration patience = std::chrono::seconds(2))
      : folder_(std::move(folder)), path_(std::move(path)), key_(key), patience_(patience) {}
  ~PackedWeightCache();
  PackedWeightCache(const PackedWeightCache&) = delete;
  PackedWeightCache& operator=(const PackedWeightCache&) = delete;

  // Maps the file by all workers. Returns its weights, which stay as long as this object lives;
  // null, with the reason in the log, if it cannot be used.
  const std::byte* map(WorkerPool& workers);
  bool is_mapped() const { return mapped_.has_value(); }

  // Writes the file. If the weights stay as they are, it returns at once, and a thread writes while
  // the model serves. If the destructor stops that thread, no file stays. `packed` must outlive
  // this object. Returns the change of the setting if nothing can be written.
  enum class Packed : uint8_t { stay, may_change };
  std::optional<SettingChange> write(std::span<const std::byte> packed, Packed later);

 private:
  std::string folder_;
  std::filesystem::path path_;
  PackedKey key_;
  Duration patience_;
  std::optional<PackedFile> mapped_;
  std::atomic<bool> stopping_ = false;
  std::binary_semaphore written_{0};  // released by the writer at its end
  Thread writer_;                     // destroyed first
};

}  // namespace hocket
