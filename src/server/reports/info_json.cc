#include "server/reports/info_json.h"

#include <span>
#include <utility>

#include "base/machine.h"
#include "core/version.h"
#include "engine/pages/redis_address.h"
#include "engine/plan/scheduler_settings.h"
#include "policy/scheduler/draft_figures.h"
#include "server/reports/counter_json.h"

namespace hocket {
namespace {

// Returns whether steps overlap; "auto" if that follows from measured times.
Json overlap_schedule_json(OverlapSchedule schedule) {
  if (schedule == OverlapSchedule::measured) return "auto";
  return schedule == OverlapSchedule::on;
}

// Hides a secret: returns "set" or null.
Json set_or_null(const std::string& secret) {
  return secret.empty() ? Json() : Json("set");
}

Json memory_settings(const ServerSettings& s) {
  return {{"mem_fraction_static", s.memory.mem_fraction_static},
          {"max_total_tokens", s.memory.max_total_tokens},
          {"max_running_requests", s.memory.max_running_requests},
          {"max_queued_requests", s.memory.max_queued_requests},
          {"max_queued_tokens", s.memory.max_queued_tokens},
          {"page_size", s.memory.page_size},
          {"kv_cache_dtype", s.memory.kv_cache_dtype},
          {"kv_cache_dir", s.memory.kv_cache_dir},
          {"kv_cache_dir_gb", s.memory.kv_cache_dir_gb},
          {"kv_cache_store", without_password(s.memory.kv_cache_store)},
          {"hicache_storage_prefetch_policy", s.memory.hicache_storage_prefetch_policy},
          {"kv_cache_listen", s.peers.kv_cache_listen},
          {"kv_cache_peers", s.peers.kv_cache_peers},
          {"disaggregation_mode", s.peers.disaggregation_mode},
          {"disaggregation_prefill_url", s.peers.disaggregation_prefill_url}};
}

Json model_settings(const ServerSettings& s) {
  const PrefillChoice prefill = choose_prefill(s).value_or(PrefillChoice());
  return {{"model_path", s.model.model_path},
          {"tokenizer_path", s.model.tokenizer_path},
          {"served_model_name", s.model.served_model_name},
          {"context_length", s.model.context_length},
          {"dtype", s.model.dtype},
          {"quantization", s.model.quantization},
          {"load_format", s.model.load_format},
          {"weight_cache", s.model.weight_cache},
          {"chat_template", s.model.chat_template},
          {"grammar_backend", s.model.grammar_backend},
          {"schedule_policy", s.scheduler.schedule_policy},
          {"chunked_prefill_size", s.scheduler.chunked_prefill_size},
          {"max_prefill_tokens", s.scheduler.max_prefill_tokens},
          {"max_chunked_requests", s.scheduler.max_chunked_requests},
          {"prefill_policy", prefill_policy_name(prefill.policy)},
          {"prompt_share", prefill.prompt_share},
          {"enable_mixed_chunk", s.scheduler.enable_mixed_chunk},
          {"itl_slo_ms", s.scheduler.itl_slo_ms},
          {"overlap_schedule", s.scheduler.overlap_schedule},
          {"disable_overlap_schedule", s.scheduler.disable_overlap_schedule},
          {"max_overtaken", s.scheduler.max_overtaken},
          {"schedule_conservativeness", s.scheduler.schedule_conservativeness},
          {"schedule_seed", s.scheduler.schedule_seed},
          {"prefill_max_requests", s.scheduler.prefill_max_requests},
          {"waiting_timeout", s.scheduler.waiting_timeout_s},
          {"running_timeout", s.scheduler.running_timeout_s},
          {"in_batch_prefix_check", s.scheduler.in_batch_prefix_check},
          {"in_batch_prefix_common", s.scheduler.in_batch_prefix_common},
          {"enable_priority_scheduling", s.scheduler.enable_priority_scheduling},
          {"schedule_low_priority_values_first", s.scheduler.schedule_low_priority_values_first},
          {"priority_scheduling_preemption_threshold", s.scheduler.priority_preemption_threshold},
          {"disable_priority_preemption", s.scheduler.disable_priority_preemption},
          {"abort_on_priority_when_disabled", s.scheduler.abort_on_priority_when_disabled},
          {"disable_radix_cache", s.scheduler.disable_radix_cache},
          {"radix_eviction_policy", s.scheduler.radix_eviction_policy},
          {"kv_events", s.scheduler.kv_events},
          {"decode_log_interval", s.scheduler.decode_log_interval},
          {"speculative_algorithm", s.speculation.algorithm},
          {"speculative_num_steps", s.speculation.num_steps},
          {"speculative_num_draft_tokens", s.speculation.num_draft_tokens},
          {"speculative_eagle_topk", s.speculation.eagle_topk},
          {"cpu_bind", s.compute.cpu_bind},
          {"num_threads", s.compute.num_threads},
          {"combine_groups", s.compute.combine_groups},
          {"mla_form", s.compute.mla_form},
          {"ep_size", s.parallel.ep_size},
          {"dp_routing", s.parallel.dp_routing},
          {"ep_link_gbit", s.parallel.ep_link_gbit},
          {"ep_link_latency_us", s.parallel.ep_link_latency_us},
          {"overlap", s.parallel.overlap},
          {"overlap_order_prefill", s.parallel.overlap_order_prefill},
          {"overlap_order_decode", s.parallel.overlap_order_decode},
          {"overlap_plan", s.parallel.overlap_plan},
          {"enable_two_batch_overlap", s.parallel.enable_two_batch_overlap},
          {"enable_single_batch_overlap", s.parallel.enable_single_batch_overlap},
          {"tbo_token_distribution_threshold", s.parallel.tbo_token_distribution_threshold}};
}

Json service_settings(const ServerSettings& s) {
  return {{"host", s.http.host},
          {"port", s.http.port},
          {"api_key", set_or_null(s.http.api_key)},
          {"admin_api_key", set_or_null(s.http.admin_api_key)},
          {"api_key_file", s.http.api_key_file},
          {"share_prefixes", s.http.share_prefixes},
          {"ssl_certfile", s.http.ssl_certfile},
          {"ssl_keyfile", s.http.ssl_keyfile},
          {"cors_origins", s.http.cors_origins},
          {"allowed_hosts", s.http.allowed_hosts},
          {"max_connections", s.http.max_connections},
          {"header_timeout", s.http.header_timeout_s},
          {"body_timeout", s.http.body_timeout_s},
          {"write_timeout", s.http.write_timeout_s},
          {"idle_timeout", s.http.idle_timeout_s},
          {"strict", s.strict},
          {"shutdown_timeout", s.http.shutdown_timeout_s},
          {"watchdog_timeout", s.http.watchdog_timeout_s},
          {"max_body_bytes", s.http.max_body_bytes},
          {"request_memory_mib", s.http.request_memory_mib},
          {"key_memory_mib", s.http.key_memory_mib},
          {"total_request_memory_mib", s.http.total_request_memory_mib},
          {"response_store_mib", s.http.response_store_mib},
          {"stream_store_mib", s.http.stream_store_mib},
          {"log_level", s.http.log_level},
          {"log_format", s.observe.log_format},
          {"log_requests", s.observe.log_requests},
          {"log_requests_level", s.observe.log_requests_level},
          {"enable_trace", s.observe.enable_trace},
          {"otlp_traces_endpoint", s.observe.otlp_traces_endpoint},
          {"dump_requests_folder", s.observe.dump_requests_folder},
          {"crash_dump_folder", s.observe.crash_dump_folder},
          {"admin_folder", s.observe.admin_folder},
          {"metrics_compat", s.observe.metrics_compat},
          {"tool_call_parser", s.answers.tool_call_parser},
          {"reasoning_parser", s.answers.reasoning_parser},
          {"reasoning_field", s.answers.reasoning_field}};
}

Json settings_json(const ServerSettings& s) {
  Json all = model_settings(s);
  all.update(memory_settings(s));
  all.update(service_settings(s));
  return all;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json generation_defaults_json(const GenerationDefaults& d) {
  return {{"temperature", or_null(d.temperature)},
          {"top_p", or_null(d.top_p)},
          {"top_k", or_null(d.top_k)},
          {"min_p", or_null(d.min_p)},
          {"repetition_penalty", or_null(d.repetition_penalty)}};
}

Json ranks_json(const EngineInfo& info) {
  Json list = Json::array();
  for (const RankInfo& rank : info.ranks)
    list.push_back({{"dp_rank", list.size()},
                    {"num_threads", rank.num_workers},
                    {"cpus", rank.cpus},
                    {"experts", rank.experts},
                    {"max_running_requests", rank.max_running_requests},
                    {"max_total_num_tokens", rank.max_total_tokens},
                    {"weight_bytes", rank.weight_bytes},
                    {"kv_bytes", rank.kv_bytes},
                    {"window_bytes", rank.window_bytes},
                    {"state_bytes", rank.state_bytes},
                    {"work_bytes", rank.work_bytes},
                    {"index_bytes", rank.index_bytes}});
  return list;
}

Json states_json(const EngineStats& stats) {
  Json list = Json::array();
  for (const RankStats& rank : stats.per_rank())
    list.push_back({{"last_gen_throughput", rank.gen_throughput},
                    {"num_running_reqs", rank.scheduler.num_running},
                    {"num_queue_reqs", rank.scheduler.num_waiting},
                    {"token_usage", rank.scheduler.token_usage},
                    {"avg_spec_accept_length", accept_length_of(rank.scheduler)},
                    {"action", action_name(rank.position.action)},
                    {"verb", action_name(rank.position.action)}});  // its name before
  return list;
}

// Returns the machine as it was at the first call.
Json machine_json() {
  static const Machine machine = inspect_machine();
  return {{"text", describe(machine)},
          {"cpu_name", machine.cpu_name},
          {"features", machine.features},
          {"cpus", machine.cpus},
          {"num_cores", machine.num_cores},
          {"num_numa_nodes", machine.num_numa_nodes},
          {"memory_bytes", machine.memory_bytes},
          {"memory_available_bytes", machine.memory_available_bytes},
          {"huge_pages", machine.huge_pages}};
}

double clock_seconds() {
  return to_seconds(RealClock().now().time_since_epoch());
}

Json load_of(size_t rank, const RankStats& stats, double now) {
  const SchedulerStats& s = stats.scheduler;
  return {{"dp_rank", rank},
          {"num_reqs", s.num_running + s.num_waiting},
          {"num_waiting_reqs", s.num_waiting},
          {"num_tokens", s.num_used_tokens + s.num_waiting_tokens},
          {"num_pending_tokens", s.num_waiting_tokens},
          {"ts_tic", now}};
}

}  // namespace

Result<Json> scheduler_json(const Json& info) {
  try {
    const Json& set = info.at("settings");
    Json scheduler = {{"num_pages", info.at("num_pages")},
                      {"page_size", info.at("page_size")},
                      {"max_running_requests", info.at("max_running_requests")}};
    for (const char* key :
         {"max_queued_requests", "chunked_prefill_size", "max_prefill_tokens", "enable_mixed_chunk",
          "schedule_conservativeness", "disable_radix_cache", "schedule_policy"})
      scheduler[key] = set.at(key);
    // The planned chunk size, if there is one, replaces the one in the settings.
    scheduler["chunked_prefill_size"] =
        info.value("chunk_tokens", set.at("chunked_prefill_size").get<int>());
    // Older servers do not have these settings.
    for (const char* key :
         {"prefill_policy", "itl_slo_ms", "prompt_share", "max_chunked_requests",
          "max_queued_tokens", "prefill_max_requests", "max_overtaken", "waiting_timeout",
          "running_timeout", "in_batch_prefix_check", "in_batch_prefix_common",
          "enable_priority_scheduling", "schedule_low_priority_values_first",
          "disable_priority_preemption", "priority_scheduling_preemption_threshold",
          "radix_eviction_policy", "schedule_seed"})
      if (set.contains(key)) scheduler[key] = set.at(key);
    return scheduler;
  } catch (const Json::exception& e) {
    return fail(ErrorCode::io, "/get_server_info does not describe the scheduler: {}", e.what());
  }
}

Json model_card(const ServedModel& model, int64_t created) {
  return {{"id", model.info->served_model_name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "hocket"},
          {"root", model.info->served_model_name},
          {"parent", nullptr},
          {"max_model_len", model.info->context_length}};
}

Json model_info_json(const ServedModel& model, const ServerSettings& settings) {
  const EngineInfo& info = *model.info;
  const std::string& tokenizer = settings.model.tokenizer_path;
  Json eos = Json::array();
  for (const TokenId id : info.model.eos_ids) eos.push_back(value(id));
  return {{"model_path", info.model_path},
          {"tokenizer_path", model.tokenizer == nullptr ? Json()
                             : tokenizer.empty()        ? Json(info.model_path)
                                                        : Json(tokenizer)},
          {"is_generation", true},
          {"served_model_name", info.served_model_name},
          {"architecture", info.model.architecture},
          {"dtype", dtype_name(info.dtype)},
          {"vocab_size", info.model.vocab_size},
          {"num_layers", info.model.num_layers},
          {"num_experts", info.model.moe.num_experts},
          {"max_model_len", info.context_length},
          {"eos_token_ids", std::move(eos)},
          {"has_chat_template", model.chat_template != nullptr},
          {"preferred_sampling_params", generation_defaults_json(info.generation_defaults)}};
}

Json to_json(const SettingChange& c) {
  return {{"flag", c.flag}, {"from", c.from}, {"to", c.to}, {"why", c.why}};
}

Json to_json(const SlowPath& path) {
  return {{"what", path.what}, {"why", path.why}, {"fix", path.fix}};
}

Json to_json(const ExpertMoveStats& moves) {
  Json json = Json::object();
  add_counters<ExpertMoveCounters>(kExpertMoveCounters, moves, json);
  json["layers_left"] = moves.num_remaining_layers;
  json["last_error"] = moves.last_error.empty() ? Json() : Json(moves.last_error);
  const Json last_check = {{"balancedness_before", moves.balancedness_before},
                           {"balancedness_after", moves.balancedness_after},
                           {"gain_seconds", moves.gain_seconds},
                           {"cost_seconds", moves.cost_seconds}};
  json["last_check"] = last_check;
  json["last_look"] = last_check;  // old name
  return json;
}

Json server_info_json(const ServedModel& model, const ServerSettings& settings,
                      const EngineStats& stats) {
  const EngineInfo& info = *model.info;
  Json changes = Json::array();
  for (const SettingChange& change : info.changes) changes.push_back(to_json(change));
  return {{"version", kVersion},
          {"settings", settings_json(settings)},
          {"changes", std::move(changes)},
          {"notes", info.notes},
          {"answers", model.formats == nullptr ? Json() : model_formats_json(*model.formats)},
          {"isa", isa_name(info.isa)},
          {"num_threads", info.num_workers},
          {"dtype", dtype_name(info.dtype)},
          {"weight_format", weight_format_name(info.weight_format)},
          {"kv_cache_dtype", dtype_name(info.kv_dtype)},
          {"form", form_of(info)},
          {"overlap_schedule", overlap_schedule_json(info.overlap_schedule)},
          {"grammar_backend", info.grammar_backend},
          {"context_length", info.context_length},
          {"max_running_requests", info.max_running_requests},
          {"chunk_tokens", info.chunk_tokens},
          {"max_total_num_tokens", info.max_total_tokens},
          {"num_pages", info.num_pages},
          {"page_size", info.page_tokens},
          {"num_window_pages", info.num_window_pages},
          {"num_states", info.num_states},
          {"memory",
           {{"weight_bytes", info.weight_bytes},
            {"kv_bytes", info.kv_bytes},
            {"window_bytes", info.window_bytes},
            {"state_bytes", info.state_bytes},
            {"work_bytes", info.work_bytes},
            {"index_bytes", info.index_bytes}}},
          {"load_seconds", info.load_seconds},
          {"num_ranks", info.num_ranks},
          {"combine_groups", info.combine_groups},
          {"network", info.network.empty() ? Json() : Json(info.network)},
          {"ranks", ranks_json(info)},
          {"expert_moves", stats.moves ? to_json(*stats.moves) : Json()},
          {"internal_states", states_json(stats)},
          {"machine", machine_json()}};
}

Json load_json(const EngineStats& stats) {
  const double now = clock_seconds();
  Json list = Json::array();
  for (const RankStats& rank : stats.per_rank()) list.push_back(load_of(list.size(), rank, now));
  return list;
}

Json load_json(const EngineStats& stats, std::span<const RankLoad> loads, int own) {
  const double now = clock_seconds();
  Json list = Json::array();
  for (const RankLoad& load : loads) {
    const size_t rank = list.size();
    list.push_back(std::cmp_equal(rank, own) ? load_of(rank, stats, now)
                                             : Json{{"dp_rank", rank},
                                                    {"num_reqs", load.num_requests},
                                                    {"num_tokens", load.num_tokens},
                                                    {"num_pending_tokens", load.num_tokens},
                                                    {"ts_tic", now}});
  }
  return list;
}

Json loads_json(const EngineStats& stats, const EngineInfo& info, int first_rank) {
  Json list = Json::array();
  int running = 0, waiting = 0;
  for (const RankStats& rank : stats.per_rank()) {
    const SchedulerStats& s = rank.scheduler;
    running += s.num_running;
    waiting += s.num_waiting + s.num_held;
    list.push_back({{"dp_rank", first_rank + static_cast<int>(list.size())},
                    {"num_running_reqs", s.num_running},
                    {"num_waiting_reqs", s.num_waiting + s.num_held},
                    {"num_total_reqs", s.num_running + s.num_waiting + s.num_held},
                    {"num_used_tokens", s.num_used_tokens},
                    {"num_total_tokens", s.num_used_tokens + s.num_waiting_tokens},
                    {"token_usage", s.token_usage},
                    {"gen_throughput", rank.gen_throughput}});
  }
  return {{"version", kVersion},
          {"dp_rank_count", list.size()},
          {"max_total_num_tokens", info.max_total_tokens},
          {"max_running_requests", info.max_running_requests},
          {"loads", std::move(list)},
          {"aggregate",
           {{"total_running_reqs", running},
            {"total_waiting_reqs", waiting},
            {"total_reqs", running + waiting}}}};
}

}  // namespace hocket
