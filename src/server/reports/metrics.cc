#include "server/reports/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/log.h"
#include "server/reports/cache_tier_metrics.h"
#include "server/reports/expert_metrics.h"
#include "server/reports/grammar_metrics.h"
#include "server/reports/metric_snapshot.h"
#include "server/reports/overlap_view.h"
#include "server/reports/speculation_view.h"

namespace hocket {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;

const Histogram::BucketBoundaries kRequestSeconds = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1,
    2,     4,     6,     8,    10,   20,   40,  60,  100, 200, 400};
const Histogram::BucketBoundaries kTokenSeconds = {
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04,
    0.06,   0.08,  0.1,   0.15,  0.2,   0.4,   0.6,  0.8,   1,    2,    4};

// Names of FinishReason, in its order, without `none`.
constexpr std::array kReasons = {"stop", "length", "abort", "error"};

// front_labels() returns the labels that SGLang's tokenizer manager uses, rank_labels() those of
// its schedulers. A rank here is a rank of data-parallel attention and of expert parallelism.
prometheus::Labels front_labels(const EngineInfo& info) {
  return {{"model_name", info.served_model_name}};
}
prometheus::Labels rank_labels(const EngineInfo& info, int rank) {
  prometheus::Labels labels = front_labels(info);
  labels.emplace("engine_type", "unified");
  for (const char* other : {"tp_rank", "pp_rank"}) labels.emplace(other, "0");
  for (const char* own : {"moe_ep_rank", "dp_rank"}) labels.emplace(own, std::to_string(rank));
  return labels;
}

void add_load(MetricSnapshot& out, const RankStats& engine) {
  const SchedulerStats& s = engine.scheduler;
  out.gauge("num_running_reqs", "Requests that hold a place in the batch", s.num_running);
  out.gauge("num_queue_reqs", "Requests that wait", s.num_waiting);
  add_page_waits(out, engine);
  out.gauge("num_queue_tokens", "Prompt tokens of the requests that wait",
            static_cast<double>(s.num_waiting_tokens));
  out.gauge("num_used_tokens", "Tokens in pages that are neither free nor evictable",
            static_cast<double>(s.num_used_tokens));
  out.gauge("token_usage", "num_used_tokens as a share of the pool", s.token_usage);
  out.gauge("new_token_ratio", "Share of the tokens still to come that admission reserves",
            s.new_token_ratio);
  out.gauge("cache_hit_rate",
            "Share of all prompt tokens so far that came from the cache; retractions do not count",
            share(s.cached_tokens_total, s.prompt_tokens_total));
  out.gauge("gen_throughput", "Tokens a second, of late", engine.gen_throughput);
  out.gauge("input_throughput", "Prompt tokens a second, of late", engine.input_throughput);
  out.gauge("num_pages", "KV pages", s.num_pages);
  out.gauge("num_free_pages", "KV pages that hold nothing", s.num_free_pages);
  out.gauge("num_cached_pages", "KV pages of the prefix cache", s.num_cached_pages);
  out.gauge("num_private_pages", "KV pages of single requests", s.num_private_pages);
  out.gauge("num_window_pages", "Pages of window layers", s.num_window_pages);
  out.gauge("num_free_window_pages", "Window pages that hold nothing", s.num_free_window_pages);
  out.gauge("num_cached_window_pages", "Window pages of the prefix cache",
            s.num_cached_window_pages);
  out.gauge("num_states", "Slots for states of delta nets", s.num_states);
  out.gauge("num_free_states", "Slots for states that hold nothing", s.num_free_states);
  out.gauge("num_cached_states", "States of the prefix cache", s.num_cached_states);
  out.gauge("num_sessions", "Sessions that are kept", s.num_sessions);
}

void add_events(MetricSnapshot& out, const RankStats& engine) {
  out.gauge("num_retracted_reqs", "Requests put back to the queue between the last two log lines",
            engine.steps.num_retracted_lately);
  out.counters<SchedulerEvents>(kSchedulerEvents, engine.scheduler);
}

