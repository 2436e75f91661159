// Chooses which ranks keep the streams of another. Pure functions: what they know is passed in.
// Thread: any.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "cluster/member.h"

namespace hocket {

// Returns at most `num` ranks that keep the streams of rank `own`: members that stay, the next by
// number first. Those of other hosts come before those of its own host, whose ranks end together.
// may_keep: false for a rank that is not reached.
std::vector<Identity> choose_keepers(const ClusterView& view, int own, size_t num,
                                     const std::function<bool(const Identity&)>& may_keep);

// Returns how many of the `keepers` shall have a copy of a stream of `own` that `forwarder` has of
// its own accord. The forwarder is one of the `num` copies, but one on the same host takes no copy
// away from a keeper elsewhere.
size_t num_beside_forwarder(size_t num, const Identity& own, const Identity& forwarder,
                            std::span<const Identity> keepers);

}  // namespace hocket
