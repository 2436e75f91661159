// Writes requests to files of JSON lines, for `hocket replay` and `hocket simulate --trace`: the
// request, its time, and its result. The first line of a file describes the scheduler; each other
// line is one text of one request (policy/simulation/trace.h reads the same lines):
//
//   {"timestamp": 812.4, "input_length": 18, "output_length": 3, "hash_ids": [..],
//    "hash_lengths": [18], "cached_tokens": 0, "ttft_ms": 4.5, "e2e_ms": 6.6, "status": 200,
//    "finish": "stop", "ids_hash": "5e1d...", "id": "chatcmpl-...", "choice": 0,
//    "path": "/v1/chat/completions", "seed": 7, "body": {..}}
//
// Only the owner may read the files (mode 600). When a file is full the next one begins, and the
// oldest files of the folder are deleted. While nothing can be written, as on a full disk, requests
// are lost and counted, and after each `retry_after` another file is tried. The log reports the
// start and the end of such a pause.   Thread: one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/http/json_body.h"
#include "server/observe/request_record.h"

namespace hocket {

// Counts of requests. Any thread may read them.
struct DumpCounts {
  std::atomic<uint64_t> written{0}, lost{0};
};

class RequestDump {
 public:
  struct Options {
    std::string folder;
    int64_t bytes_of_file = 64 << 20;
    int64_t requests_of_file = 0;  // 0: no limit except bytes
    int num_files = 16;
    Json scheduler;  // description of the scheduler; null: not written
    Duration retry_after = std::chrono::seconds(60);
  };
  // Makes the folder and begins a file. `counts` must outlive the object. Errors: io, bad_value.
  static Result<std::unique_ptr<RequestDump>> create(Options options, DumpCounts& counts);
  // Writes the lines that still wait.
  ~RequestDump();

  // True if this rank made tokens for the request: only then can a replay ask it again.
  static bool takes(const RequestRecord& record);
  // Adds a request. If its body was too large to be kept, it is counted as lost, since it cannot be
  // replayed.
  void add(const RequestRecord& record);
  // Writes the waiting lines to the file.
  void flush();

 private:
  RequestDump(Options options, DumpCounts& counts);
  Result<void> begin_file();
  void forget_old_files() const;
  Result<void> write();
  void close_file();
  void pause(const Error& why);
  bool can_write();

  const Options options_;
  DumpCounts& counts_;
  const Duration started_;  // time since 1970
  int file_ = -1, num_begun_ = 0;
  int64_t bytes_ = 0, requests_ = 0;  // in this file
  int64_t whole_bytes_ = 0;           // bytes of the whole lines in this file
  std::string waiting_;               // lines to be written
  uint64_t num_waiting_ = 0;          // requests in waiting_
  bool is_paused_ = false;
  TimePoint retry_at_{};  // when the pause ends, if is_paused_
};

// Returns the lines of one request, one per text.
std::string dump_lines(const RequestRecord& record, Duration dump_started);

}  // namespace hocket
