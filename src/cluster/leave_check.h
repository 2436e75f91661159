// Decides whether the other ranks of a service can serve on when some leave. Pure. Thread: any.
#pragma once

#include <cstdint>

#include "cluster/member.h"

namespace hocket {

// The ranks that may coordinate. any: with --cluster-store, where the coordinator may leave, too.
enum class EligibleCoordinators : uint8_t { rank_0, any };

// Returns nothing if enough ranks stay when `leaving`, and those that leave already, have left.
// Errors: invalid_request, with the reason and a fix.
Result<void> may_leave(const ClusterView& view, const RankSet& leaving,
                       EligibleCoordinators coordinators);

}  // namespace hocket
