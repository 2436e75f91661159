// Every setting a user can give to `serve` (and to the commands that run the engine), with its
// default. Filled from flags, HOCKET_* variables and a YAML file by apps/flags.cc, in that
// precedence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hocket {

struct ModelSettings {
  std::string model_path;         // folder; empty: the bundled model
  std::string tokenizer_path;     // folder; empty: model_path
  std::string served_model_name;  // empty: the folder's name
  int context_length = 0;         // 0: the model's own
  std::string dtype = "auto";     // auto, bfloat16, float32
  std::string quantization =
      "none";                        // none, int8, int4: of weights that the files hold unquantized
  std::string load_format = "auto";  // auto, dummy
  std::string chat_template;         // file; empty: the model's own
  std::string grammar_backend = "llguidance";  // of structured output; none: free text only
  uint64_t dummy_seed = 0;                     // of --load-format dummy
  std::string weight_cache;  // folder that keeps packed weights for the next start; empty: none
};

struct MemorySettings {
  double mem_fraction_static = 0;  // share of memory for weights and KV; 0: planned
  int64_t max_total_tokens = 0;    // KV capacity; 0: planned
  int max_running_requests = 0;    // 0: planned
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = 0;        // 0: no limit
  int page_size = 32;                   // tokens; a power of two, 1 to 128
  std::string kv_cache_dtype = "auto";  // auto (that of --dtype), int8
};

struct SchedulerSettings {
  std::string schedule_policy = "fcfs";  // policy/scheduler/schedule_policy.h
  int chunked_prefill_size = 0;          // tokens; 0: planned; -1: whole prompts
  int max_prefill_tokens = 16384;
  int max_chunked_requests = 1;
  std::string prefill_policy = "auto";    // auto, prefill-first, mixed, latency
  bool enable_mixed_chunk = false;        // the same as prefill_policy mixed
  double itl_slo_ms = 100;                // of prefill_policy latency, and auto
  std::string overlap_schedule = "auto";  // auto, on, off
  bool disable_overlap_schedule = false;  // the same as overlap_schedule off
  int max_overtaken = 512;                // requests that may start before an older one
  double schedule_conservativeness = 1.0;
  int64_t schedule_seed = 0;        // of the policy `random`
  int prefill_max_requests = 0;     // of one pass; 0: no limit
  double waiting_timeout_s = 0;     // 0: none
  double running_timeout_s = 0;     // 0: none
  int in_batch_prefix_check = 32;   // cached tokens; -1: off
  int in_batch_prefix_common = 32;  // tokens
  bool enable_priority_scheduling = false;
  bool schedule_low_priority_values_first = false;
  bool disable_priority_preemption = false;
  int priority_preemption_threshold = 10;
  bool abort_on_priority_when_disabled = false;
  bool disable_radix_cache = false;
  std::string radix_eviction_policy = "lru";  // lru, lfu, fifo, mru, filo, slru, priority
  bool kv_events = false;                     // GET /kv_events
  int decode_log_interval = 40;               // steps from one `Decode batch` line to the next
};

struct HttpSettings {
  std::string host = "127.0.0.1";
  int port = 30000;
  std::string api_key, admin_api_key;
  std::string api_key_file;               // server/access/key_ring.h
  bool share_prefixes = false;            // between the clients of api_key_file
  std::string ssl_certfile, ssl_keyfile;  // PEM; both empty: no TLS
  std::string cors_origins;               // web pages that may send requests besides its own
  std::string allowed_hosts;              // further names for Host (access/host_names.h)
  int max_connections = 4096;
  double header_timeout_s = 10;  // of a whole head
  double body_timeout_s = 60;    // of a whole body
  double write_timeout_s = 30;   // for 64 KiB of an answer to leave
  double idle_timeout_s = 75;    // between two requests of a connection
  double shutdown_timeout_s = 30;
  double watchdog_timeout_s = 300;
  int64_t max_body_bytes = 32 << 20;
  // Limits of the memory that requests hold, in MiB (server/access/request_memory.h).
  int request_memory_mib = 256, key_memory_mib = 512, total_request_memory_mib = 1024;
  int response_store_mib = 64;  // answers of /v1/responses that are kept; 0: none
  std::string log_level = "info";
};

