// Makes the second tier of the prefix cache from flags: --kv-cache-dir, --kv-cache-store, their
// companions, and those of peers. Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/server_settings.h"
#include "engine/runner/runner.h"
#include "engine/tier/cache_tier.h"

namespace hocket {

// Checks all that is known before a model is loaded. Errors: bad_value (a name that is not known, a
// flag without the one that it needs, no prefix cache).
Result<void> check_cache_flags(const ServerSettings& settings);

// Returns the layout of the state that the runner's model needs to continue after a page.
BorderStates border_states_of(Runner& runner);

// Returns the options of all ranks of this process, which share stores and peers; nullopt without
// either. Announces the folder, its size and what it holds. model: HashedModel::name().
// Precondition: check_cache_flags() holds. Errors: bad_value (peers that are no addresses); io;
// those of describe_bits().
Result<std::optional<CacheTier::Options>> choose_cache_tier(const ServerSettings& settings,
                                                            Runner& runner,
                                                            const std::string& model);

// How the engine computes prompts for peers. The server of pages calls them from its own threads,
// so the engine outlives it.
struct PrefillCalls {
  std::function<RequestId()> next_id;
  std::function<Result<void>(RequestInput)> submit;
  std::function<void(RequestId)> abort;
};

// Offers the files of `tier` to peers, and in mode prefill offers to compute their prompts. Returns
// null without --kv-cache-listen. `place`: the number of this process on its host, which is added
// to the port. Errors: port_in_use, io, bad_value (an address of others without a token).
Result<std::unique_ptr<PageServer>> offer_pages(const ServerSettings& settings, int place,
                                                const CacheTier::Options& tier, Runner& runner,
                                                const PrefillCalls& calls);

}  // namespace hocket
