// The arithmetic of `hocket bench peers` and `hocket bench --compare`: what the programs printed,
// and medians, ratios and fractions of the machine's roof. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

// A prefill of `size` tokens of one sequence, or decode steps of `size` sequences.
struct Pass {
  enum class Kind : uint8_t { prefill, decode } kind = Kind::prefill;
  int size = 0;
  auto operator<=>(const Pass&) const = default;
};
std::string name_of(Pass pass);  // "prefill 512", "decode b=16"

using Rates = std::map<Pass, double>;  // tokens/s, of all sequences together

// What one run of a peer's bench printed.
struct PeerRun {
  std::string build;  // "3f545becc (1234)"; empty where the program does not say
  Rates tokens_per_s;
};
// `llama-bench -o json` of llama.cpp or ik_llama.cpp; text around the array is skipped. Of several
// repetitions the first is a warm-up. A test with generated tokens is a decode of one sequence.
// Errors: bad_value.
Result<PeerRun> parse_llama_bench(std::string_view text);
// `llama-batched-bench`: JSON lines (--output-format jsonl) or its table, among other lines.
// Errors: bad_value, when there is neither.
Result<PeerRun> parse_batched_bench(std::string_view text);

// What `hocket bench one-batch --json` printed.
struct OwnRun {
  std::string cpu, isa, peak_name;
  int threads = 0;
  double weight_bytes = 0;
  int64_t peak_resident_bytes = 0;  // less what measuring the limits takes
  double read_gb_s = 0, peak_gflop_s = 0, integer_gop_s = 0;  // measured between the passes
  Rates tokens_per_s;
  Rates roof;  // tokens/s at the limit that binds: bytes read, or multiplies
};
// Errors: bad_value.
Result<OwnRun> parse_one_batch(std::string_view text);

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(const std::vector<double>& values);

// One side of a comparison: a value a round; empty where it has no such pass.
struct Side {
  Spread tokens_per_s;
  double roof_fraction = 0;
};
struct Comparison {
  Side own;
  std::vector<std::optional<Side>> peers;  // in the order given
  int better = -1;                         // the peer with the highest median; -1: none ran
  Spread ratio;                            // own over the better peer, round by round
};
// Rounds of one pass: own and roof have a value each, a peer all or none.
Comparison compare(const std::vector<double>& own, const std::vector<double>& roof,
                   const std::vector<std::vector<double>>& peers);

}  // namespace hocket
