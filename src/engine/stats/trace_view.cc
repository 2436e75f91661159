#include "engine/stats/trace_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/text_file.h"
#include "compute/overlap/op.h"
#include "core/bounded_json.h"

namespace hocket {
namespace {

using nlohmann::json;
using SliceKind = TraceSlice::Kind;

constexpr size_t kMaxTraceBytes = 256 << 20;

// Converts at most kMaxSeconds (base/clock.h), so that several times can be added without
// overflow.
Duration ns_of(double us) {
  constexpr double kMaxUs = kMaxSeconds * 1e6;
  return Duration(std::llround(std::isnan(us) ? 0 : std::clamp(us, -kMaxUs, kMaxUs) * 1000));
}
Duration ns_of(const json& args, const char* name) {
  return ns_of(args.value(name, 0.0));
}

std::optional<SliceKind> kind_named(std::string_view name) {
  if (name == "compute") return SliceKind::compute;
  if (name == "other,beside" || name == "beside") return SliceKind::other;  // new and old files
  if (name == "exposed") return SliceKind::exposed;
  if (name == "waiting") return SliceKind::waiting;
  if (name == "wire") return SliceKind::wire;
  return std::nullopt;
}

TracedStep step_of(const json& event) {
  const json& args = event.at("args");
  return {.step = args.at("step"),
          .rank = event.at("pid"),
          .rows = args.value("rows", 0),
          .phase = args.value("phase", ""),
          .plan = args.value("plan", ""),
          .begin = ns_of(event.at("ts").get<double>()),
          .took = ns_of(event.at("dur").get<double>()),
          .compute = ns_of(args, "compute_us"),
          .other = ns_of(args, args.contains("other_us") ? "other_us" : "beside_us"),
          .exposed = ns_of(args, "exposed_us"),
          .waiting = ns_of(args, "waiting_us"),
          .idle = ns_of(args, "idle_us"),
          .hidden = ns_of(args, "hidden_us"),
          .slices = {}};
}

TraceSlice slice_of(const json& event, SliceKind kind) {
  const json& args = event.at("args");
  const Duration begin = ns_of(event.at("ts").get<double>());
  return {.kind = kind,
          .rank = event.at("pid"),
          .layer = args.value("layer", -1),
          .half = args.value("half", 0),
          .part = args.value("part", 0),
          .name = event.at("name"),
          .begin = begin,
          .end = begin + ns_of(event.at("dur").get<double>())};
}

Result<json> read_json(const std::string& path) {
  HOCKET_TRY(const std::string text, read_text_file(path, kMaxTraceBytes));
  auto trace = parse_bounded_json<json>(text);
  if (!trace.is_object() || !trace.contains("traceEvents") ||
      trace.value("/otherData/producer"_json_pointer, "") != "hocket")
    return fail(error(ErrorCode::bad_value, "{} is not a trace of hocket", path)
                    .with_fix("a file of /start_profile"));
  return trace;
}

std::set<int> ranks_of(const json& trace) {
  std::set<int> ranks;
  for (const json& event : trace.at("traceEvents")) ranks.insert(event.at("pid").get<int>());
  return ranks;
}

// Returns the microseconds that move times of `trace` to the clock of `first`: 0 on one machine.
double shift_of(const json& first, const json& trace) {
  const json &a = first.at("otherData"), &b = trace.at("otherData");
  if (a.at("boot_id") == b.at("boot_id")) return 0;
  return b.at("unix_at_zero_us").get<double>() - a.at("unix_at_zero_us").get<double>();
}

// Drops arrows that have only one end in all files.
void drop_loose_arrows(json& events) {
  std::map<std::string, int> ends;  // bit 0: begins, bit 1: ends
  const auto bit = [](const json& event) {
    const std::string phase = event.value("ph", "");
    return phase == "s" ? 1 : phase == "f" ? 2 : 0;
  };
  for (const json& event : events)
    if (bit(event) != 0) ends[event.at("id").dump()] |= bit(event);
  std::erase_if(events.get_ref<json::array_t&>(), [&](const json& event) {
    return bit(event) != 0 && ends[event.at("id").dump()] != 3;
  });
}

Result<json> put_together(std::span<const std::string> paths) {
  json all;
  std::set<int> seen;
  for (const std::string& path : paths) {
    HOCKET_TRY(json trace, read_json(path));
    try {
      for (const int rank : ranks_of(trace))
        if (!seen.insert(rank).second)
          return fail(
              error(ErrorCode::bad_value, "rank {} of {} is in an earlier file, too", rank, path)
                  .with_fix("the files of one profile, each once"));
      if (all.is_null()) {
        all = std::move(trace);
        continue;
      }
      const double shift = shift_of(all, trace);
      for (json& event : trace["traceEvents"]) {
        if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + shift;
        all["traceEvents"].push_back(std::move(event));
      }
    } catch (const json::exception& e) {
      return fail(error(ErrorCode::bad_value, "{} is damaged: {}", path, e.what()));
    }
  }
  if (all.is_null()) return fail(error(ErrorCode::bad_value, "no trace is given"));
  return all;
}

void add_steps(StepTrace& trace) {
  const json& events = trace.file.at("traceEvents");
  std::map<std::pair<uint64_t, int>, size_t> index;
  for (const json& event : events)
    if (event.value("ph", "") == "X" && event.value("cat", "") == "step")
      trace.steps.push_back(step_of(event));
  std::ranges::sort(trace.steps, {}, [](const TracedStep& s) { return std::pair(s.step, s.rank); });
  for (size_t i = 0; i < trace.steps.size(); ++i)
    index[{trace.steps[i].step, trace.steps[i].rank}] = i;
  for (const json& event : events) {
    if (event.value("ph", "") != "X") continue;
    const auto kind = kind_named(event.value("cat", ""));
    if (!kind) continue;
    const auto found =
        index.find({event.at("args").at("step").get<uint64_t>(), event.at("pid").get<int>()});
    if (found != index.end()) trace.steps[found->second].slices.push_back(slice_of(event, *kind));
  }
}

char letter_of(const TraceSlice& slice) {
  static constexpr std::string_view kLetters = "qamgdswxkcn";  // indexed by Op
  static_assert(kLetters.size() == kNumBooked);
  if (slice.kind == SliceKind::other) return '-';
  for (int op = 0; op < kNumBooked; ++op)
    if (slice.name == op_name(static_cast<Op>(op)))
      return static_cast<char>(kLetters[static_cast<size_t>(op)] -
                               (slice.half == 0 ? 0 : 'a' - 'A'));
  return '?';
}

// Maps time to characters. A character shows the slice that covers most of it.
class Ruler {
 public:
  Ruler(Duration begin, Duration end, int width)
      : begin_(begin), span_(std::max(Duration(1), end - begin)), width_(width) {}

