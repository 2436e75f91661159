// Decides from each head, before the body is read, whether a request is let in. It checks the name
// in Host, the page's origin, the key, the role that the path needs, and how much of its limits the
// key's principal has used.
//
//   host 403 -> origin 403 -> key 401 -> admin's path 403 -> requests, tokens, concurrency 429
//   -> body
//
// Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "server/access/host_names.h"
#include "server/access/key_ring.h"
#include "server/access/origins.h"
#include "server/access/rate_limits.h"
#include "server/access/request_sender.h"
#include "server/http/http.h"

namespace hocket {

// The conditions that a request to one path must meet.
struct PathAccess {
  Access access = Access::user;
  bool counted = false;  // true: its requests count in the limits of a key (Route::takes_work)
};

class AccessCheck {
 public:
  struct Options {
    KeySources keys = {};
    std::string cors_origins = {}, allowed_hosts = {};
    std::string host = {};  // the address or name that the server listens on
    bool tls = false;       // true: the server speaks TLS, so browsers check the name themselves
    std::function<PathAccess(const HttpRequest&)> needs = {};
    std::shared_ptr<const Clock> clock = std::make_shared<RealClock>();
  };
  // Errors: those of KeyRing::load, Origins::parse and HostNames::parse.
  static Result<std::unique_ptr<AccessCheck>> create(Options options);

  HttpAdmission admit(const HttpRequest& head);
  // Reads the key file again. On an error the old keys stay.
  Result<void> reload();
  size_t num_keys() const;

 private:
  explicit AccessCheck(Options options);
  std::shared_ptr<const KeyRing> keys() const;
  // True if Host must be checked. Without keys, or if only this machine reaches the port, a web
  // page with a rebound name (host_names.h) would otherwise be served.
  bool checks_names() const;
  // Errors: unauthorized, forbidden.
  Result<PrincipalPtr> identify(const HttpRequest& head, Access access) const;

  const Options options_;
  Origins origins_;
  HostNames names_;
  bool local_ = false;  // true: only this machine reaches the port
  RateLimits limits_;
  mutable Mutex mutex_;
  std::shared_ptr<const KeyRing> keys_ HOCKET_GUARDED_BY(mutex_);
};

// Returns a random key for the port for ranks, 64 hexadecimal digits. Each rank gives its own key
// to the others through the cluster's store (ranks/peer_directory.h), so no client learns it.
std::string fresh_rank_key();
// Admits a request at that port: there is one key and there are no limits. The principal is the one
// that the other rank names, or a plain user if it names none.
HttpAdmission admit_rank(const HttpRequest& head, std::string_view key);
// Returns the headers by which a rank sends another one the principal of a request.
HttpHeaders principal_headers(const Principal& principal);

}  // namespace hocket
