// The options of a rank's cache tier (engine/tier/cache_tier.h).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/pages/file_store.h"
#include "engine/pages/page_forms.h"
#include "engine/pages/page_server.h"
#include "engine/pages/peer_source.h"
#include "engine/pages/prefill_role.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {

// Says how long a prompt waits for its pages (SGLang's names): not at all; until all are read,
// however long that takes; or at most as long as computing them would take.
enum class StoragePrefetch : uint8_t { best_effort, wait_complete, timeout };
// Errors: bad_value.
Result<StoragePrefetch> parse_storage_prefetch(std::string_view name);

// Says which pages are written to stores (SGLang's names): all that are computed, or those that a
// second request used as well.
enum class StorageWrites : uint8_t { write_through, write_through_selective };
// Errors: bad_value, also for write_back, which writes at an eviction: a prefix would not outlive
// the process.
Result<StorageWrites> parse_storage_writes(std::string_view name);

struct CacheTierOptions {
  // While the speeds of reading and of computing are not known, a prompt that lacks fewer tokens
  // than this is computed at once (SGLang's threshold); then ReadTimes::are_worth_reading(). One
  // that lacks fewer is never sent to a peer that computes.
  static constexpr int kMinTokens = 256;

  std::shared_ptr<FileStore> files;   // null: there is no folder
  std::shared_ptr<PageStore> redis;   // null: there is none
  std::shared_ptr<PeerSource> peers;  // asked for pages that stores lack; null: none
  // The prompts that are computed for others, whose pages wait for a buffer; null: none can be.
  std::shared_ptr<PrefillWatch> prefills;
  std::shared_ptr<PrefillRole> role;           // never null
  std::shared_ptr<PageServer::Counts> served;  // null: nothing is offered to peers
  std::shared_ptr<const PageForms> forms;      // never null with peers, or if pages are offered
  PageKey form{};  // a hash of all that the bytes of a page depend on, beside its tokens
  int page_tokens = 0;
  StoragePrefetch prefetch = StoragePrefetch::timeout;
  StorageWrites writes = StorageWrites::write_through;
  int64_t record_budget_bytes = TierBuffers::kBytes;
  int64_t chunk_pages = 0;  // TierBuffers
  int64_t num_senders = 0;  // TierBuffers; more than 0 if peers compute
  double row_seconds = 0;   // the time of a prompt's row as measured before; 0: not known
};

}  // namespace hocket