  double ns_a_character() const { return static_cast<double>(span_.count()) / width_; }
  // Calls add(character, ns) for every character that the slice touches.
  template <class Add>
  void cover(const TraceSlice& slice, Add&& add) const {
    const double scale = ns_a_character();
    const double from = static_cast<double>((slice.begin - begin_).count()) / scale;
    const double to = static_cast<double>((slice.end - begin_).count()) / scale;
    const int last = std::min(width_ - 1, static_cast<int>(std::ceil(to)) - 1);
    for (int i = std::max(0, static_cast<int>(std::floor(from))); i <= last; ++i)
      add(static_cast<size_t>(i), (std::min(to, i + 1.0) - std::max(from, double(i))) * scale);
  }
  int width() const { return width_; }

 private:
  Duration begin_, span_;
  int width_;
};

bool is_wire(const TraceSlice& slice) {
  return slice.kind == SliceKind::wire;
}

char mark_of(const TraceSlice& slice) {
  return slice.kind == SliceKind::exposed   ? '!'
         : slice.kind == SliceKind::waiting ? '.'
                                            : letter_of(slice);
}

// Draws each character for the innermost slice: waits lie within operations and other work, and
// operations within other work. Slices are nested, so a slice that is still open when another
// begins contains it.
std::string compute_row(const TracedStep& step, const Ruler& ruler) {
  std::vector<const TraceSlice*> slices;
  for (const TraceSlice& slice : step.slices)
    if (!is_wire(slice)) slices.push_back(&slice);
  std::ranges::stable_sort(slices, [](const TraceSlice* a, const TraceSlice* b) {
    return std::pair(a->begin, b->end) < std::pair(b->begin, a->end);
  });
  std::vector<std::map<char, double>> weights(static_cast<size_t>(ruler.width()));
  std::vector<const TraceSlice*> open;
  for (const TraceSlice* slice : slices) {
    while (!open.empty() && open.back()->end <= slice->begin) open.pop_back();
    ruler.cover(*slice, [&](size_t i, double ns) {
      weights[i][mark_of(*slice)] += ns;
      if (!open.empty()) weights[i][mark_of(*open.back())] -= ns;
    });
    open.push_back(slice);
  }
  std::string row;
  for (const auto& at : weights) {
    char most = ' ';
    double weight = ruler.ns_a_character() / 4;  // shorter slices get no letter
    for (const auto& [what, ns] : at)
      if (ns > weight) most = what, weight = ns;
    row += most;
  }
  return row;
}

std::string wire_row(const TracedStep& step, const Ruler& ruler, std::string_view message) {
  std::vector<std::set<int>> lanes(static_cast<size_t>(ruler.width()));
  for (const TraceSlice& slice : step.slices)
    if (is_wire(slice) && slice.name.starts_with(message))
      ruler.cover(slice, [&](size_t i, double ns) {
        if (ns > ruler.ns_a_character() / 4) lanes[i].insert(slice.half * 4 + slice.part);
      });
  std::string row;
  for (const auto& at : lanes)
    row += at.empty() ? ' ' : at.size() > 1 ? '+' : static_cast<char>('0' + *at.begin());
  return row;
}

Result<uint64_t> choose_step(const StepTrace& trace, const std::optional<uint64_t>& asked) {
  std::map<uint64_t, size_t> ranks;
  for (const TracedStep& step : trace.steps) ++ranks[step.step];
  if (ranks.empty()) return fail(error(ErrorCode::bad_value, "the trace has no step"));
  if (asked && ranks.contains(*asked)) return *asked;
  if (asked)
    return fail(error(ErrorCode::bad_value, "the trace has no step {}, but {} to {}", *asked,
                      ranks.begin()->first, ranks.rbegin()->first)
                    .with_param("step"));
  size_t most = 0;
  for (const auto& [step, count] : ranks) most = std::max(most, count);
  std::erase_if(ranks, [&](const auto& r) { return r.second < most; });
  return std::next(ranks.begin(), static_cast<std::ptrdiff_t>(ranks.size() / 2))->first;
}

// Returns the time from the first to the last operation of these layers, on any rank.
Result<std::pair<Duration, Duration>> window_of(std::span<const TracedStep> steps,
                                                const TraceWindow& window) {
  Duration begin = Duration::max(), end{};
  int last_layer = -1;
  for (const TracedStep& step : steps) {
    if (!window.layers) {
      begin = std::min(begin, step.begin);
      end = std::max(end, step.begin + step.took);
      continue;
    }
    for (const TraceSlice& slice : step.slices) {
      last_layer = std::max(last_layer, slice.layer);
      if (slice.kind != SliceKind::compute || slice.layer < window.layers->first ||
          slice.layer > window.layers->second)
        continue;
      begin = std::min(begin, slice.begin);
      end = std::max(end, slice.end);
    }
  }
  if (begin < end) return std::pair(begin, end);
  return fail(
      error(ErrorCode::bad_value, "the step has layers 0 to {}", last_layer).with_param("layers"));
}

}  // namespace

Result<StepTrace> read_traces(std::span<const std::string> paths) {
  StepTrace trace;
  HOCKET_TRY(trace.file, put_together(paths));
  try {
    drop_loose_arrows(trace.file.at("traceEvents"));
    add_steps(trace);
  } catch (const json::exception& e) {
    return fail(error(ErrorCode::bad_value, "{} is damaged: {}", paths[0], e.what()));
  }
  return trace;
}

Result<std::string> draw_step(const StepTrace& trace, const TraceWindow& window) {
  HOCKET_TRY(const uint64_t number, choose_step(trace, window.step));
  const auto [first, last] = std::ranges::equal_range(trace.steps, number, {}, &TracedStep::step);
  const std::span<const TracedStep> steps(first, last);
  HOCKET_TRY(const auto span, window_of(steps, window));
  const Ruler ruler(span.first, span.second, window.width);
  std::string text = fmt::format(
      "step {} | {}, {} rows | {} | {:.1f} us, 1 character = {:.2f} us\n", number, steps[0].phase,
      steps[0].rows, steps[0].plan, to_us(span.second - span.first), ruler.ns_a_character() / 1000);
  for (const TracedStep& step : steps) {
    text += fmt::format("rank {:<3} compute  |{}|\n", step.rank, compute_row(step, ruler));
    for (const char* message : {"dispatch", "combine"}) {
      const std::string row = wire_row(step, ruler, message);
      if (row.find_first_not_of(' ') != std::string::npos)
        text += fmt::format("         {:<8} |{}|\n", message, row);
    }
  }
  return text;
}

std::string draw_totals(const StepTrace& trace) {
  std::map<int, TracedStep> sums;
  std::map<int, int> counts;
  for (const TracedStep& step : trace.steps) {
    TracedStep& sum = sums[step.rank];
    ++counts[step.rank];
    sum.took += step.took, sum.compute += step.compute, sum.other += step.other;
    sum.exposed += step.exposed, sum.waiting += step.waiting, sum.idle += step.idle;
    sum.hidden += step.hidden;
  }
  std::string text =
      fmt::format("{:<6}{:>7}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}{:>12}{:>9}\n", "rank", "steps",
                  "step ms", "compute", "other", "exposed", "waiting", "idle", "hidden", "hidden");
  for (const auto& [rank, sum] : sums) {
    const Duration moved = sum.hidden + sum.exposed;
    const double share = moved.count() > 0 ? to_seconds(sum.hidden) / to_seconds(moved) : 0;
    text += fmt::format(
        "{:<6}{:>7}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.3f}{:>10.3f}{:>12.3f}{:>8.1f}%\n",
        rank, counts[rank], to_ms(sum.took), to_ms(sum.compute), to_ms(sum.other),
        to_ms(sum.exposed), to_ms(sum.waiting), to_ms(sum.idle), to_ms(sum.hidden), 100 * share);
  }
  return text;
}

}  // namespace hocket
