// Whether a service goes on when ranks leave it. Thread: any.
#pragma once

#include "cluster/member.h"

namespace hocket {

// Returns nothing if the others serve on when `leaving` have gone, and those of the view that leave
// already; else why not. `any_coordinates`: any rank may, so that it may leave, too.
// Errors: invalid_request.
Result<void> may_leave(const ClusterView& view, const RankSet& leaving, bool any_coordinates);

}  // namespace hocket