// How answers are read (docs/api.md "Tools", "Reasoning").
struct AnswerSettings {
  std::string tool_call_parser = "auto";  // auto, or a name of text/answers/answer_format.h
  std::string reasoning_parser = "auto";
  std::string reasoning_field = "reasoning_content";  // reasoning_content, reasoning, both
};

// What the server tells of itself and of its requests (docs/operations.md).
struct ObserveSettings {
  std::string log_format = "text";  // text, json
  bool log_requests = false;
  int log_requests_level = 1;  // 0 to 3 (server/observe/request_log.h); prompts from 2 on
  bool enable_trace = false;
  std::string otlp_traces_endpoint = "http://localhost:4318/v1/traces";
  std::string dump_requests_folder;        // empty: nothing is dumped
  int64_t dump_requests_bytes = 64 << 20;  // of one file
  int dump_requests_files = 16;            // that are kept
  std::string crash_dump_folder;           // empty: no black box
  std::string admin_folder;                // files that admins ask for go below it; empty: none
  std::string metrics_compat;              // empty, sglang, vllm, or both with a comma
};

struct ComputeSettings {
  std::string cpu_bind = "auto";  // auto, none, or a list such as 0-3,8
  int num_threads = 0;            // compute threads; 0: one a core
  int combine_groups = 0;         // 0: the number of ranks (docs/contracts/arithmetic.md)
  std::string mla_form = "auto";  // auto: prompts expanded, answers absorbed; absorbed: both
};

// Ranks that serve as one (docs/contracts/expert_parallel.md).
struct ParallelSettings {
  int ep_size = 1;  // ranks, over which the experts are spread
  std::string dp_routing =
      "cache-aware";  // shortest, cache-aware, round-robin: who takes a request
  // A pretended network between ranks of one process. 0: none, messages are as fast as memory.
  double ep_link_gbit = 0;
  double ep_link_latency_us = 0;
  // Rows on their way to experts: auto and bfloat16 (the activations' own type), or int8 with a
  // scale a row, which changes numbers, alike on any number of ranks.
  std::string dispatch_dtype = "auto";
  std::string init_expert_location = "trivial";  // or a file that places experts
  bool enable_prefill_delayer = false;           // ranks begin prompts together
  int prefill_delayer_max_passes = 30;

  // How exchanges are hidden behind compute (engine/ranks/overlap_settings.h). Empty: the first
  // order of overlap_plan, and without that auto. Else auto, none, single-batch, two-batch, or an
  // order.
  std::string overlap;
  std::string overlap_plan;  // a file of orders beside those that are known
  bool enable_two_batch_overlap = false, enable_single_batch_overlap = false;
  double tbo_token_distribution_threshold = 0.48;  // SplitWish (compute/forward/split.h)

  // Ranks in processes of their own (cluster/launch.h). 0 and -1: not given.
  int nnodes = 0, node_rank = -1, ranks_per_node = 0;
  std::string dist_init_addr;      // of rank 0, "h0:5000"
  std::string cluster_token_file;  // whoever knows what is in it may join
  bool insecure_cluster = false;   // nobody has to
  double rank_wait_s = 60;         // for a rank 0 that is not there; then exit 5
  std::string ucx_tls;             // as UCX_TLS; empty: chosen
  std::string ucx_net_devices;     // as UCX_NET_DEVICES; empty: all
};

struct ServerSettings {
  ModelSettings model;
  MemorySettings memory;
  SchedulerSettings scheduler;
  HttpSettings http;
  AnswerSettings answers;
  ObserveSettings observe;
  ComputeSettings compute;
  ParallelSettings parallel;
  bool strict = false;  // a change and a slow path are errors
};

// A setting that the server changed by itself; printed as `changed: --x 8192 -> 4096 because ...`.
struct SettingChange {
  std::string flag, from, to, why;
};

// Something that makes the server slower than it could be, or less safe, and what to do about it;
// printed as `slow: WHAT: WHY` with the fix.
struct SlowPath {
  std::string what, why, fix;
};

}  // namespace hocket
