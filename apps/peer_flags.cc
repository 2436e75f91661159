// The flags of `serve` for pages that services give each other.
#include "apps/flags.h"

namespace hocket {

FlagGroup peer_flags(ServerSettings& s) {
  return {
      "Other services",
      {{"kv-cache-listen", &s.peers.kv_cache_listen,
        "HOST:PORT at which the pages of --kv-cache-dir are offered to other services; not "
        "offered if absent",
        ""},
       {"kv-cache-peers", &s.peers.kv_cache_peers,
        "HOST:PORT,...: services that are asked for pages which are neither in memory nor in files",
        ""},
       {"disaggregation-mode", &s.peers.disaggregation_mode,
        "prefill (computes prompts for others), decode (lets others compute its prompts), "
        "auto (prefill, and decode while its own prompts would delay its answers), or null; POST "
        "/disaggregation_mode changes it",
        ""},
       {"disaggregation-prefill-url", &s.peers.disaggregation_prefill_url,
        "HOST:PORT,...: the --kv-cache-listen of the services that compute the prompts", ""}}};
}

}  // namespace hocket
