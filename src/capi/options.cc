#include "capi/options.h"

#include <charconv>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/nearest_name.h"
#include "core/setting_ranges.h"

namespace hocket {
namespace {

using Target = std::variant<int*, int64_t*, uint64_t*, double*, bool*, std::string*>;

struct Option {
  const char* name;
  std::function<Target(EmbeddedSettings&)> target;
};

template <class Part, class T>
Option option(const char* name, Part ServerSettings::* part, T Part::* field) {
  return {name, [=](EmbeddedSettings& s) { return Target(&(s.*part.*field)); }};
}

std::vector<Option> model_options() {
  constexpr auto kModel = &ServerSettings::model;
  constexpr auto kMemory = &ServerSettings::memory;
  using Model = ModelSettings;
  using Memory = MemorySettings;
  return {
      option("model-path", kModel, &Model::model_path),
      option("tokenizer-path", kModel, &Model::tokenizer_path),
      option("context-length", kModel, &Model::context_length),
      option("dtype", kModel, &Model::dtype),
      option("quantization", kModel, &Model::quantization),
      option("load-format", kModel, &Model::load_format),
      option("dummy-seed", kModel, &Model::dummy_seed),
      option("weight-cache", kModel, &Model::weight_cache),
      option("chat-template", kModel, &Model::chat_template),
      option("grammar-backend", kModel, &Model::grammar_backend),
      {"grammar-trials", [](EmbeddedSettings& s) { return Target(&s.grammar_trials); }},
      option("mem-fraction-static", kMemory, &Memory::mem_fraction_static),
      option("max-total-tokens", kMemory, &Memory::max_total_tokens),
      option("mamba-full-memory-ratio", kMemory, &Memory::mamba_full_memory_ratio),
      option("swa-full-tokens-ratio", kMemory, &Memory::swa_full_tokens_ratio),
      option("max-running-requests", kMemory, &Memory::max_running_requests),
      option("max-queued-requests", kMemory, &Memory::max_queued_requests),
      option("kv-cache-dtype", kMemory, &Memory::kv_cache_dtype),
      option("kv-cache-dir", kMemory, &Memory::kv_cache_dir),
      option("kv-cache-dir-gb", kMemory, &Memory::kv_cache_dir_gb),
      option("kv-cache-store", kMemory, &Memory::kv_cache_store),
      option("kv-cache-store-cacert", kMemory, &Memory::kv_cache_store_cacert),
      option("kv-cache-store-cert", kMemory, &Memory::kv_cache_store_cert),
      option("kv-cache-store-key", kMemory, &Memory::kv_cache_store_key),
      option("session-timeout", kMemory, &Memory::session_timeout_s),
      option("hicache-write-policy", kMemory, &Memory::hicache_write_policy),
      option("hicache-storage-prefetch-policy", kMemory, &Memory::hicache_storage_prefetch_policy),
      option("page-size", kMemory, &Memory::page_size),
  };
}

std::vector<Option> scheduler_options() {
  constexpr auto kScheduler = &ServerSettings::scheduler;
  using Scheduler = SchedulerSettings;
  return {
      option("schedule-policy", kScheduler, &Scheduler::schedule_policy),
      option("chunked-prefill-size", kScheduler, &Scheduler::chunked_prefill_size),
      option("max-prefill-tokens", kScheduler, &Scheduler::max_prefill_tokens),
      option("max-chunked-requests", kScheduler, &Scheduler::max_chunked_requests),
      option("prefill-policy", kScheduler, &Scheduler::prefill_policy),
      option("enable-mixed-chunk", kScheduler, &Scheduler::enable_mixed_chunk),
      option("itl-slo-ms", kScheduler, &Scheduler::itl_slo_ms),
      option("overlap-schedule", kScheduler, &Scheduler::overlap_schedule),
      option("disable-overlap-schedule", kScheduler, &Scheduler::disable_overlap_schedule),
      option("max-overtaken", kScheduler, &Scheduler::max_overtaken),
      option("schedule-conservativeness", kScheduler, &Scheduler::schedule_conservativeness),
      option("schedule-seed", kScheduler, &Scheduler::schedule_seed),
      option("prefill-max-requests", kScheduler, &Scheduler::prefill_max_requests),
      option("enable-priority-scheduling", kScheduler, &Scheduler::enable_priority_scheduling),
      option("schedule-low-priority-values-first", kScheduler,
             &Scheduler::schedule_low_priority_values_first),
      option("priority-scheduling-preemption-threshold", kScheduler,
             &Scheduler::priority_preemption_threshold),
      option("disable-priority-preemption", kScheduler, &Scheduler::disable_priority_preemption),
      option("abort-on-priority-when-disabled", kScheduler,
             &Scheduler::abort_on_priority_when_disabled),
      option("waiting-timeout", kScheduler, &Scheduler::waiting_timeout_s),
      option("running-timeout", kScheduler, &Scheduler::running_timeout_s),
      option("in-batch-prefix-check", kScheduler, &Scheduler::in_batch_prefix_check),
      option("in-batch-prefix-common", kScheduler, &Scheduler::in_batch_prefix_common),
      option("disable-radix-cache", kScheduler, &Scheduler::disable_radix_cache),
      option("radix-eviction-policy", kScheduler, &Scheduler::radix_eviction_policy),
  };
}

std::vector<Option> compute_options() {
  constexpr auto kCompute = &ServerSettings::compute;
  constexpr auto kParallel = &ServerSettings::parallel;
  using Compute = ComputeSettings;
  using Parallel = ParallelSettings;
  return {
      option("cpu-bind", kCompute, &Compute::cpu_bind),
      option("num-threads", kCompute, &Compute::num_threads),
      option("combine-groups", kCompute, &Compute::combine_groups),
      option("mla-form", kCompute, &Compute::mla_form),
      option("ep-size", kParallel, &Parallel::ep_size),
      option("dp-routing", kParallel, &Parallel::dp_routing),
      option("dispatch-dtype", kParallel, &Parallel::dispatch_dtype),
      option("combine-dtype", kParallel, &Parallel::combine_dtype),
      option("init-expert-location", kParallel, &Parallel::init_expert_location),
      option("ep-num-redundant-experts", kParallel, &Parallel::ep_num_redundant_experts),
      option("eplb-algorithm", kParallel, &Parallel::eplb_algorithm),
      option("enable-eplb", kParallel, &Parallel::enable_eplb),
      option("eplb-rebalance-num-iterations", kParallel, &Parallel::eplb_rebalance_num_iterations),
      option("expert-distribution-recorder-mode", kParallel,
             &Parallel::expert_distribution_recorder_mode),
      option("ep-link-gbit", kParallel, &Parallel::ep_link_gbit),
      option("ep-link-latency-us", kParallel, &Parallel::ep_link_latency_us),
      option("overlap", kParallel, &Parallel::overlap),
      option("overlap-order-prefill", kParallel, &Parallel::overlap_order_prefill),
      option("overlap-order-decode", kParallel, &Parallel::overlap_order_decode),
      option("overlap-plan", kParallel, &Parallel::overlap_plan),
  };
}

// The flags of `hocket serve` for other services; an engine that embeds hocket may be one of them.
std::vector<Option> peer_options() {
  constexpr auto kPeers = &ServerSettings::peers;
  using Peers = PeerSettings;
  return {
      option("kv-cache-listen", kPeers, &Peers::kv_cache_listen),
      option("kv-cache-peers", kPeers, &Peers::kv_cache_peers),
      option("disaggregation-mode", kPeers, &Peers::disaggregation_mode),
      option("disaggregation-prefill-url", kPeers, &Peers::disaggregation_prefill_url),
      option("cluster-token-file", &ServerSettings::parallel,
             &ParallelSettings::cluster_token_file),
      option("cluster-tls", &ServerSettings::parallel, &ParallelSettings::cluster_tls),
  };
}

// The flags of `hocket run` that choose the model and how to compute, and options that only an
// embedding program needs; a test compares the names.
const std::vector<Option>& options() {
  static const std::vector<Option> all = [] {
    std::vector<Option> each = model_options();
    for (const auto& more : {scheduler_options(), compute_options(), peer_options()})
      each.insert(each.end(), more.begin(), more.end());
    return each;
  }();
  return all;
}

template <class Number>
bool parse(std::string_view text, Number& out) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc() || stop != end) return false;
  out = number;
  return true;
}

bool parse(std::string_view text, bool& out) {
  if (text != "true" && text != "false" && text != "1" && text != "0") return false;
  out = text == "true" || text == "1";
  return true;
}

bool parse(std::string_view text, std::string& out) {
  out = text;
  return true;
}

}  // namespace

Result<void> set_option(EmbeddedSettings& settings, std::string_view name, std::string_view value) {
  std::vector<std::string_view> names;
  for (const Option& option : options()) {
    if (option.name == name) {
      return std::visit(
          [&](auto* target) -> Result<void> {
            auto read = *target;
            if (!parse(value, read))
              return fail(error(ErrorCode::bad_value, "{} cannot be {}", name, value)
                              .with_param(std::string(name)));
            HOCKET_TRY_VOID(check_setting(name, read));
            *target = std::move(read);
            return {};
          },
          option.target(settings));
    }
    names.emplace_back(option.name);
  }
  const auto near = nearest_name(name, names);
  return fail(error(ErrorCode::bad_value, "{} is not an option", name)
                  .with_fix(near ? std::string(*near) + "?" : "hocket_option_name lists them"));
}

const char* option_name(size_t index) {
  return index < options().size() ? options()[index].name : nullptr;
}

}  // namespace hocket
