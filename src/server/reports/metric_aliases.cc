#include "server/reports/metric_aliases.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hocket {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

constexpr std::string_view kHocketPrefix = "hocket:";

// Names that SGLang has too; under its prefix they mean the same.
constexpr std::string_view kSglang[] = {"num_running_reqs",
                                        "num_queue_reqs",
                                        "num_grammar_queue_reqs",
                                        "num_decode_prealloc_queue_reqs",
                                        "num_decode_transfer_queue_reqs",
                                        "num_prefill_inflight_queue_reqs",
                                        "num_used_tokens",
                                        "token_usage",
                                        "cache_hit_rate",
                                        "gen_throughput",
                                        "new_token_ratio",
                                        "spec_accept_length",
                                        "spec_accept_rate",
                                        "is_cuda_graph",
                                        "max_total_num_tokens",
                                        "num_retracted_reqs",
                                        "num_retracted_requests_total",
                                        "num_retracted_input_tokens_total",
                                        "num_retracted_output_tokens_total",
                                        "realtime_tokens_total",
                                        "prompt_tokens_total",
                                        "generation_tokens_total",
                                        "cached_tokens_total",
                                        "num_requests_total",
                                        "num_aborted_requests_total",
                                        "time_to_first_token_seconds",
                                        "inter_token_latency_seconds",
                                        "e2e_request_latency_seconds",
                                        "queue_time_seconds",
                                        "per_stage_req_latency_seconds"};

// `stage`: only metrics with this label value; empty: all.
struct Alias {
  std::string_view ours, theirs, stage;
};
constexpr Alias kVllm[] = {
    {"num_running_reqs", "num_requests_running", ""},
    {"num_queue_reqs", "num_requests_waiting", ""},
    {"token_usage", "kv_cache_usage_perc", ""},
    {"token_usage", "gpu_cache_usage_perc", ""},
    {"num_retracted_requests_total", "num_preemptions_total", ""},
    {"prompt_tokens_total", "prompt_tokens_total", ""},
    {"generation_tokens_total", "generation_tokens_total", ""},
    {"spec_verified_total", "spec_decode_num_drafts_total", ""},
    {"spec_drafts_total", "spec_decode_num_draft_tokens_total", ""},
    {"spec_accepted_total", "spec_decode_num_accepted_tokens_total", ""},
    {"prompt_tokens_total", "prefix_cache_queries_total", ""},
    {"cached_tokens_total", "prefix_cache_hits_total", ""},
    {"finished_requests_total", "request_success_total", ""},
    {"time_to_first_token_seconds", "time_to_first_token_seconds", ""},
    {"inter_token_latency_seconds", "inter_token_latency_seconds", ""},
    {"inter_token_latency_seconds", "time_per_output_token_seconds", ""},
    {"e2e_request_latency_seconds", "e2e_request_latency_seconds", ""},
    {"queue_time_seconds", "request_queue_time_seconds", ""},
    {"per_stage_req_latency_seconds", "request_prefill_time_seconds", "prefill_forward"},
    {"per_stage_req_latency_seconds", "request_decode_time_seconds", "decode_forward"},
};

const MetricFamily* find(const std::vector<MetricFamily>& families, std::string_view suffix) {
  for (const MetricFamily& family : families)
    if (family.name.starts_with(kHocketPrefix) &&
        std::string_view(family.name).substr(kHocketPrefix.size()) == suffix)
      return &family;
  return nullptr;
}

std::string label_of(const ClientMetric& metric, std::string_view name) {
  for (const auto& label : metric.label)
    if (label.name == name) return label.value;
  return "";
}

void relabel_for_vllm(ClientMetric& metric) {
  const std::string rank = label_of(metric, "dp_rank"), reason = label_of(metric, "reason");
  const std::string model = label_of(metric, "model_name");
  metric.label = {{"model_name", model}, {"engine", rank.empty() ? "0" : rank}};
  if (!reason.empty()) metric.label.push_back({"finished_reason", reason});
}

// Adds up counters whose labels are equal since the label that told them apart was left out.
void add_up_equals(std::vector<ClientMetric>& counters) {
  std::vector<ClientMetric> sums;
  for (ClientMetric& metric : counters) {
    const auto same = std::ranges::find(sums, metric.label, &ClientMetric::label);
    if (same == sums.end())
      sums.push_back(std::move(metric));
    else
      same->counter.value += metric.counter.value;
  }
  counters = std::move(sums);
}

}  // namespace

Result<MetricCompat> parse_metric_compat(std::string_view names) {
  MetricCompat compat;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, end);
    if (name != "sglang" && name != "vllm")
      return fail(
          error(ErrorCode::bad_value, "--metrics-compat {} is not one of sglang, vllm", name)
              .with_fix("--metrics-compat sglang,vllm for both")
              .with_param("metrics-compat"));
    (name == "sglang" ? compat.sglang : compat.vllm) = true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return compat;
}

void add_aliases(std::vector<MetricFamily>& families, MetricCompat compat) {
  std::vector<MetricFamily> aliases;
  for (const std::string_view name : kSglang) {
    const MetricFamily* family = compat.sglang ? find(families, name) : nullptr;
    if (family == nullptr) continue;
    aliases.push_back(*family);
    aliases.back().name = fmt::format("sglang:{}", name);
  }
  for (const Alias& alias : kVllm) {
    const MetricFamily* family = compat.vllm ? find(families, alias.ours) : nullptr;
    if (family == nullptr) continue;
    MetricFamily& made = aliases.emplace_back(*family);
    made.name = fmt::format("vllm:{}", alias.theirs);
    std::erase_if(made.metric, [&](const ClientMetric& metric) {
      return !alias.stage.empty() && label_of(metric, "stage") != alias.stage;
    });
    std::ranges::for_each(made.metric, relabel_for_vllm);
    if (made.type == prometheus::MetricType::Counter) add_up_equals(made.metric);
  }
  std::ranges::move(aliases, std::back_inserter(families));
}

}  // namespace hocket