void add_steps(MetricSnapshot& out, const RankStats& engine) {
  const SchedulerStats& s = engine.scheduler;
  out.counters<StepCounters>(kStepCounters, engine.steps);
  const char* effective_help =
      "Prompt tokens of requests that began, to compute or from the prefix cache, each once";
  out.counter("prefill_effective_tokens_total", effective_help,
              s.prompt_tokens_total - s.cached_tokens_total, {"mode", "input"});
  const uint64_t fetched = num_fetched_tokens(engine);
  out.counter("prefill_effective_tokens_total", effective_help, s.cached_tokens_total - fetched,
              {"mode", "device_hit"});
  out.counter("prefill_effective_tokens_total", effective_help, fetched, {"mode", "storage_hit"});
  out.gauge("itl_chunk_tokens", "Prompt tokens that --prefill-policy latency allowed last",
            s.itl_chunk_tokens);
  out.gauge("step_time_error", "How far the times of steps are from what that policy foretold",
            s.step_time_error);
  out.gauge("last_step_seconds", "Length of the last step", engine.last_step_seconds);
  out.counters<StepTimeCounters>(kStepTimeCounters, engine);
  out.gauge("seconds_since_last_step", "While there is work; 0 when idle",
            engine.seconds_since_last_step);
  out.gauge("is_cuda_graph", "1 where the last step replayed a device graph", 0);
}

// The engine's sizes are the sums of all ranks, so those of the rank are used.
void add_constants(MetricSnapshot& out, const EngineInfo& info, const RankInfo& rank) {
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / double{1 << 30}; };
  out.gauge("max_total_num_tokens", "Tokens that all KV pages hold",
            static_cast<double>(rank.max_total_tokens));
  out.gauge("max_running_requests", "Places in the batch", rank.max_running_requests);
  out.gauge("page_size", "Tokens of a KV page", info.page_tokens);
  out.gauge("context_len", "Tokens of a prompt and its answer", info.context_length);
  out.gauge("weight_memory_usage_gb", "Memory of the weights, GiB", gib(rank.weight_bytes));
  out.gauge("kv_cache_memory_usage_gb", "Memory of the KV pages, GiB", gib(rank.kv_bytes));
}

RankInfo info_of(const EngineInfo& info, int rank) {
  if (!info.ranks.empty()) return info.ranks[static_cast<size_t>(rank)];
  return {.max_running_requests = info.max_running_requests,
          .max_total_tokens = info.max_total_tokens,
          .weight_bytes = info.weight_bytes,
          .kv_bytes = info.kv_bytes};
}

void add_totals(MetricSnapshot& out, const EngineStats& engine) {
  const SchedulerStats& s = engine.scheduler;
  out.counter("prompt_tokens_total", "Prompt tokens taken in", s.prompt_tokens_total);
  add_cached_tokens(out, engine);
  out.counter("recomputed_tokens_total",
              "Prompt tokens computed again although their pages were cached: no state, no window",
              s.recomputed_tokens_total);
  out.counter("generation_tokens_total", "Tokens generated", s.generated_tokens_total);
  out.counter("grammar_forced_tokens_total",
              "Tokens that a grammar forced, each of which saved its request a step",
              s.forced_tokens_total);
  out.counters<EndCounters>(kEndCounters, engine);
}

// Adds a gauge, and the same under the name that it had before.
void add_renamed(MetricSnapshot& out, const char* name, const char* old_name, const char* help,
                 double value) {
  out.gauge(name, help, value);
  out.gauge(old_name, MetricSnapshot::old_help(name, help).c_str(), value);
}

// Adds what this rank knows of the other ranks, if they run in several processes.
void add_cluster(MetricSnapshot& out, const ClusterCounts& cluster) {
  out.gauge("cluster_epoch", "Epoch of the cluster: how often its set of ranks changed",
            cluster.epoch);
  add_renamed(out, "cluster_member_ranks", "cluster_ranks_in", "Ranks that are members",
              static_cast<double>(std::ranges::count(cluster.up, true)));
  const auto each = [&](auto&& visit) {
    for (size_t rank = 0; rank < cluster.up.size(); ++rank) visit(rank, std::to_string(rank));
  };
  each([&](size_t rank, std::string name) {
    out.gauge("cluster_rank_up", "1 if the rank is a member", cluster.up[rank] ? 1 : 0,
              {"rank", std::move(name)});
  });
  out.counter("cluster_lost_ranks_total", "Times a rank was lost", cluster.num_lost);
  out.gauge("forwarded_requests", "Requests that came to this rank and are computed by another",
            static_cast<double>(cluster.num_forwards));
  const auto each_other = [&](auto&& visit) {
    each([&](size_t rank, std::string name) {
      if (static_cast<int>(rank) != cluster.rank) visit(rank, std::move(name));
    });
  };
  out.counter("forwarded_requests_resumed_total",
              "Forwarded requests that this rank continued when the other was lost",
              cluster.num_resumed);
  each_other([&](size_t rank, std::string name) {
    out.counter("forwarded_requests_total", "Requests forwarded to another rank",
                cluster.forwarded[rank], {"to", std::move(name)});
  });
  each_other([&](size_t rank, std::string name) {
    out.counter("forwarded_requests_failed_total",
                "Forwarded requests that the other rank did not answer", cluster.failed[rank],
                {"to", std::move(name)});
  });
}

