#include "bench/serving.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/quantile.h"
#include "bench/bench_error.h"
#include "server/reports/info_json.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kRestSeconds = 5;  // time for pages to be freed after the last answer

// KV pages as /metrics counts them.
struct Pages {
  int64_t all = 0, free = 0, cached = 0, priv = 0;
  int64_t busy = 0;  // requests that run or wait
  bool whole() const { return busy == 0 && priv == 0 && free + cached == all; }
};

// Returns the first sample of a metric. Errors: io.
Result<double> metric(std::string_view text, std::string_view name) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; at += name.size()) {
    const char after = text.substr(at + name.size()).empty() ? '\0' : text[at + name.size()];
    if ((at > 0 && text[at - 1] != '\n') || (after != '{' && after != ' ')) continue;
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    const std::string_view number = line.substr(line.rfind(' ') + 1);
    double value = 0;
    if (std::from_chars(number.begin(), number.end(), value).ec == std::errc()) return value;
  }
  return fail(ErrorCode::io, "/metrics does not tell {}", name);
}

Result<int64_t> whole_metric(std::string_view text, std::string_view name) {
  HOCKET_TRY(const double value, metric(text, name));
  return static_cast<int64_t>(value);
}

Result<Pages> read_pages(BlockingHttpClient& client) {
  HOCKET_TRY(const HttpAnswer answer, client.get("/metrics"));
  Pages pages;
  HOCKET_TRY(pages.all, whole_metric(answer.body, "hocket:num_pages"));
  HOCKET_TRY(pages.free, whole_metric(answer.body, "hocket:num_free_pages"));
  HOCKET_TRY(pages.cached, whole_metric(answer.body, "hocket:num_cached_pages"));
  HOCKET_TRY(pages.priv, whole_metric(answer.body, "hocket:num_private_pages"));
  HOCKET_TRY(const int64_t running, whole_metric(answer.body, "hocket:num_running_reqs"));
  HOCKET_TRY(const int64_t waiting, whole_metric(answer.body, "hocket:num_queue_reqs"));
  pages.busy = running + waiting;
  return pages;
}

// Seconds that the ranks of the server's process spent in steps, in waits for other ranks' rows,
// and in waits for agreements.
struct StepSeconds {
  double steps = 0, rows = 0, agreements = 0;

  // Returns `part` as a share of the time of steps; 0 if there were no steps.
  double share(double part) const { return steps > 0 ? part / steps : 0; }
};

Result<StepSeconds> read_steps(BlockingHttpClient& client) {
  HOCKET_TRY(const HttpAnswer answer, client.get("/metrics"));
  StepSeconds now;
  HOCKET_TRY(now.steps, metric(answer.body, "hocket:step_seconds_total"));
  HOCKET_TRY(now.rows, metric(answer.body, "hocket:exchange_wait_seconds_total"));
  HOCKET_TRY(now.agreements, metric(answer.body, "hocket:agreement_wait_seconds_total"));
  return now;
}

StepSeconds operator-(const StepSeconds& a, const StepSeconds& b) {
  return {a.steps - b.steps, a.rows - b.rows, a.agreements - b.agreements};
}

// Pages at the end of the load, and seconds spent during it.
struct ServerSide {
  Pages pages;
  StepSeconds seconds;
};

