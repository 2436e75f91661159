// Puts load on a running server: many clients stream answers and time them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/blocking_http_client.h"

namespace hocket {

enum class Endpoint : uint8_t { chat, completions, generate };

// Errors: bad_value.
Result<Endpoint> parse_endpoint(std::string_view name);

struct LoadOptions {
  BlockingHttpClient::Options server;
  Endpoint endpoint = Endpoint::chat;
  int num_prompts = 256;
  double seconds = 0;  // > 0: length of the load, in place of num_prompts
  int max_concurrency = 16;
  double request_rate = 0;   // requests a second, with exponential gaps; 0: no limit
  int input_len = 256;       // tokens; words in chat
  int output_len = 64;       // tokens; end tokens are ignored
  double range_ratio = 0.5;  // lengths are uniform in [ratio * len, len]
  int shared_prefix_len = 0;
  double temperature = 1;
  uint64_t seed = 1;
  int vocab_size = 0;
};

// One good answer, as the log needs it.
struct AnsweredRequest {
  int index = 0;      // number of the request
  double due_ms = 0;  // due (without a rate: sent) so long after the load began
  int input_len = 0, cached_len = 0, output_len = 0;
  double ttft_ms = 0, e2e_ms = 0;
};

struct LoadResult {
  double seconds = 0;
  int num_ok = 0, num_failed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // sums of good answers
  std::vector<double> ttft_ms, itl_ms, e2e_ms;
  std::map<std::string, int> errors;      // number of failed requests by kind
  std::vector<AnsweredRequest> answered;  // sorted by index
};

// Runs the load and returns the results of all clients. Request i depends on the seed and i alone,
// not on the client that sends it. With a rate, latencies count from the moment when a request was
// due, so a client that falls behind does not hide the wait; without one, from when it was sent.
// itl_ms has one entry for each gap between two events with tokens. An answer that is cut off, or
// not of the length asked for, is an error.
LoadResult run_load(const LoadOptions& options);

}  // namespace hocket