void add_http(MetricSnapshot& out, const HttpCounts& http) {
  out.gauge("http_connections", "Open connections", static_cast<double>(http.num_connections));
  out.gauge("http_active_requests", "HTTP requests being answered",
            static_cast<double>(http.num_active));
  out.counters<HttpCounters>(kHttpCounters, http);
  out.gauge("request_memory_bytes", "Memory that requests and their answers hold",
            static_cast<double>(http.memory_bytes));
  add_renamed(out, "request_memory_peak_bytes", "request_memory_most_bytes",
              "Largest memory that requests and their answers held since the start",
              static_cast<double>(http.peak_memory_bytes));
  out.gauge("request_memory_limit_bytes", "Limit of all requests together",
            static_cast<double>(http.memory_limit_bytes));
}

void add_observer(MetricSnapshot& out, const ObserverCounts& c) {
  const char* spans = "Spans of requests: taken by the collector; lost";
  out.counter("trace_spans_total", spans, c.spans_sent, {"outcome", "sent"});
  out.counter("trace_spans_total", spans, c.spans_lost, {"outcome", "lost"});
  const char* dumped = "Requests for the dump: written; too large to be kept, or not to be written";
  out.counter("dumped_requests_total", dumped, c.requests_dumped, {"outcome", "written"});
  out.counter("dumped_requests_total", dumped, c.requests_not_dumped, {"outcome", "lost"});
  const char* lost = "Records of requests for which log, dump and traces had no room";
  out.counter("observer_records_lost_total", lost, c.notes_lost);
  out.counter("observer_notes_lost_total",
              MetricSnapshot::old_help("observer_records_lost_total", lost).c_str(), c.notes_lost);
  out.counter("log_lines_lost_total", "Lines of the log that stderr did not take",
              static_cast<uint64_t>(log::num_lost()));
}

}  // namespace

struct Metrics::State {
  EngineInfo info;
  const int first_rank;
  MetricCompat compat;
  const prometheus::Labels front = front_labels(info);
  prometheus::Registry registry;
  Histogram &first_token, &inter_token, &e2e;
  struct RequestTimes {
    Histogram &queue, &prefill, &decode;
  };
  std::vector<RequestTimes> ranks;
  prometheus::Family<prometheus::Counter>&http_requests, &finished;

  State(const EngineInfo& i, int first)
      : info(i),
        first_rank(first),
        first_token(
            histogram(front, "time_to_first_token_seconds", "From arrival to the first token")
                .Add({}, kRequestSeconds)),
        inter_token(
            histogram(front, "inter_token_latency_seconds", "Between two tokens of one answer")
                .Add({}, kTokenSeconds)),
        e2e(histogram(front, "e2e_request_latency_seconds", "From arrival to the last token")
                .Add({}, kRequestSeconds)),
        http_requests(prometheus::BuildCounter()
                          .Name("hocket:http_requests_total")
                          .Help("HTTP requests by status; 499: the client left")
                          .Labels(front)
                          .Register(registry)),
        finished(prometheus::BuildCounter()
                     .Name("hocket:finished_requests_total")
                     .Help("Texts that ended, by how: stop, length, abort, error")
                     .Labels(front)
                     .Register(registry)) {
    for (const char* reason : kReasons) finished.Add({{"reason", reason}});
    while (std::ssize(ranks) < num_local())
      ranks.push_back(times_of(first_rank + static_cast<int>(ranks.size())));
  }

