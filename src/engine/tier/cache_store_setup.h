// Makes the store of pages that services share, a Redis or Valkey, from --kv-cache-store and its
// companions. Thread: any.
#pragma once

#include <memory>
#include <string>

#include "core/server_settings.h"
#include "engine/pages/page_store.h"

namespace hocket {

// Checks the flags without using the network. Errors: bad_value (an address that is none, files
// that cannot be read or are of no use).
Result<void> check_store(const MemorySettings& memory);

// Connects to the store, and returns a description of it. Errors: bad_value, unauthorized, io,
// timed_out.
Result<std::string> probe_store(const MemorySettings& memory);

// Opens the store, and says what there is. A store that does not answer, now or later, is tried
// again after a pause. max_page_bytes: the size of a page or a state of the model. Errors:
// bad_value; those of read_cluster_token().
Result<std::shared_ptr<PageStore>> open_store(const ServerSettings& settings, const PageKey& form,
                                              int64_t max_page_bytes);

}  // namespace hocket
