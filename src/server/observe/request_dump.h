// Requests as files of JSON lines, for `hocket replay` and `hocket simulate --trace`: what was
// asked, when, and what became of it. The first line of a file says which scheduler it was; each
// other one is one text of one request (policy/simulation/trace.h reads the same lines):
//
//   {"timestamp": 812.4, "input_length": 18, "output_length": 3, "hash_ids": [..],
//    "hash_lengths": [18], "cached_tokens": 0, "ttft_ms": 4.5, "e2e_ms": 6.6, "status": 200,
//    "finish": "stop", "ids_hash": "5e1d...", "id": "chatcmpl-...", "choice": 0,
//    "path": "/v1/chat/completions", "seed": 7, "body": {..}}
//
// Files are for their owner only (mode 600). A full one is followed by the next, and the oldest of
// the folder go. Thread: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/observe/request_record.h"
#include "server/protocol/json_body.h"

namespace hocket {

class RequestDump {
 public:
  struct Options {
    std::string folder;
    int64_t bytes_of_file = 64 << 20;
    int64_t requests_of_file = 0;  // 0: no limit but bytes
    int num_files = 16;
    Json scheduler;  // of the server; null: not told
  };
  // Makes the folder and begins a file. Errors: io, bad_value.
  static Result<std::unique_ptr<RequestDump>> create(Options options);
  // Writes what is left.
  ~RequestDump();

  // It got tokens, here.
  static bool takes(const RequestRecord& record);
  // False: its body was too large to be kept, so there is nothing to ask again. Errors: io.
  Result<bool> add(const RequestRecord& record);
  // To the file. An error shows with the next add().
  void flush();

 private:
  explicit RequestDump(Options options);
  Result<void> begin_file();
  void forget_old_files() const;
  Result<void> write();

  const Options options_;
  const Duration started_;  // since 1970
  int file_ = -1, num_begun_ = 0;
  int64_t bytes_ = 0, requests_ = 0;  // of this file
  std::string waiting_;               // to be written
  std::optional<Error> failed_;       // flush()'s
};

// The lines of one request.
std::string dump_lines(const RequestRecord& record, Duration dump_started);

}  // namespace hocket
