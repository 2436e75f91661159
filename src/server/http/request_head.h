// Checks of a request's head that Beast's parser leaves out: number of bytes and lines, no
// forbidden byte, exactly one Host, the same host in the target, known codings. Beast parses the
// lines.
// Source: RFC 9112 §2.2, §3.2, §5.2, §6.1; RFC 9110 §8.4.   Thread: any.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "server/http/http.h"

namespace hocket {

inline constexpr size_t kMaxHeaderFields = 128;

// An error answer that is sent before any handler runs.
struct Refusal {
  int status = 0;  // 0: the client has left, so nothing is sent
  Error error = {};
};

// Returns a refusal with the status of the error's code.
Refusal refusal(Error e);

// Finds the end of one head while its bytes arrive.
class HeadScan {
 public:
  // Returns the number of bytes of the head with its empty line; 0 if it is not complete. `bytes`
  // must begin with the bytes of the call before. Errors: invalid_request; payload_too_large for
  // more than kMaxHeaderFields lines.
  Result<size_t> find_end(std::string_view bytes);

 private:
  Result<void> end_line(std::string_view line);

  size_t num_seen_ = 0;
  size_t line_begin_ = 0;
  size_t num_lines_ = 0;
};

// The start line, as the parser found it.
struct ParsedHead {
  std::string_view method, target;
  bool http_1_0 = false;
};

// Returns nullopt if the fields are consistent. After a refusal the connection is closed, since the
// end of the request is not known.
std::optional<Refusal> refused_head(const ParsedHead& head, const HttpHeaders& headers);

}  // namespace hocket
