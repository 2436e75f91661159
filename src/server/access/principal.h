// The principal of a request: the name behind its API key. Logs, limits and aborts know a client by
// this name, never by the key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace hocket {

enum class Role : uint8_t { user, admin };

// The key that a path needs: none, any key, an admin's key. Without any keys all paths are open.
enum class Access : uint8_t { open, user, admin };

// The limits of one principal; 0 means no limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // tokens of prompts and answers
  int64_t concurrency = 0;        // largest number of requests under way
  bool operator==(const KeyLimits&) const = default;
};

struct Principal {
  std::string name = "anonymous";  // the name in the key file; it may be logged
  Role role = Role::admin;  // the default, since every client is an admin if there are no keys
  KeyLimits limits = {};
  bool alone = false;  // true: only one client has this key; false: clients share it
};

// Never null in a request that a server has let in.
using PrincipalPtr = std::shared_ptr<const Principal>;

}  // namespace hocket
