// The JSON of steps for the page: server/page/live_view.h.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "compute/overlap/op.h"
#include "server/page/live_view.h"

namespace hocket {
namespace {

double us(Duration d) {
  return std::round(to_seconds(d) * 1e9) / 1e3;
}

Json ops_json() {
  Json names = Json::array();
  for (int op = 0; op < kNumBooked; ++op) names.push_back(op_name(Op{static_cast<uint8_t>(op)}));
  return names;
}

Json account_json(const RecentSteps::Step& step) {
  const StepAccount& a = step.account;
  Json compute = Json::array();  // one entry for each of `ops`
  for (const Duration spent : a.compute) compute.push_back(us(spent));
  return {{"step", step.number},
          {"at_us", us(a.begin.time_since_epoch())},
          {"took_us", us(a.took)},
          {"phase", phase_name(a.bucket.phase)},
          {"rows", a.bucket.rows},
          {"kv_tokens", a.bucket.kv_tokens},
          {"plan", step.plan},
          {"is_trial", a.is_trial},
          {"shadow", a.is_trial},  // old name, as beside_us below
          {"compute_us", std::move(compute)},
          {"other_us", us(a.other)},
          {"beside_us", us(a.other)},
          {"exposed_us", us(a.exposed)},
          {"waiting_us", us(a.waiting)},
          {"idle_us", us(a.idle)},
          {"hidden_us", us(a.hidden)},
          {"hidden_is_bound", a.hidden_is_bound}};
}

std::string_view kind_name(LedgerSpan::Kind kind) {
  switch (kind) {
    case LedgerSpan::Kind::op:
      return "op";
    case LedgerSpan::Kind::exposed:
      return "exposed";
    case LedgerSpan::Kind::waiting:
      return "waiting";
    case LedgerSpan::Kind::push:
      return "push";
    case LedgerSpan::Kind::wire:
      return "wire";
    case LedgerSpan::Kind::other:
      return "other";
  }
  return "other";
}

std::string_view what_of(const LedgerSpan& span) {
  if (span.kind == LedgerSpan::Kind::op) return op_name(span.op);
  if (span.kind == LedgerSpan::Kind::other) return span.what;
  return span.message == MessageKind::dispatch  ? "dispatch"
         : span.message == MessageKind::combine ? "combine"
                                                : "agreement";
}

// Returns [kind, what, half, part, layer, from us, to us, bytes]; times are since `zero`.
Json span_json(const LedgerSpan& span, TimePoint zero) {
  return Json::array({kind_name(span.kind), what_of(span), span.half, span.part, span.layer,
                      us(span.begin - zero), us(span.end - zero), span.bytes});
}

using RankSteps = RecentSteps::RankSteps;

// Returns one step with its spans, on all ranks that have it. Times count from its earliest begin.
Json whole_json(uint64_t number, const std::vector<RankSteps>& all) {
  std::vector<std::pair<int, const RecentSteps::Step*>> here;
  TimePoint zero = TimePoint::max();
  for (const RankSteps& rank : all)
    for (const RecentSteps::Step& step : rank.steps) {
      if (step.number != number) continue;
      here.emplace_back(rank.rank, &step);
      zero = std::min(zero, step.account.begin);
    }
  Json ranks = Json::array();
  for (const auto& [rank, step] : here) {
    Json spans = Json::array();
    for (const LedgerSpan& span : step->spans) spans.push_back(span_json(span, zero));
    ranks.push_back({{"dp_rank", rank},
                     {"from_us", us(step->account.begin - zero)},
                     {"took_us", us(step->account.took)},
                     {"half_rows", step->account.half_rows},
                     {"spans", std::move(spans)}});
  }
  return {{"step", number},
          {"columns", {"kind", "what", "half", "part", "layer", "from_us", "to_us", "bytes"}},
          {"ranks", std::move(ranks)}};
}

Json accounts_json(const std::vector<RankSteps>& all) {
  Json ranks = Json::array();
  bool exact = false;
  size_t num_left_out = 0;
  for (const RankSteps& rank : all) {
    Json steps = Json::array();
    for (const RecentSteps::Step& step : rank.steps) {
      steps.push_back(account_json(step));
      exact = step.account.exact_arrival;
      num_left_out += step.num_left_out;
    }
    ranks.push_back({{"dp_rank", rank.rank}, {"steps", std::move(steps)}});
  }
  return {{"booked", true},
          {"max_steps", RecentSteps::kSteps},
          {"most_steps", RecentSteps::kSteps},  // its name before
          {"now_us", us(RealClock().now().time_since_epoch())},
          {"exact_arrival", exact},
          {"spans_left_out", num_left_out},
          {"ops", ops_json()},
          {"ranks", std::move(ranks)}};
}

// Returns the newest step that all ranks have; 0 if there is none.
uint64_t newest_of(const std::vector<RankSteps>& all) {
  uint64_t newest = UINT64_MAX;
  for (const RankSteps& rank : all)
    newest = std::min(newest, rank.steps.empty() ? 0 : rank.steps.back().number);
  return all.empty() ? 0 : newest;
}

std::string all_text(const RecentSteps& recent) {
  const std::vector<RankSteps> all = recent.steps(std::nullopt);
  std::set<uint64_t> numbers;
  for (const RankSteps& rank : all)
    for (const RecentSteps::Step& step : rank.steps) numbers.insert(step.number);
  Json out = accounts_json(all);
  out["details"] = Json::array();
  for (const uint64_t number : numbers) out["details"].push_back(whole_json(number, all));
  return to_text(out);
}

}  // namespace

Json steps_json(const RecentSteps& recent) {
  const std::vector<RankSteps> all = recent.accounts();
  Json out = accounts_json(all);
  const uint64_t newest = newest_of(all);
  out["details"] = Json::array();
  if (newest != 0) out["details"].push_back(whole_json(newest, recent.steps(newest)));
  return out;
}

Result<std::string> step_text(const RecentSteps& recent, std::string_view path) {
  const std::string_view name = path.substr(kStepsPath.size());
  if (name == "trace") return recent.trace();
  if (name == "all") return all_text(recent);
  uint64_t number = 0;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (wrong != std::errc() || end != name.data() + name.size())
    return fail(error(ErrorCode::not_found, "there is no {}", path.substr(0, 128))
                    .with_fix("/steps/NUMBER, /steps/all or /steps/trace"));
  const std::vector<RankSteps> here = recent.steps(number);
  if (std::ranges::all_of(here, [](const RankSteps& rank) { return rank.steps.empty(); }))
    return fail(
        error(ErrorCode::not_found, "step {} is not among the last {}", number, RecentSteps::kSteps)
            .with_fix("/steps lists the available steps"));
  return to_text(whole_json(number, here));
}

}  // namespace hocket
