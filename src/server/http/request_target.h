// Reads and writes the request line's target and names of headers, which Beast leaves to its users.
// Source: RFC 9112 §3.2, RFC 3986 §2.1.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

struct RequestTarget {
  std::string path;   // percent-decoded, valid UTF-8 without control characters, begins with '/'
  std::string query;  // as sent
};

// Parses "/path?query", "http://host/path?query" and "*".   Errors: invalid_request.
Result<RequestTarget> parse_request_target(std::string_view target);

// Returns the value of a query's parameter as sent: ids and numbers need no escapes.
std::string_view query_value(std::string_view query, std::string_view name);

// Returns "host:1" of "http://user@host:1/path"; empty if the target names no host.
std::string_view authority_of(std::string_view target);

// Returns a target from which parse_request_target() makes `path` again.
std::string encode_path(std::string_view path);

bool is_valid_utf8(std::string_view bytes);

// Returns true if the names are equal, without regard to the case of ASCII letters.
bool same_name(std::string_view a, std::string_view b);

}  // namespace hocket
