// Traffic as a list: when requests come, how long they are, and what their prompts share. Read from
// JSON lines, one request each, or made from a seed.
//
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
//
// timestamp is ms; each hash id names 512 tokens (the last one: the rest), and equal ids are equal
// tokens. That is the format of the Mooncake traces (R. Qin et al., "Mooncake", FAST 2025). Our own
// request log, written by `bench serving --log`, is the same with two additions: a line
// {"hocket_log": 1, ...} before the others says how the load was made, on which scheduler, and what
// was measured; "hash_lengths" gives the tokens of each id where they are not 512. The dump of a
// server (--dump-requests-folder) is such a log, too; what was measured is put together of its
// lines.
// Thread: any one.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

inline constexpr int kTraceBlockTokens = 512;
// Of a file: more is an error.
inline constexpr size_t kTraceLineBytesMax = 16 << 20;
inline constexpr size_t kTraceRequestsMax = 10'000'000;
inline constexpr size_t kTraceBlocksMax = 64 << 20;    // of all requests: 1 GiB
inline constexpr size_t kTraceOutputsMax = 256 << 20;  // tokens of all answers
inline constexpr int kTraceTokensMax = 16 << 20;       // of a prompt, and of an answer
inline constexpr double kTraceDueMaxMs = 1e12;         // 31 years

// What a run was like, for a comparison. Times are ms.
struct RunFigures {
  double seconds = 0, output_tokens_per_s = 0;
  double ttft_p50_ms = 0, ttft_p99_ms = 0, itl_p50_ms = 0, itl_p99_ms = 0, e2e_p50_ms = 0;
  double cached_share = 0;  // of the prompt tokens
};

struct TraceRequest {
  struct Block {
    uint64_t id = 0;
    int len = 0;
  };
  double due_ms = 0;  // since the trace began; rising
  std::vector<Block> blocks;
  int input_len = 0;   // sum of the blocks' len, >= 1
  int output_len = 0;  // >= 1
};

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;
  // As many clients with one request at a time; a free client takes the next request of the list
  // and sends it when it is due. 0: each request comes when it is due, whoever has been answered.
  int concurrency = 0;
  // Whether latencies count from the moment a request was due, or from its sending.
  enum class Since : uint8_t { due, sent } since = Since::due;
  std::optional<SchedulerOptions> scheduler;  // of the server that the log is of
  SchedulePolicy policy = SchedulePolicy::fcfs;
  std::string policy_name;
  std::optional<RunFigures> measured;
};

// Errors: io; bad_value, with the line's number.
Result<Trace> read_trace(const std::string& path);
Result<Trace> read_trace(std::istream& lines, const std::string& name);

struct SyntheticTraffic {
  int num_requests = 1000;
  double request_rate = 10;                // a second, with exponential gaps; 0: all at once
  int input_len = 1024, output_len = 128;  // the longest; lengths are uniform from the half on
  int shared_prefix_len = 0;               // first tokens of every prompt, beside input_len
  uint64_t seed = 1;
};
// The same for the same seed, on every machine. Errors: bad_value.
Result<Trace> make_trace(const SyntheticTraffic& traffic);

// The tokens of a request's prompt; equal blocks have equal tokens, others differ from the first.
std::vector<TokenId> prompt_of(const TraceRequest& request);

}  // namespace hocket
