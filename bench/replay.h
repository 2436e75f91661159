// Sends the requests of a server's dump (--dump-requests-folder) to a server again, each at its
// time and with its body. Compares the times and the token ids of the answers with those of the
// dump; the ids are the same if model, dtype and form are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/blocking_http_client.h"

namespace hocket {

struct DumpedRequest {
  double due_ms = 0;  // since the dump's first request
  std::string path, body;
  bool stream = false;
  double ttft_ms = 0, e2e_ms = 0;
  // One hash a choice. Empty: the answer cannot be compared, since it was not complete or its API
  // returns no ids.
  std::vector<std::string> ids_hashes;
};

struct Dump {
  std::vector<DumpedRequest> requests;  // sorted by time
  int num_left_out = 0;                 // requests whose bodies were not kept
};
// Reads several files of one server as one dump. Adds to the bodies what a comparison needs: the
// seed that was drawn, and the wish for token ids. Errors: io; bad_value with file and line.
Result<Dump> read_dump(const std::vector<std::string>& paths);

struct ReplayOptions {
  BlockingHttpClient::Options server;
  double speed = 1;           // 2: twice as fast as in the dump
  int max_concurrency = 256;  // clients; if none is free, a request is sent late
};

struct ReplayResult {
  double seconds = 0, max_late_ms = 0;
  int num_ok = 0, num_failed = 0;
  int num_same = 0, num_different = 0, num_not_compared = 0;     // answers
  std::vector<double> ttft_ms, e2e_ms, was_ttft_ms, was_e2e_ms;  // good answers; was_: dump
  std::map<std::string, int> errors;                             // number by kind
  std::string first_different;  // path and time of the first request with another answer
};
ReplayResult replay_dump(const Dump& dump, const ReplayOptions& options);

}  // namespace hocket
