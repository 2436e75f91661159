#include "engine/tier/cache_tier_options.h"

namespace hocket {

Result<StoragePrefetch> parse_storage_prefetch(std::string_view name) {
  if (name == "best_effort") return StoragePrefetch::best_effort;
  if (name == "wait_complete") return StoragePrefetch::wait_complete;
  if (name == "timeout") return StoragePrefetch::timeout;
  return fail(error(ErrorCode::bad_value,
                    "--hicache-storage-prefetch-policy {} is not one of best_effort, "
                    "wait_complete, timeout",
                    name)
                  .with_param("hicache-storage-prefetch-policy")
                  .with_fix("--hicache-storage-prefetch-policy timeout"));
}

Result<StorageWrites> parse_storage_writes(std::string_view name) {
  if (name == "write_through") return StorageWrites::write_through;
  if (name == "write_through_selective") return StorageWrites::write_through_selective;
  return fail(error(ErrorCode::bad_value,
                    "--hicache-write-policy {} is not one of write_through, "
                    "write_through_selective{}",
                    name,
                    name == "write_back" ? "; pages that are written when they are evicted would "
                                           "be lost with the process"
                                         : "")
                  .with_param("hicache-write-policy")
                  .with_fix("--hicache-write-policy write_through"));
}

}  // namespace hocket
