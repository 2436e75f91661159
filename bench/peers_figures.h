// The arithmetic of `hocket bench peers` and `hocket bench --compare`: parses what the programs
// printed and computes medians, ratios and fractions of the machine's limits. Pure functions.
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

using Rates = std::map<Pass, double>;                // tokens/s of all sequences together
using Rounds = std::map<Pass, std::vector<double>>;  // the rates of each round

// The output of one run of a peer's bench.
struct PeerRun {
  std::string build;  // "3f545becc (1234)"; empty if the program does not print it
  Rates tokens_per_s;
};
// Parses `llama-bench -o json` of llama.cpp or ik_llama.cpp; text around the array is skipped. If
// there are several repetitions, the first is a warm-up and not counted. A test with generated
// tokens is a decode of one sequence. Errors: bad_value.
Result<PeerRun> parse_llama_bench(std::string_view text);
// Parses `llama-batched-bench`: JSON lines (--output-format jsonl) or its table, among other lines.
// Errors: bad_value, if there is neither.
Result<PeerRun> parse_batched_bench(std::string_view text);

// The output of `hocket bench one-batch --json`.
struct OwnRun {
  std::string cpu, isa, peak_name;
  int threads = 0;
  double weight_bytes = 0;
  int64_t peak_resident_bytes = 0;  // without the memory that measuring the limits takes
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

// One side of a comparison.
struct EngineSide {
  Spread tokens_per_s;
  double roof_fraction = 0;  // median over the rounds
};
struct Comparison {
  EngineSide own;
  std::vector<std::optional<EngineSide>> peers;  // in the order given; nullopt: it has no such pass
  int better = -1;                               // the peer with the highest median; -1: none ran
  Spread ratio;                                  // own rate over the better peer's, round by round
};
// Compares the rounds of one pass [round]: own and roof have a value for each, a peer has as many
// or none.
Comparison compare(const std::vector<double>& own, const std::vector<double>& roof,
                   const std::vector<std::vector<double>>& peers);

}  // namespace hocket
