#include "apps/plan_split.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace hocket {
namespace {

constexpr double kIntervals[] = {0.025, 0.05, 0.1, 0.2, 0.4};  // seconds
constexpr int kMinPrompt = 512, kSplitAnswer = 256;            // tokens
constexpr double kSplitLinkGbit = 10;

std::string split_cell(const SplitPoint& point) {
  if (point.mixed_per_s == 0 && point.split_per_s == 0) return "-";
  const std::string rates = fmt::format("{:.3g} > {:.3g}", point.mixed_per_s, point.split_per_s);
  return point.pays() ? fmt::format("{} *{}", rates, point.num_prefill) : rates;
}

}  // namespace

Result<void> check_split_hosts(int num_hosts, const ParallelSettings& parallel) {
  if (num_hosts == 0 || (num_hosts >= 2 && num_hosts <= kMaxSplitHosts && parallel.ep_size == 1))
    return {};
  Error why =
      num_hosts < 2 || num_hosts > kMaxSplitHosts
          ? error(ErrorCode::bad_value,
                  "--disaggregation-hosts is {}, must be 0 or between 2 and {}", num_hosts,
                  kMaxSplitHosts)
          : error(ErrorCode::bad_value,
                  "--disaggregation-hosts plans hosts of one rank each, and --ep-size asks for {}",
                  parallel.ep_size);
  return fail(std::move(why)
                  .with_param("disaggregation-hosts")
                  .with_fix("--disaggregation-hosts 2, without --ep-size and --overlap"));
}

std::vector<SplitPoint> plan_split(const ForecastInput& input, const Forecast& forecast,
                                   int num_hosts) {
  const double gbit = input.settings.parallel.ep_link_gbit;
  SplitForecastInput split{.num_hosts = num_hosts,
                           .answer_len = kSplitAnswer,
                           .link_bytes_per_s = (gbit > 0 ? gbit : kSplitLinkGbit) * 1e9 / 8,
                           .interval_s = {std::begin(kIntervals), std::end(kIntervals)}};
  const int longest = forecast.memory.context_length - kSplitAnswer;
  for (int len = kMinPrompt; len <= longest; len *= 4) split.prompt_lens.push_back(len);
  if (split.prompt_lens.empty()) split.prompt_lens.push_back(std::max(1, longest));
  return forecast_split(forecast, input.speed, split);
}

void print_split(const std::vector<SplitPoint>& points, int num_hosts) {
  fmt::print(
      "\nprefill apart from decode, on {} hosts like this one: requests/s mixed > apart, answers "
      "of {} tokens,\nby the limit of the time to the next token\n  prompt  ",
      num_hosts, kSplitAnswer);
  for (const double interval_s : kIntervals) fmt::print("{:>17.0f} ms", interval_s * 1e3);
  int line = 0;
  bool pays = false;
  for (const SplitPoint& point : points) {
    if (point.prompt_len != line) fmt::print("\n  {:<8}", line = point.prompt_len);
    fmt::print("{:>20}", split_cell(point));
    pays |= point.pays();
  }
  fmt::print(
      "\n  {}\n",
      pays ? "* it pays (10 % or more), with this number of hosts for prompts; - cannot be kept"
           : "it pays nowhere here; - cannot be kept");
}

nlohmann::ordered_json split_json(const std::vector<SplitPoint>& points) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const SplitPoint& point : points)
    all.push_back({{"prompt_tokens", point.prompt_len},
                   {"interval_ms", point.interval_s * 1e3},
                   {"mixed_requests_per_s", point.mixed_per_s},
                   {"split_requests_per_s", point.split_per_s},
                   {"prefill_hosts", point.num_prefill},
                   {"pays", point.pays()}});
  return all;
}

}  // namespace hocket
