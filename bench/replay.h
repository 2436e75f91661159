// Requests of a server's dump (--dump-requests-folder) again, against a server: each when it was
// due, as it was asked. What came out then and what comes out now are compared: times, and the
// answers token by token, which are the same wherever the numbers are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/http_client.h"

namespace hocket {

struct DumpedRequest {
  double due_ms = 0;  // since the dump's first request
  std::string path, body;
  bool stream = false;
  double ttft_ms = 0, e2e_ms = 0;
  // Of each choice; empty: not to be compared, because the client left or the API tells no ids.
  std::vector<std::string> ids_hashes;
};

struct Dump {
  std::vector<DumpedRequest> requests;  // by time
  int num_left_out = 0;                 // whose bodies were not kept
};
// Several files of one server make one dump. Bodies ask for what a comparison needs: the seed that
// was drawn, and the ids of the answer. Errors: io; bad_value with file and line.
Result<Dump> read_dump(const std::vector<std::string>& paths);

struct ReplayOptions {
  BlockingHttpClient::Options server;
  double speed = 1;           // 2: twice as fast
  int max_concurrency = 256;  // clients; with fewer free, requests are late
};

struct ReplayResult {
  double seconds = 0, late_ms_max = 0;
  int num_ok = 0, num_failed = 0;
  int num_same = 0, num_different = 0, num_not_compared = 0;     // answers
  std::vector<double> ttft_ms, e2e_ms, was_ttft_ms, was_e2e_ms;  // of the good ones
  std::map<std::string, int> errors;                             // by kind
  std::string first_different;                                   // its path and time
};
ReplayResult replay_dump(const Dump& dump, const ReplayOptions& options);

}  // namespace hocket
