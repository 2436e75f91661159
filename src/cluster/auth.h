// Who may speak to rank 0: whoever knows the cluster's token, a file that all ranks have. It never
// travels; both sides prove that they know it.
//
//   rank 0   -> hello    nonce s
//   other    -> proof    nonce c, HMAC-SHA-256(token, "hocket rank"   | s | c)
//   rank 0   -> welcome           HMAC-SHA-256(token, "hocket rank 0" | c | s)
//
// Each side's nonce is new in every connection, so nothing can be said again; the words keep one
// side's proof from being the other's. What follows is neither encrypted nor signed: a network
// where others can read or change packets under way needs a tunnel.
// Without a token the same runs over the empty one, and proves nothing: only loopback addresses are
// taken then, unless that is asked for aloud (ClusterOptions::insecure).
// Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/wire.h"

namespace hocket {

inline constexpr size_t kMinTokenBytes = 16;

// The token in a file, without white space at its ends. Warns where other users may read the file.
// Errors: io; bad_value when it is shorter than kMinTokenBytes or longer than 4 KiB.
Result<std::string> read_cluster_token(const std::string& path);

enum class Side : uint8_t { rank_0, other };
Nonce make_nonce();
// What `side` sends, `theirs` being the nonce of the side that is to be convinced.
Proof prove(std::string_view token, Side side, const Nonce& theirs, const Nonce& own);
// In time that does not depend on where they differ.
bool same_proof(const Proof& a, const Proof& b);

}  // namespace hocket