// Returns the pages when all are accounted for and no request is left, or after kRestSeconds.
Result<Pages> pages_at_rest(BlockingHttpClient& client) {
  const TimePoint deadline = RealClock().now() + from_seconds(kRestSeconds);
  while (true) {
    HOCKET_TRY(const Pages pages, read_pages(client));
    if (pages.whole() || RealClock().now() > deadline) return pages;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Result<int> vocabulary(BlockingHttpClient& client) {
  HOCKET_TRY(const HttpAnswer answer, client.get("/get_model_info"));
  const Json info = Json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !info.is_object() || !info.contains("vocab_size") ||
      !info["vocab_size"].is_number_integer())
    return fail(ErrorCode::io, "/get_model_info answers {} and no vocab_size: {}", answer.status,
                answer.body.substr(0, 200));
  return info["vocab_size"].get<int>();
}

struct Latency {
  std::string_view name;
  const std::vector<double>& ms;
};

void print_load_json(const LoadOptions& load, const LoadResult& r, const ServerSide& server,
                     const std::array<Latency, 3>& latencies) {
  const Pages& pages = server.pages;
  Json line = {{"case", "serving"},
               {"clients", load.max_concurrency},
               {"seconds", r.seconds},
               {"num_ok", r.num_ok},
               {"num_failed", r.num_failed},
               {"requests_per_s", r.num_ok / r.seconds},
               {"prompt_tokens_per_s", static_cast<double>(r.prompt_tokens) / r.seconds},
               {"cached_tokens", r.cached_tokens},
               {"prompt_tokens", r.prompt_tokens},
               {"output_tokens_per_s", static_cast<double>(r.output_tokens) / r.seconds}};
  for (const Latency& l : latencies)
    line[fmt::format("{}_ms", l.name)] = {
        {"p50", quantile(l.ms, 0.5)}, {"p90", quantile(l.ms, 0.9)}, {"p99", quantile(l.ms, 0.99)}};
  line["errors"] = r.errors;
  line["wait_share"] = {{"rows", server.seconds.share(server.seconds.rows)},
                        {"agreements", server.seconds.share(server.seconds.agreements)}};
  line["pages"] = {{"all", pages.all},
                   {"free", pages.free},
                   {"cached", pages.cached},
                   {"private", pages.priv},
                   {"whole", pages.whole()}};
  fmt::print("{}\n", line.dump());
}

void print_load_text(const LoadOptions& load, const LoadResult& r, const ServerSide& server,
                     const std::array<Latency, 3>& latencies) {
  const Pages& pages = server.pages;
  fmt::print("serving  http://{}:{} | {} clients | {:.1f} s\n", load.server.host, load.server.port,
             load.max_concurrency, r.seconds);
  fmt::print("requests {} ok, {} failed | {:.1f} a second\n", r.num_ok, r.num_failed,
             r.num_ok / r.seconds);
  for (const auto& [kind, count] : r.errors) fmt::print("  failed {} | {}\n", count, kind);
  const double cached = r.prompt_tokens == 0 ? 0
                                             : 100.0 * static_cast<double>(r.cached_tokens) /
                                                   static_cast<double>(r.prompt_tokens);
  fmt::print("tokens   prompt {:.0f}/s, {:.0f} % of them cached | output {:.0f}/s\n",
             static_cast<double>(r.prompt_tokens) / r.seconds, cached,
             static_cast<double>(r.output_tokens) / r.seconds);
  for (const Latency& l : latencies)
    fmt::print("{:<8} p50 {:.1f} ms | p90 {:.1f} ms | p99 {:.1f} ms\n", l.name, quantile(l.ms, 0.5),
               quantile(l.ms, 0.9), quantile(l.ms, 0.99));
  if (const StepSeconds& s = server.seconds; s.rows > 0)
    fmt::print("waits    {:.1f} % of the steps' time for other ranks' rows | {:.1f} % agreeing\n",
               100 * s.share(s.rows), 100 * s.share(s.agreements));
  fmt::print("pages    free {} + cached {} + private {} = {} of {} | {}\n", pages.free,
             pages.cached, pages.priv, pages.free + pages.cached + pages.priv, pages.all,
             pages.whole()     ? "ok"
             : pages.busy != 0 ? fmt::format("FAILED: {} requests still run or wait", pages.busy)
                               : "FAILED: pages are missing, or private at rest");
}

// Returns the server's scheduler options in the form of a log. Errors: io.
Result<Json> scheduler_of(BlockingHttpClient& client) {
  HOCKET_TRY(const HttpAnswer answer, client.get("/get_server_info"));
  return scheduler_json(Json::parse(answer.body, nullptr, false));
}

// Returns the tokens that all prompts share. In chat only the server counts tokens, so it is the
// largest number of cached tokens that the server reported.
int shared_len(const LoadOptions& load, const LoadResult& r) {
  if (load.endpoint != Endpoint::chat) return load.shared_prefix_len;
  int most = 0;
  for (const AnsweredRequest& a : r.answered) most = std::max(most, a.cached_len);
  return most;
}

Result<void> write_log(const std::string& path, const LoadOptions& load, const LoadResult& r,
                       Json scheduler) {
  std::ofstream file(path);
  const Json head = {
      {"hocket_log", 1},
      {"max_concurrency", load.max_concurrency},
      {"request_rate", load.request_rate},
      {"scheduler", std::move(scheduler)},
      {"measured",
       {{"seconds", r.seconds},
        {"output_tokens_per_s", static_cast<double>(r.output_tokens) / r.seconds},
        {"ttft_p50_ms", quantile(r.ttft_ms, 0.5)},
        {"ttft_p99_ms", quantile(r.ttft_ms, 0.99)},
        {"itl_p50_ms", quantile(r.itl_ms, 0.5)},
        {"itl_p99_ms", quantile(r.itl_ms, 0.99)},
        {"e2e_p50_ms", quantile(r.e2e_ms, 0.5)},
        {"cached_share", r.prompt_tokens == 0 ? 0
                                              : static_cast<double>(r.cached_tokens) /
                                                    static_cast<double>(r.prompt_tokens)}}}};
  file << head.dump() << '\n';
  const int shared = shared_len(load, r);
  for (const AnsweredRequest& a : r.answered) {
    const int common = std::min(shared, a.input_len - 1);
    const Json line = {{"timestamp", a.due_ms},
                       {"input_length", a.input_len},
                       {"output_length", a.output_len},
                       {"hash_ids", {0, a.index + 1}},
                       {"hash_lengths", {common, a.input_len - common}},
                       {"cached_tokens", a.cached_len},
                       {"ttft_ms", a.ttft_ms},
                       {"e2e_ms", a.e2e_ms}};
    file << line.dump() << '\n';
  }
  file.close();
  if (!file) return fail(ErrorCode::io, "the log {} cannot be written", path);
  return {};
}

Result<void> check(const LoadOptions& o) {
  HOCKET_TRY_VOID(check_number("num-prompts", o.num_prompts, {1, 1e7}));
  HOCKET_TRY_VOID(check_number("max-concurrency", o.max_concurrency, {1, 4096}));
  HOCKET_TRY_VOID(check_number("random-input-len", o.input_len, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("random-output-len", o.output_len, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("shared-prefix-len", o.shared_prefix_len, {0, 1e9}));
  HOCKET_TRY_VOID(check_number("random-range-ratio", o.range_ratio, {0, 1}));
  HOCKET_TRY_VOID(check_number("request-rate", o.request_rate, {0, 1e9}));
  return check_number("seconds", o.seconds, {0, 1e9});
}

Result<int> run(BenchServingOptions& options) {
  LoadOptions& load = options.load;
  HOCKET_TRY_VOID(check(load));
  BlockingHttpClient client(load.server);
  HOCKET_TRY(load.vocab_size, vocabulary(client));
  HOCKET_TRY(const StepSeconds before, read_steps(client));
  const LoadResult result = run_load(load);
  ServerSide server;
  HOCKET_TRY(server.pages, pages_at_rest(client));
  HOCKET_TRY(const StepSeconds after, read_steps(client));
  server.seconds = after - before;
  const std::array<Latency, 3> latencies = {
      Latency{"ttft", result.ttft_ms}, {"itl", result.itl_ms}, {"e2e", result.e2e_ms}};
  (options.json ? print_load_json : print_load_text)(load, result, server, latencies);
  if (!options.log.empty()) {
    HOCKET_TRY(Json scheduler, scheduler_of(client));
    HOCKET_TRY_VOID(write_log(options.log, load, result, std::move(scheduler)));
  }
  return result.num_failed == 0 && result.num_ok > 0 && server.pages.whole() ? 0 : 1;
}

}  // namespace

int bench_serving(BenchServingOptions options) {
  const Result<int> done = run(options);
  return done ? *done : end_with(done.error());
}

}  // namespace hocket
