// All settings of `serve` (and of the commands that run the engine), with their defaults.
// apps/flags.cc fills them from flags, HOCKET_* variables and a YAML file, in that precedence.
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
  // One of none, int8, int4; for weights that the files hold unquantized.
  std::string quantization = "none";
  std::string load_format = "auto";            // auto, dummy
  std::string chat_template;                   // file; empty: the model's own
  std::string grammar_backend = "llguidance";  // for structured output; none: free text only
  uint64_t dummy_seed = 0;                     // for --load-format dummy
  std::string weight_cache;  // folder that keeps packed weights for the next start; empty: none
  int max_mtp_modules = 0;   // no flag: modules for multi-token prediction that are needed
};

struct MemorySettings {
  double mem_fraction_static = 0;  // share of memory for weights and KV; 0: planned
  int64_t max_total_tokens = 0;    // KV capacity; 0: planned
  // Models with delta nets: memory of states, as a multiple of that of KV pages; 0: planned.
  double mamba_full_memory_ratio = 0;
  // Models with sliding windows: tokens that the window layers hold, as a share of those that the
  // others hold; 0: planned.
  double swa_full_tokens_ratio = 0;
  int max_running_requests = 0;  // 0: planned
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = 0;        // 0: no limit
  int page_size = 32;                   // tokens; a power of two, 1 to 128
  std::string kv_cache_dtype = "auto";  // auto (that of --dtype), int8
  std::string kv_cache_dir;             // folder for computed prefixes (engine/tier/cache_tier.h)
  double kv_cache_dir_gb = 0;           // size of all files there; 0: planned
  std::string kv_cache_store;  // a Redis that keeps them, too (engine/pages/redis_address.h)
  // Files in PEM for a store with TLS: the CA of its certificate (empty: the system's), and this
  // client's certificate and key, if the store asks for them.
  std::string kv_cache_store_cacert, kv_cache_store_cert, kv_cache_store_key;
  double session_timeout_s = 600;  // time for which an idle session is kept; 0: none is
  std::string hicache_write_policy = "write_through";  // or write_through_selective
  // best_effort, wait_complete or timeout: how long a prompt waits for its pages from there.
  std::string hicache_storage_prefetch_policy = "timeout";
};

struct SchedulerSettings {
  std::string schedule_policy = "fcfs";  // policy/scheduler/schedule_policy.h
  int chunked_prefill_size = 0;          // tokens; 0: planned; -1: whole prompts
  int max_prefill_tokens = 16384;
  int max_chunked_requests = 1;
  std::string prefill_policy = "auto";    // auto, prefill-first, mixed, latency
  bool enable_mixed_chunk = false;        // the same as prefill_policy mixed
  double itl_slo_ms = 100;                // for prefill_policy latency and auto
  std::string overlap_schedule = "auto";  // auto, on, off
  bool disable_overlap_schedule = false;  // the same as overlap_schedule off
  int max_overtaken = 512;                // requests that may start before an older one
  double schedule_conservativeness = 1.0;
  int64_t schedule_seed = 0;        // for the policy `random`
  int prefill_max_requests = 0;     // in one pass; 0: no limit
  double waiting_timeout_s = 0;     // 0: no limit
  double running_timeout_s = 0;     // 0: no limit
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

// Pages that services give each other, and prefill apart from decode (docs/contracts/cache.md).
struct PeerSettings {
  std::string kv_cache_listen;  // HOST:PORT at which peers ask for pages; empty: not offered
  std::string kv_cache_peers;   // HOST:PORT,...: services that are asked for pages
  std::string disaggregation_mode = "null";  // null, prefill, decode, auto
  std::string disaggregation_prefill_url;    // HOST:PORT,...: services that compute prompts
};

// Tokens that are guessed and checked together with the next one (docs/speculation.md).
struct SpeculationSettings {
  std::string algorithm = "none";  // auto, NEXTN, EAGLE, NGRAM, none, in any case
  int num_steps = 0;               // drafts of an answer in each step; 0: chosen by measurement
  int num_draft_tokens = 0;        // the same with the token before them; 0: not given
  int eagle_topk = 0;              // drafts for one position: 1; 0: not given
};

struct HttpSettings {
  std::string host = "127.0.0.1";
  int port = 30000;
  std::string api_key, admin_api_key;
  std::string api_key_file;               // server/access/key_ring.h
  bool share_prefixes = false;            // clients of api_key_file share cached prefixes
  std::string ssl_certfile, ssl_keyfile;  // PEM; both empty: no TLS
  // Web pages that may send requests besides the server's own.
  std::string cors_origins;
  std::string allowed_hosts;  // further names for the Host header (server/access/host_names.h)
  int max_connections = 4096;
  double header_timeout_s = 10;  // for a whole head
  double body_timeout_s = 60;    // for a whole body
  double write_timeout_s = 30;   // for 64 KiB of an answer to leave
  double idle_timeout_s = 75;    // between two requests of a connection
  double shutdown_timeout_s = 30;
  double watchdog_timeout_s = 300;
  int64_t max_body_bytes = 32 << 20;
  // Limits of the memory that requests hold, in MiB (server/usage/request_memory.h).
  int request_memory_mib = 256, key_memory_mib = 512, total_request_memory_mib = 1024;
  int response_store_mib = 64;  // for kept answers of /v1/responses; 0: none is kept
  // For the requests of streams that clients, or other ranks, may continue; 0: none is kept.
  int stream_store_mib = 64;
  std::string log_level = "info";
};

// Settings for reading calls and reasoning in answers (docs/api.md "Tools", "Reasoning").
struct AnswerSettings {
  std::string tool_call_parser = "auto";  // auto, or a name of text/answers/tool_format.h
  std::string reasoning_parser = "auto";
  std::string reasoning_field = "reasoning_content";  // reasoning_content, reasoning, both
};

// Reports of the server about itself and its requests (docs/operations.md).
struct ObserveSettings {
  std::string log_format = "text";  // text, json
  bool log_requests = false;
  int log_requests_level = 1;  // 0 to 3 (server/observe/request_log.h); prompts from 2 on
  bool enable_trace = false;
  std::string otlp_traces_endpoint = "http://localhost:4318/v1/traces";
  std::string dump_requests_folder;        // empty: no dump
  int64_t dump_requests_bytes = 64 << 20;  // size of one file
  int dump_requests_files = 16;            // files that are kept
  std::string crash_dump_folder;           // empty: no black box
  // The server writes files for admins only below it; empty: none.
  std::string admin_folder;
  std::string metrics_compat;  // empty, sglang, vllm, or both with a comma
};

struct ComputeSettings {
  std::string cpu_bind = "auto";  // auto, none, or a list such as 0-3,8
  int num_threads = 0;            // compute threads; 0: one for each core
  int combine_groups = 0;         // 0: one an expert (docs/contracts/arithmetic.md)
  std::string mla_form = "auto";  // form of latent attention: see --mla-form
};

// Ranks that serve as one (docs/contracts/expert_parallel.md).
struct ParallelSettings {
  int ep_size = 1;  // number of ranks, over which the experts are spread
  // Chooses the rank that takes a request: shortest, cache-aware or round-robin.
  std::string dp_routing = "cache-aware";
  // Simulates a network between ranks of one process. 0: none, messages are as fast as memory.
  double ep_link_gbit = 0;
  double ep_link_latency_us = 0;
  // Format of rows that are sent to experts: auto and bfloat16 (the activations' own type), or int8
  // with a scale for each row. int8 changes results, but in the same way for any number of ranks.
  std::string dispatch_dtype = "auto";
  std::string combine_dtype = "auto";            // the same of the sums that they return
  std::string init_expert_location = "trivial";  // or a file that places experts
  std::string ep_num_redundant_experts = "0";    // replicas in each layer, on all ranks; or auto
  std::string eplb_algorithm = "auto";  // places experts by recorded counts: global, hierarchical
  bool enable_eplb = false;             // experts move while requests are served
  int eplb_rebalance_num_iterations = 1000;       // least steps between two looks at the counts
  std::string expert_distribution_recorder_mode;  // record from the start on; empty: on request
  bool enable_prefill_delayer = false;            // ranks begin prompts together
  int prefill_delayer_max_passes = 30;

