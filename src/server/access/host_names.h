// The names that `Host` of a request may have.
//
// DNS rebinding: a foreign page lets its own name resolve to this machine. Its browser takes it for
// a page of this server, so Origin does not show that it is foreign. Host shows it, since no script
// can change that header. So only names are let in that a foreign page cannot have: literal
// addresses, localhost and names below it, the name of this machine, that of --host, and those that
// are listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/wire/http.h"

namespace hocket {

// Constant.   Thread: any.
class HostNames {
 public:
  HostNames() = default;  // literal addresses and localhost
  // "llm.example, gateway", or "*" for all; `host`: what the server listens on. Errors: bad_value.
  static Result<HostNames> parse(std::string_view list, std::string_view host);

  // A request without Host, which no browser sends, is let in too.
  bool lets_in(const HttpRequest& request) const;

 private:
  bool all_ = false;
  std::vector<std::string> names_;
};

// The name in a Host header: "LLM.example" of "LLM.example.:30000", without port, brackets and last
// dot. A value that has not this form is returned as it is; it is neither a name nor an address.
std::string_view name_in_host(std::string_view host);
// Whether only this machine reaches what listens on `host`. May block for as long as the resolver
// does; false where the name is unknown.
bool is_loopback_host(const std::string& host);

}  // namespace hocket
