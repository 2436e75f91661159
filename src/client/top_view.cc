#include "client/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace hocket {
namespace {

constexpr int kMinBar = 10, kMaxBar = 60;  // columns
// From this share of used KV pages on the bar is red, since requests may be retracted.
constexpr double kHigh = 0.9;

// Returns the first `columns` columns of a line; colours take none.
std::string cut(std::string_view line, int columns) {
  std::string out;
  bool colored = false;
  for (size_t i = 0; i < line.size();) {
    if (line[i] == '\x1b') {
      const size_t end = std::min(line.find('m', i), line.size() - 1) + 1;
      out += line.substr(i, end - i);
      colored = !line.substr(i, end - i).ends_with("[0m");
      i = end;
      continue;
    }
    size_t end = i + 1;
    while (end < line.size() && (line[end] & 0xC0) == 0x80) ++end;  // to the end of a character
    if (columns-- <= 0) break;
    out += line.substr(i, end - i);
    i = end;
  }
  if (colored) out += "\x1b[0m";
  return out;
}

class Page {
 public:
  Page(const MetricView& now, const MetricView& before, const TopFrame& frame)
      : now_(now), before_(before), frame_(frame) {}

  std::string draw() {
    line("{}", frame_.title);
    line("{}", frame_.seconds > 0 ? fmt::format("over the last {:.1f} s", frame_.seconds)
                                  : "since the start");
    line("");
    requests();
    tokens();
    cache();
    latencies();
    const size_t num_above = lines_.size();
    ranks();
    const size_t num_with_ranks = lines_.size();
    http();
    shorten(num_above + 2, num_with_ranks);
    std::string text;
    for (const std::string& one : lines_)
      text += (frame_.columns > 0 ? cut(one, frame_.columns) : one) + '\n';
    return text;
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    lines_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  // Removes lines of ranks, which are [first, last), until the page has at most frame_.rows lines.
  void shorten(size_t first, size_t last) {
    const auto room = static_cast<size_t>(frame_.rows);
    if (room == 0 || lines_.size() <= room) return;
    const size_t too_many = lines_.size() - room + 1;  // 1 for the line "... and N more ranks"
    if (too_many >= last - first) {
      lines_.resize(std::min(lines_.size(), room));
      return;
    }
    const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(last);
    lines_.insert(lines_.erase(end - static_cast<std::ptrdiff_t>(too_many), end),
                  fmt::format("... and {} more ranks", too_many));
  }
  double more(std::string_view name) const { return now_.sum(name) - before_.sum(name); }
  // Returns the amount a second, or the amount itself if the frame has no length of time.
  std::string rate(double amount) const {
    return frame_.seconds > 0 ? fmt::format("{:.1f}/s", amount / frame_.seconds)
                              : fmt::format("{:.0f}", amount);
  }
  std::string colored(std::string_view text, const char* code) const {
    if (frame_.style == TopFrame::Style::plain || text.empty()) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
  }
  std::string bar(double share, int width) const {
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
    const std::string beside = fmt::format("{:.0f} % used, {:.0f} % cached prefixes, of {:.0f}",
                                           100 * used, pages > 0 ? 100 * cached / pages : 0, pages);
    const int room = frame_.columns - static_cast<int>(beside.size()) - 13;
    const int width = frame_.columns > 0 ? std::clamp(room, kMinBar, kMaxBar) : kMaxBar;
    line("KV pages  {} {}", bar(used, width), beside);
  }
  // Returns "-" for 0: nothing was measured.
  static std::string ms(double seconds) {
    return seconds > 0 ? fmt::format("{:.1f}", 1e3 * seconds) : "-";
  }
  void latencies() {
    line("");
    line("{:<10}{:>10}{:>10}{:>10}", "ms", "p50", "p90", "p99");
    for (const auto& [name, metric] : {std::pair{"ttft", "time_to_first_token_seconds"},
                                       {"queue", "queue_time_seconds"},
                                       {"itl", "inter_token_latency_seconds"},
                                       {"e2e", "e2e_request_latency_seconds"}})
      line("{:<10}{:>10}{:>10}{:>10}", name, ms(now_.quantile(metric, 0.5, before_)),
           ms(now_.quantile(metric, 0.9, before_)), ms(now_.quantile(metric, 0.99, before_)));
  }
  void ranks() {
    line("");
    line("{:<6}{:>9}{:>9}{:>7}{:>11}{:>10}{:>10}", "rank", "running", "waiting", "KV %", "tokens/s",
         "step ms", "hidden %");
    for (const std::string& rank : now_.values("num_running_reqs", "dp_rank")) {
      const auto of = [&](std::string_view name) { return now_.sum(name, "dp_rank", rank); };
      line("{:<6}{:>9.0f}{:>9.0f}{:>7.0f}{:>11.1f}{:>10.2f}{:>10.0f}", rank, of("num_running_reqs"),
           of("num_queue_reqs"), 100 * of("token_usage"), of("gen_throughput"),
           1e3 * of("last_step_seconds"), 100 * of("overlap_hidden_share"));
    }
  }
  void http() {
    line("");
    line("HTTP      {:.0f} connections, {:.0f} requests under way", now_.sum("http_connections"),
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
  std::vector<std::string> lines_;
};

}  // namespace

std::string draw_top(const MetricView& now, const MetricView& before, const TopFrame& frame) {
  return Page(now, before, frame).draw();
}

}  // namespace hocket
