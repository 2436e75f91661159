// Proves that both ends of a connection know the cluster's token, a file that all ranks have. The
// token never travels; each side sends a proof that it knows it.
//
//   rank 0   -> hello    nonce s
//   other    -> proof    nonce c, HMAC-SHA-256(token, "hocket rank"   | s | c)
//   rank 0   -> welcome           HMAC-SHA-256(token, "hocket rank 0" | c | s)
//
// Each side makes a new nonce for every connection, so a recorded proof cannot be replayed. The
// words differ, so no side can return the other side's proof as its own. With TLS (tls.h) only the
// hello is unencrypted. The hello says that TLS follows, and a side that is configured otherwise
// refuses the connection, so an attacker in between cannot turn TLS off. Without TLS the messages
// after the handshake are neither encrypted nor signed. Without a token the same handshake runs
// with an empty one and proves nothing. It is allowed at loopback addresses only, unless
// ClusterOptions::insecure is set. Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/wire.h"

namespace hocket {

inline constexpr size_t kMinTokenBytes = 16;

// Reads the token from a file and strips white space at its ends. Logs a warning if other users may
// read the file. Errors: io; bad_value if it is shorter than kMinTokenBytes or longer than 4 KiB.
Result<std::string> read_cluster_token(const std::string& path);

enum class Side : uint8_t { rank_0, other };
Nonce make_nonce();
// Returns the proof that `side` sends; `theirs` is the nonce of the side that checks it.
Proof prove(std::string_view token, Side side, const Nonce& theirs, const Nonce& own);
// Returns the HMAC-SHA-256 of `text`, which must begin with words for its purpose, so that no
// signature serves two purposes.
Proof sign(std::string_view token, std::string_view text);
// Returns a key for one use: HKDF-SHA-256 (RFC 5869) without salt, 32 bytes long.
Proof derive_key(std::string_view token, std::string_view use);
// Returns the token of services that send each other pages; empty if `token` is. The tokens differ
// because the handshakes are alike: with one token, an attacker between two such services could
// pass the proof of one of them on to rank 0.
std::string token_for_pages(std::string_view token);
// Returns the token for pages that belongs to the one in the file; an empty one if `path` is empty.
// Errors: those of read_cluster_token().
Result<std::string> read_page_token(const std::string& path);
// Compares in a time that does not depend on where the proofs differ.
bool same_proof(const Proof& a, const Proof& b);

}  // namespace hocket
