// The certificate with its chain, and its key, by which the server proves its identity. TLS 1.2 and
// 1.3, with forward secrecy only.   Source: RFC 5246, RFC 8446, RFC 9325.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cluster/tls.h"

namespace boost::asio::ssl {
class context;  // NOLINT(readability-identifier-naming): Asio's
}

namespace hocket {

struct TlsFiles {
  std::string certificate, key;  // PEM; both empty: no TLS
  bool empty() const { return certificate.empty() && key.empty(); }
};

struct TlsIdentity {
  std::shared_ptr<boost::asio::ssl::context> context;
  double remaining_days = 0;  // until the certificate expires; below 0: it has expired
};

// Returns the context of the cluster's key in the form that Asio takes.
std::shared_ptr<boost::asio::ssl::context> asio_context(const TlsContext& cluster);
// Errors: bad_value: one file without the other, a file that is not PEM, a key that does not match.
Result<TlsIdentity> load_tls_identity(const TlsFiles& files);

}  // namespace hocket
