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
  const auto are_rows = [](const std::vector<int>& rows) {
    return std::ranges::all_of(rows, [](int n) { return n >= 1 && n <= 65536; });
  };
  if (o.rounds < 1 || o.auto_steps < 1)
    return bad_flag("rounds", "and --auto-steps are at least 1");
  if (o.num_ranks < 2 || o.num_ranks > 64) return bad_flag("num-ranks", "is 2 to 64");
  if (o.rank >= o.num_ranks) return bad_flag("rank", "is less than --num-ranks");
  if ((o.rank >= 0) != !o.addr.empty()) return bad_flag("rank", "and --addr come together");
  if (o.rank >= 0 && (!o.real || o.quick)) return bad_flag("rank", "is of --real, without --quick");
  if (o.search && o.real) return bad_flag("search", "is of virtual time, without --real");
  if (!are_rows(o.decode_rows)) return bad_flag("decode-rows", "are 1 to 65536 each");
  if (!are_rows(o.prefill_rows)) return bad_flag("prefill-rows", "are 1 to 65536 each");
  if (!std::ranges::all_of(o.link_gbit, [](double g) { return g > 0 && g <= 1e4; }))
    return bad_flag("link-gbit", "are rates above 0");
  if (!std::ranges::all_of(o.ranks, [](int n) { return n >= 2 && n <= 64; }))
    return bad_flag("ranks", "are 2 to 64 each");
  if (!o.shape.empty() &&
      std::ranges::find(overlap_shapes(), o.shape, &OverlapShape::name) == overlap_shapes().end())
    return bad_flag("shape", "is not one of qwen3-30b, shared-16b, free");
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
  return 0;
}

}  // namespace hocket
