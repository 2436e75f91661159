// The settings that a rank which joins a running service takes from it (--join).
#pragma once

#include "apps/commands.h"
#include "base/result.h"
#include "cluster/launch.h"
#include "server/server.h"

namespace hocket {

// Returns the flags of this rank that one that joins must have, too, with their values; a switch
// has the value "true". Flags with their default values are left out.
JoinFlags flags_to_join(const ServerSettings& settings, const Launch& launch);

// Asks the service at `where` (HOST:PORT for clients) which rank is free, and returns the arguments
// of that rank: the service's flags, but none that `arguments` name, and then `arguments`. `keys`
// has the service's key. Errors: those of BlockingHttpClient; bad_value, lost_rank (no rank is
// free), unauthorized.
Result<Arguments> arguments_to_join(const std::string& where, const HttpSettings& keys,
                                    const Arguments& arguments);

}  // namespace hocket
