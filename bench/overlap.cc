#include "bench/overlap.h"

#include <algorithm>

#include "base/log.h"
#include "bench/bench_error.h"
#include "bench/overlap_real.h"
#include "bench/overlap_report.h"
#include "bench/overlap_virtual.h"

namespace hocket {
namespace {

const std::vector<int> kDecodeRows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
const std::vector<int> kPrefillRows = {512, 1024, 2048, 4096, 8192};
const std::vector<double> kLinks = {0.2, 1, 2.5, 10};
// These are played with --quick and with more than two ranks.
const std::vector<int> kFewDecodeRows = {1, 16, 128};
const std::vector<int> kFewPrefillRows = {2048};
const std::vector<double> kFewLinks = {1, 10};

template <class T>
std::vector<T> or_else(const std::vector<T>& given, const std::vector<T>& own) {
  return given.empty() ? own : given;
}

Result<void> check(const BenchOverlapOptions& o) {
  constexpr NumberRange kRows{1, 65536};
  HOCKET_TRY_VOID(check_number("rounds", o.rounds, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("auto-steps", o.auto_steps, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("num-ranks", o.num_ranks, {2, 64}));
  HOCKET_TRY_VOID(check_number("rank", o.rank, {-1.0, o.num_ranks - 1.0}));
  if (o.rank >= 0 && o.addr.empty())
    return bad_flag("rank", "is given without --addr", "--addr HOST:PORT, where rank 0 listens");
  if (o.rank < 0 && !o.addr.empty())
    return bad_flag("addr", "is given without --rank", "--rank N, this process's rank");
  if (o.rank >= 0 && (!o.real || o.quick))
    return bad_flag("rank", "needs --real without --quick", "--real, or leave out --rank");
  if (o.search && o.real)
    return bad_flag("search", "is for virtual time, and --real measures a model",
                    "one of --search and --real");
  HOCKET_TRY_VOID(check_each("decode-rows", o.decode_rows, kRows));
  HOCKET_TRY_VOID(check_each("prefill-rows", o.prefill_rows, kRows));
  HOCKET_TRY_VOID(
      check_each("link-gbit", o.link_gbit, {.low = 0, .high = 1e4, .low_excluded = true}));
  HOCKET_TRY_VOID(check_each("ranks", o.ranks, {2, 64}));
  if (!o.shape.empty() &&
      std::ranges::find(overlap_shapes(), o.shape, &OverlapShape::name) == overlap_shapes().end())
    return bad_flag("shape", fmt::format("{} is not a shape of this bench", o.shape),
                    "--shape qwen3-30b, shared-16b or free");
  return {};
}

// Plays the points of one shape and one number of ranks.
Result<void> play_points(const BenchOverlapOptions& o, const OverlapShape& shape, int ranks,
                         bool few, OverlapReport& report) {
  const auto& links = or_else(o.link_gbit, few ? kFewLinks : kLinks);
  for (const Phase phase : {Phase::decode, Phase::prefill}) {
    const bool is_decode = phase == Phase::decode;
    // If rows are given for one phase only, the other phase is not played.
    if (is_decode && o.decode_rows.empty() && !o.prefill_rows.empty()) continue;
    if (!is_decode && o.prefill_rows.empty() && !o.decode_rows.empty()) continue;
    const auto& rows = is_decode ? or_else(o.decode_rows, few ? kFewDecodeRows : kDecodeRows)
                                 : or_else(o.prefill_rows, few ? kFewPrefillRows : kPrefillRows);
    for (const double gbit : links)
      for (const int n : rows) {
        HOCKET_TRY(PlayedPoint point, play_virtual({shape, phase, n, gbit, ranks, o.search}));
        report.add(std::move(point));
      }
  }
  return {};
}

Result<void> play_all_virtual(const BenchOverlapOptions& o, OverlapReport& report) {
  for (const OverlapShape& shape : overlap_shapes()) {
    if (!o.shape.empty() && o.shape != shape.name) continue;
    const bool is_first = &shape == overlap_shapes().data();
    std::vector<int> ranks = o.ranks;
    if (ranks.empty()) ranks = is_first ? std::vector{2, 4, 8, 32} : std::vector{2, 4};
    if (o.ranks.empty() && o.quick) ranks.resize(is_first ? 2 : 1);
    for (const int count : ranks) {
      const bool few = o.quick || (o.ranks.empty() && count > 2);
      HOCKET_TRY_VOID(play_points(o, shape, count, few, report));
    }
  }
  return {};
}

}  // namespace

Result<int> bench_overlap(const BenchOverlapOptions& options) {
  HOCKET_TRY_VOID(check(options));
  log::set_level(log::Level::error);
  OverlapReport report(options.json);
  if (!options.real || options.quick) HOCKET_TRY_VOID(play_all_virtual(options, report));
  if (options.real || options.quick) HOCKET_TRY_VOID(play_real(options, report));
  report.print_goals();
  return misses_virtual_goal(report.points()) ? 1 : 0;
}

}  // namespace hocket
