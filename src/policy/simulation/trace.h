// A trace: when requests arrive, how long they are, and what their prompts share. It is read from
// JSON lines, one request each, or made from a seed.
//
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
//
// timestamp is in ms; each hash id names 512 tokens (the last one: the rest), and equal ids are
// equal tokens. This is the format of the Mooncake traces (R. Qin et al., "Mooncake", FAST 2025).
// The request log of `bench serving --log` has two additions: a first line {"hocket_log": 1, ...}
// says how the load was made, on which scheduler, and what was measured; "hash_lengths" gives the
// tokens of each id if they are not 512. A server's dump (--dump-requests-folder) is such a log,
// too; its measurements are computed from its lines. Thread: any one.
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
// Limits of one file; more is an error.
inline constexpr size_t kMaxTraceLineBytes = 16 << 20;
inline constexpr size_t kMaxTraceRequests = 10'000'000;
inline constexpr size_t kMaxTraceBlocks = 64 << 20;    // over all requests: 1 GiB
inline constexpr size_t kMaxTraceOutputs = 256 << 20;  // tokens of all answers together
inline constexpr int kMaxTraceTokens = 16 << 20;       // tokens of one prompt or one answer
inline constexpr double kMaxTraceDueMs = 1e12;         // 31 years

// Measured results of a run, for a comparison. Times are in ms.
struct RunFigures {
  double seconds = 0, output_tokens_per_s = 0;
  double ttft_p50_ms = 0, ttft_p99_ms = 0, itl_p50_ms = 0, itl_p99_ms = 0, e2e_p50_ms = 0;
  double cached_share = 0;  // cached share of the prompt tokens
};

struct TraceRequest {
  struct Block {
    uint64_t id = 0;
    int len = 0;
  };
  double due_ms = 0;  // time since the trace began; rising
  std::vector<Block> blocks;
  int input_len = 0;   // sum of the blocks' len, >= 1
  int output_len = 0;  // >= 1
};

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;
  // Number of clients, each with one request at a time; a free client takes the next request of the
  // list and sends it when it is due. 0: each request is sent when it is due, whatever was
  // answered.
  int concurrency = 0;
  // Latencies count from the moment at which a request was due, or at which it was sent.
  enum class Since : uint8_t { due, sent } since = Since::due;
  std::optional<SchedulerOptions> scheduler;  // scheduler of the server that wrote the log
  SchedulePolicy policy = SchedulePolicy::fcfs;
  std::string policy_name;
  std::optional<RunFigures> measured;
};

// Errors: io; bad_value, with the number of the line.
Result<Trace> read_trace(const std::string& path);
Result<Trace> read_trace(std::istream& lines, const std::string& name);

struct SyntheticTraffic {
  int num_requests = 1000;
  double request_rate = 10;                // per second, with exponential gaps; 0: all at once
  int input_len = 1024, output_len = 128;  // the longest; lengths are uniform from half of it on
  // Equal first tokens of every prompt, in addition to input_len.
  int shared_prefix_len = 0;
  uint64_t seed = 1;
};
// Makes the same trace for the same seed on every machine. Errors: bad_value.
Result<Trace> make_trace(const SyntheticTraffic& traffic);

// Returns the tokens of a request's prompt; equal blocks give equal tokens, different blocks differ
// from their first token on.
std::vector<TokenId> prompt_of(const TraceRequest& request);

}  // namespace hocket
