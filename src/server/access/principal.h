// Who asks: the name behind an API key. Logs, limits and aborts know a client by it, never by the
// key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace hocket {

enum class Role : uint8_t { user, admin };

// What a path asks of who asks: nothing, a key, an admin's key. Without any keys all is open.
enum class Access : uint8_t { open, user, admin };

// Of one principal, 0: none.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers
  int64_t concurrency = 0;        // requests under way
  bool operator==(const KeyLimits&) const = default;
};

struct Principal {
  std::string name = "anonymous";  // as in the key file; safe to log
  Role role = Role::admin;         // without keys everybody may do everything
  KeyLimits limits = {};
  bool alone = false;  // one client's own key, not one that clients share
};

// Never null where a server has let the request in.
using PrincipalPtr = std::shared_ptr<const Principal>;

}  // namespace hocket