  // Returns the number of ranks in this process.
  int num_local() const { return std::max(1, static_cast<int>(info.ranks.size())); }

  prometheus::Family<Histogram>& histogram(const prometheus::Labels& labels, const char* name,
                                           const char* help) {
    return prometheus::BuildHistogram()
        .Name(std::string("hocket:") + name)
        .Help(help)
        .Labels(labels)
        .Register(registry);
  }
  // Each call uses the same families: the registry merges equal names.
  RequestTimes times_of(int rank) {
    const auto of = [&](const char* stage) -> Histogram& {
      prometheus::Labels labels = rank_labels(info, rank);
      labels.emplace("stage", stage);
      return histogram({}, "per_stage_req_latency_seconds", "Time a request spends in a stage")
          .Add(labels, kRequestSeconds);
    };
    Histogram& queue = histogram({}, "queue_time_seconds", "From arrival to the first step")
                           .Add(rank_labels(info, rank), kRequestSeconds);
    return {queue, of("prefill_forward"), of("decode_forward")};
  }
};

Metrics::Metrics(const EngineInfo& info, int first_rank, MetricCompat compat)
    : state_(std::make_unique<State>(info, first_rank)) {
  state_->compat = compat;
}
Metrics::~Metrics() = default;

std::string Metrics::render(const EngineStats& engine, const HttpCounts& http,
                            const ObserverCounts& observer, const ClusterCounts* cluster) const {
  const EngineInfo& info = state_->info;
  std::optional<MetricSnapshot> ranks;
  for (int i = 0; i < state_->num_local(); ++i) {
    MetricSnapshot rank(rank_labels(info, state_->first_rank + i));
    const RankStats& stats = engine.per_rank()[static_cast<size_t>(i)];
    add_load(rank, stats);
    add_events(rank, stats);
    add_steps(rank, stats);
    add_overlap(rank, stats.overlap);
    add_speculation(rank, stats.scheduler);
    add_constants(rank, info, info_of(info, i));
    if (ranks)
      ranks->append(std::move(rank));
    else
      ranks = std::move(rank);
  }
  MetricSnapshot front(state_->front);
  add_totals(front, engine);
  add_cache_tier(front, engine.tier.value_or(CacheTierStats()),
                 engine.scheduler.restored_tokens_total);
  if (engine.experts) add_experts(front, *engine.experts);
  add_moves(front, engine.moves.value_or(ExpertMoveStats()));
  if (engine.grammars) add_grammars(front, *engine.grammars);
  if (cluster != nullptr) add_cluster(front, *cluster);
  add_http(front, http);
  add_observer(front, observer);
  std::vector<MetricFamily> families;
  ranks->move_to(families);
  front.move_to(families);
  std::ranges::move(state_->registry.Collect(), std::back_inserter(families));
  add_aliases(families, state_->compat);
  return prometheus::TextSerializer().Serialize(families);
}

void Metrics::observe_first_token(Duration since_arrival) {
  state_->first_token.Observe(to_seconds(since_arrival));
}

void Metrics::observe_inter_token(Duration since_last_token) {
  state_->inter_token.Observe(to_seconds(since_last_token));
}

void Metrics::observe_finished(const RequestSummary& summary) {
  const auto reason = static_cast<size_t>(summary.finish);
  if (reason >= 1) state_->finished.Add({{"reason", kReasons.at(reason - 1)}}).Increment();
  const RequestTimes& t = summary.times;
  const auto passed = [](TimePoint at) { return at != TimePoint{}; };
  if (passed(t.finished)) state_->e2e.Observe(to_seconds(t.finished - t.arrived));
  if (!passed(t.first_scheduled)) return;
  const State::RequestTimes& times =
      state_->ranks.at(static_cast<size_t>(summary.rank - state_->first_rank));
  times.queue.Observe(to_seconds(t.first_scheduled - t.arrived));
  if (!passed(t.prefill_done)) return;
  times.prefill.Observe(to_seconds(t.prefill_done - t.first_scheduled));
  if (passed(t.finished)) times.decode.Observe(to_seconds(t.finished - t.prefill_done));
}

void Metrics::count_http(int status) {
  state_->http_requests.Add({{"status", std::to_string(status)}}).Increment();
}

}  // namespace hocket
