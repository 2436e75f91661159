#include "apps/flags.h"

namespace hocket {

FlagGroup memory_flags(ServerSettings& s) {
  return {
      "Memory",
      {{"mem-fraction-static", &s.memory.mem_fraction_static,
        "share of the memory for weights and KV; 0: planned", ""},
       {"max-total-tokens", &s.memory.max_total_tokens, "KV capacity, of each rank; 0: planned",
        ""},
       {"mamba-full-memory-ratio", &s.memory.mamba_full_memory_ratio,
        "memory for states of delta nets, as a multiple of that for KV pages; 0: planned (0.9)",
        ""},
       {"swa-full-tokens-ratio", &s.memory.swa_full_tokens_ratio,
        "tokens that layers with sliding windows hold, as a share of those of full attention; 0: "
        "planned",
        ""},
       {"max-running-requests", &s.memory.max_running_requests,
        "requests decoded together, of each rank; 0: planned", "", true},
       {"kv-cache-dtype", &s.memory.kv_cache_dtype, "auto (that of --dtype) or int8", "", true},
       {"kv-cache-dir", &s.memory.kv_cache_dir,
        "folder that keeps computed prefixes, so that neither an eviction nor a restart loses "
        "them; none if absent",
        ""},
       {"kv-cache-dir-gb", &s.memory.kv_cache_dir_gb,
        "limit of its files, for each process, those of other models and settings included; 0: "
        "half of the sum of the free disk space and these files",
        ""},
       {"kv-cache-store", &s.memory.kv_cache_store,
        "a Redis or Valkey that keeps computed prefixes, which services may share: "
        "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// with TLS; none if absent",
        ""},
       {"kv-cache-store-cacert", &s.memory.kv_cache_store_cacert,
        "file (PEM) with the CA of a rediss:// store's certificate; that of the system if absent",
        ""},
       {"kv-cache-store-cert", &s.memory.kv_cache_store_cert,
        "PEM file with this server's certificate for a rediss:// store; none if absent", ""},
       {"kv-cache-store-key", &s.memory.kv_cache_store_key,
        "PEM file with the private key of --kv-cache-store-cert", ""},
       {"session-timeout", &s.memory.session_timeout_s,
        "seconds for which the prefix of an idle session_id is evicted only after other prefixes; "
        "0: not at all",
        ""},
       {"hicache-write-policy", &s.memory.hicache_write_policy,
        "which pages are written to folder and store: write_through (all that are computed) or "
        "write_through_selective (those of prefixes that a second request uses)",
        ""},
       {"hicache-storage-prefetch-policy", &s.memory.hicache_storage_prefetch_policy,
        "how long a prompt waits for pages from --kv-cache-dir, --kv-cache-store and peers: "
        "best_effort (not at all), wait_complete, or timeout (as long as computing would take)",
        ""},
       {"page-size", &s.memory.page_size, "tokens of a KV page: a power of two, 1 to 128", ""}}};
}

}  // namespace hocket