  // Hides exchanges behind compute (engine/lockstep/overlap_settings.h): auto, none, single-batch,
  // two-batch, or an order. Empty: the first order of overlap_plan, or auto if there is no plan.
  std::string overlap;
  // The same for steps with prompts and for steps of answers alone; empty: as `overlap`.
  std::string overlap_order_prefill, overlap_order_decode;
  std::string overlap_plan;  // a file of orders in addition to the built-in ones
  bool enable_two_batch_overlap = false, enable_single_batch_overlap = false;
  double tbo_token_distribution_threshold = 0.48;  // SplitOptions (compute/forward/split.h)

  // These settings are for ranks in processes of their own (cluster/launch.h). 0 and -1: not given.
  int nnodes = 0, node_rank = -1, ranks_per_node = 0;
  std::string dist_init_addr;  // address of rank 0, "h0:5000"
  std::string cluster_store;   // "etcd://h0:2379,h1:2379/name": any rank coordinates
  // The same files as kv_cache_store_cacert etc., for a cluster_store of etcds://.
  std::string cluster_store_cacert, cluster_store_cert, cluster_store_key;
  std::string cluster_listen;        // where this rank listens then, "h0:5000"; empty: chosen
  std::string cluster_token_file;    // a process may join if it knows the content of this file
  std::string cluster_tls = "auto";  // connections between ranks are encrypted: on, off
  bool insecure_cluster = false;     // processes may join without a token
  double rank_wait_s = 60;  // wait for rank 0, or a coordinator, that is not there; then exit 5
  double lost_rank_wait_s = 60;  // running requests wait for lost ranks; 0: they end
  int tolerate_ranks = 0;        // number of ranks that may be missing while the others serve
  std::string ucx_tls;           // as UCX_TLS; empty: chosen by the server
  std::string ucx_net_devices;   // as UCX_NET_DEVICES; empty: all

  // True if experts may get other places after the start.
  bool moves_experts() const { return enable_eplb || tolerate_ranks > 0; }
};

struct ServerSettings {
  ModelSettings model;
  MemorySettings memory;
  SchedulerSettings scheduler;
  PeerSettings peers;
  SpeculationSettings speculation;
  HttpSettings http;
  AnswerSettings answers;
  ObserveSettings observe;
  ComputeSettings compute;
  ParallelSettings parallel;
  bool strict = false;  // a changed setting or a slow path is an error
};

// A setting that the server changed by itself; printed as `changed: --x 8192 -> 4096 because ...`.
struct SettingChange {
  std::string flag, from, to, why;
};

// A reason why the server is slower or less safe than it could be, and the remedy; printed as
// `slow: WHAT: WHY` with the fix.
struct SlowPath {
  std::string what, why, fix;
};

}  // namespace hocket
