// The address of a Redis or Valkey, as --kv-cache-store gives it:
//
//   redis://[[user]:password@]host[:port][/database]     port 6379, database 0
//
// valkey:// means the same; rediss:// and valkeys:// are inside TLS. In user and password %40
// stands for @, as in every URL.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "cluster/socket.h"

namespace hocket {

struct RedisAddress {
  HostPort host;
  std::string user, password;  // empty: none
  int database = 0;
  bool has_tls = false;

  // The address without its password, for logs.
  std::string text() const;
};

// Errors: bad_value, which does not repeat a password.
Result<RedisAddress> parse_redis_address(std::string_view text);

// Returns `text` with *** in place of a password, whether or not it is an address.
std::string without_password(std::string_view text);

}  // namespace hocket
