// Makes the second tier of the prefix cache from flags: --kv-cache-dir and its companions.
// Thread: any.
#pragma once

#include <memory>

#include "core/server_settings.h"
#include "engine/cache_tier.h"
#include "engine/runner.h"

namespace hocket {

// Returns the options of all ranks of this process, which share the files; nullopt without
// --kv-cache-dir. Announces the folder, its size and what it holds. Errors: bad_value (a flag
// without the folder, models with sliding windows, no prefix cache); io; those of
// describe_bits().
Result<std::optional<CacheTier::Options>> choose_cache_tier(const ServerSettings& settings,
                                                            Runner& runner);

}  // namespace hocket
