#include "bench/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace hocket {
namespace {

constexpr int kBarMax = 40, kBarRoom = 40;  // columns: of a bar, and of what stands beside it
constexpr double kHigh = 0.9;               // of the KV cache: requests may have to be put back

class Page {
 public:
  Page(const MetricView& now, const MetricView& before, const TopFrame& frame)
      : now_(now), before_(before), frame_(frame) {}

  std::string draw() {
    line("{}", frame_.title);
    line("{}\n", frame_.seconds > 0 ? fmt::format("over the last {:.1f} s", frame_.seconds)
                                    : "since the start");
    requests();
    tokens();
    cache();
    latencies();
    ranks();
    rest();
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  double more(std::string_view name) const { return now_.sum(name) - before_.sum(name); }
  // How much of it a second; without a time, how much.
  std::string rate(double amount) const {
    return frame_.seconds > 0 ? fmt::format("{:.1f}/s", amount / frame_.seconds)
                              : fmt::format("{:.0f}", amount);
  }
  std::string colored(std::string_view text, const char* code) const {
    if (frame_.style == TopFrame::Style::plain) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
  }
  std::string bar(double share) const {
    const int width = std::clamp(frame_.columns - kBarRoom, 10, kBarMax);
    const int full = std::clamp(static_cast<int>(std::lround(share * width)), 0, width);
    const std::string filled(static_cast<size_t>(full), '#');
    return "[" + colored(filled, share >= kHigh ? "31" : "32") +
           std::string(static_cast<size_t>(width - full), '.') + "]";
  }

  void requests() {
    line("requests  {:.0f} running, {:.0f} waiting | {} ended, {} aborted, {} failed",
         now_.sum("num_running_reqs"), now_.sum("num_queue_reqs"), rate(more("num_requests_total")),
         rate(more("num_aborted_requests_total")), rate(more("num_failed_requests_total")));
  }
  void tokens() {
    const double prompt = more("prompt_tokens_total"), cached = more("cached_tokens_total");
    line("tokens    {} prompt, {:.0f} % of them cached | {} generated", rate(prompt),
         prompt > 0 ? 100 * cached / prompt : 0, rate(more("generation_tokens_total")));
  }
  void cache() {
    const double pages = now_.sum("num_pages"), free = now_.sum("num_free_pages");
    const double cached = now_.sum("num_cached_pages");
    const double used = pages > 0 ? (pages - free - cached) / pages : 0;
    line("KV pages  {} {:.0f} % used, {:.0f} % cached prefixes, of {:.0f}", bar(used), 100 * used,
         pages > 0 ? 100 * cached / pages : 0, pages);
  }
  void latencies() {
    line("\n{:<10}{:>10}{:>10}{:>10}", "ms", "p50", "p90", "p99");
    for (const auto& [name, metric] : {std::pair{"ttft", "time_to_first_token_seconds"},
                                       {"queue", "queue_time_seconds"},
                                       {"itl", "inter_token_latency_seconds"},
                                       {"e2e", "e2e_request_latency_seconds"}})
      line("{:<10}{:>10.1f}{:>10.1f}{:>10.1f}", name, 1e3 * now_.quantile(metric, 0.5, before_),
           1e3 * now_.quantile(metric, 0.9, before_), 1e3 * now_.quantile(metric, 0.99, before_));
  }
  void ranks() {
    line("\n{:<6}{:>9}{:>9}{:>7}{:>11}{:>10}{:>10}", "rank", "running", "waiting", "KV %",
         "tokens/s", "step ms", "hidden %");
    for (const std::string& rank : now_.values("num_running_reqs", "dp_rank")) {
      const auto of = [&](std::string_view name) { return now_.sum(name, "dp_rank", rank); };
      line("{:<6}{:>9.0f}{:>9.0f}{:>7.0f}{:>11.1f}{:>10.2f}{:>10.0f}", rank, of("num_running_reqs"),
           of("num_queue_reqs"), 100 * of("token_usage"), of("gen_throughput"),
           1e3 * of("last_step_seconds"), 100 * of("overlap_hidden_share"));
    }
  }
  void rest() {
    line("\nHTTP      {:.0f} connections, {:.0f} requests under way", now_.sum("http_connections"),
         now_.sum("http_active_requests"));
    std::string statuses;
    for (const std::string& status : now_.values("http_requests_total", "status")) {
      if (status.empty()) continue;
      const double count = now_.sum("http_requests_total", "status", status) -
                           before_.sum("http_requests_total", "status", status);
      statuses += fmt::format("  {}: {}", status, rate(count));
    }
    if (!statuses.empty()) line("answers {}", statuses);
    if (const double silent = now_.largest("seconds_since_last_step"); silent > 1)
      line("{}", colored(fmt::format("no step for {:.1f} s although there is work", silent), "31"));
  }

  const MetricView& now_;
  const MetricView& before_;
  const TopFrame& frame_;
  std::string text_;
};

}  // namespace

std::string draw_top(const MetricView& now, const MetricView& before, const TopFrame& frame) {
  return Page(now, before, frame).draw();
}

}  // namespace hocket
