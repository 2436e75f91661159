// Checks the name in a request's `Host` header.
//
// This prevents DNS rebinding: a foreign page lets its own name resolve to this machine. The
// browser then takes this server for that page's own, so Origin does not show that the page is
// foreign. Host shows it, since no script can change that header. So only names are let in that a
// foreign page cannot have: literal addresses, localhost and names below it, the name of this
// machine, the name in --host, and the names that are listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/http.h"

namespace hocket {

// The object never changes after parse().   Thread: any.
class HostNames {
 public:
  HostNames() = default;  // lets in literal addresses and localhost
  // Reads a list like "llm.example, gateway", or "*" for all names. `host` is the name or address
  // that the server listens on. Errors: bad_value.
  static Result<HostNames> parse(std::string_view list, std::string_view host);

  // Returns true if the name is allowed. A request without Host is let in too: no browser sends
  // one.
  bool allows(const HttpRequest& request) const;

 private:
  bool all_ = false;
  std::vector<std::string> names_;
};

// Returns the name in a Host header without port, brackets and last dot: "LLM.example" from
// "LLM.example.:30000". A value without this form is returned unchanged; it is neither a name nor
// an address.
std::string_view name_in_host(std::string_view host);
// Returns true if only this machine reaches a server that listens on `host`; false if the name is
// unknown. May block as long as the resolver does.
bool is_loopback_host(const std::string& host);

}  // namespace hocket
