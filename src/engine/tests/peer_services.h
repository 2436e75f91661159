// The fixture of tests of pages that move between services of one process. For tests.
#pragma once

#include <string>
#include <utility>

#include "cluster/proxy_testing.h"
#include "engine/tests/stored_pages.h"

namespace hocket::testing {

class PeerServicesTest : public StoredPagesTest {
 protected:
  // A service that offers its pages at port_.
  ServerSettings offering(ServerSettings settings, std::string mode = "null") {
    port_ = TestProxy::free_port();
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    settings.memory.kv_cache_dir = folder_.string();
    settings.peers.kv_cache_listen = fmt::format("127.0.0.1:{}", port_);
    settings.peers.disaggregation_mode = std::move(mode);
    return settings;
  }
  static ServerSettings asking(ServerSettings settings, uint16_t port) {
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    settings.peers.kv_cache_peers = fmt::format("127.0.0.1:{}", port);
    return settings;
  }
  static ServerSettings decoding(ServerSettings settings, const std::string& peers) {
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    settings.peers.disaggregation_mode = "decode";
    settings.peers.disaggregation_prefill_url = peers;
    return settings;
  }
  static ServerSettings decoding(ServerSettings settings, uint16_t port) {
    return decoding(std::move(settings), fmt::format("127.0.0.1:{}", port));
  }
  static CacheTierStats tier_of(Service& service) { return service.engine().stats().tier.value(); }

  uint16_t port_ = 0;  // that of the service that was made last by offering()
};

}  // namespace hocket::testing
