// Load on a running server: many clients that stream answers, and what they saw.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/http_client.h"

namespace hocket {

enum class Endpoint : uint8_t { chat, completions, generate };

// Errors: bad_value.
Result<Endpoint> parse_endpoint(std::string_view name);

struct LoadOptions {
  BlockingHttpClient::Options server;
  Endpoint endpoint = Endpoint::chat;
  int num_prompts = 256;
  double seconds = 0;  // > 0: so long, instead of num_prompts
  int max_concurrency = 16;
  double request_rate = 0;   // a second, with exponential gaps; 0: as fast as answers come
  int input_len = 256;       // tokens; words in chat
  int output_len = 64;       // tokens, also where the model would end
  double range_ratio = 0.5;  // lengths are uniform in [ratio * len, len]
  int shared_prefix_len = 0;
  double temperature = 1;
  uint64_t seed = 1;
  int vocab_size = 0;
};

// One good answer, for a log.
struct Answered {
  int index = 0;      // of the request
  double due_ms = 0;  // since the load began: when due, or without a rate when sent
  int input_len = 0, cached_len = 0, output_len = 0;
  double ttft_ms = 0, e2e_ms = 0;
};

struct LoadResult {
  double seconds = 0;
  int num_ok = 0, num_failed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of the good ones
  std::vector<double> ttft_ms, itl_ms, e2e_ms;
  std::map<std::string, int> errors;  // by kind
  std::vector<Answered> answered;     // by index
};

// Request i is the same for the same seed, whoever sends it. Latencies count from the moment a
// request was due, so a client that falls behind its rate does not hide the wait; itl_ms has one
// entry for each gap between two events with tokens. An answer of another length than asked for, or
// cut off, is an error.
LoadResult run_load(const LoadOptions& options);

}  // namespace hocket
