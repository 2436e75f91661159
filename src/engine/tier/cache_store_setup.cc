#include "engine/tier/cache_store_setup.h"

#include <utility>

#include "base/log.h"
#include "cluster/token_proof.h"
#include "engine/pages/redis_store.h"

namespace hocket {
namespace {

CertificateFiles store_certificates(const MemorySettings& memory) {
  return {.ca = memory.kv_cache_store_cacert,
          .certificate = memory.kv_cache_store_cert,
          .key = memory.kv_cache_store_key};
}

Result<RedisStore::Options> store_options(const MemorySettings& memory) {
  HOCKET_TRY(RedisAddress address, parse_redis_address(memory.kv_cache_store));
  if (!can_use_redis())
    return fail(error(ErrorCode::bad_value, "this program was built without a client of Redis")
                    .with_param("kv-cache-store")
                    .with_fix("build it where libhiredis-dev is installed"));
  RedisStore::Options options{.address = std::move(address)};
  if (!options.address.has_tls) return options;
  HOCKET_TRY(options.tls, TlsContext::for_servers(store_certificates(memory), "kv-cache-store"));
  return options;
}

Result<std::string> token_of_cluster(const ParallelSettings& parallel) {
  if (parallel.cluster_token_file.empty()) return std::string();
  return read_cluster_token(parallel.cluster_token_file);
}

}  // namespace

Result<void> check_store(const MemorySettings& memory) {
  bool has_tls = false;
  if (!memory.kv_cache_store.empty()) {
    HOCKET_TRY(const RedisStore::Options options, store_options(memory));
    has_tls = options.address.has_tls;
  }
  if (has_tls || store_certificates(memory).empty()) return {};
  return fail(error(ErrorCode::bad_value,
                    "certificates of --kv-cache-store change nothing if it is not inside TLS")
                  .with_param("kv-cache-store-cacert")
                  .with_fix("--kv-cache-store rediss://HOST:6379"));
}

Result<std::string> probe_store(const MemorySettings& memory) {
  HOCKET_TRY_VOID(check_store(memory));
  HOCKET_TRY(RedisStore::Options options, store_options(memory));
  return RedisStore(std::move(options)).describe();
}

Result<std::shared_ptr<PageStore>> open_store(const ServerSettings& settings, const PageKey& form,
                                              int64_t max_page_bytes) {
  HOCKET_TRY(RedisStore::Options options, store_options(settings.memory));
  if (max_page_bytes > static_cast<int64_t>(RedisLink::kMaxValueBytes))
    return fail(error(ErrorCode::bad_value,
                      "a page or a state of this model has {} bytes, and a value of a store at "
                      "most {}",
                      max_page_bytes, RedisLink::kMaxValueBytes)
                    .with_param("kv-cache-store")
                    .with_fix("--kv-cache-dir DIR in place of the store"));
  options.form = form;
  HOCKET_TRY(options.secret, token_of_cluster(settings.parallel));
  auto store = std::make_shared<RedisStore>(std::move(options));
  const Result<std::string> found = store->describe();
  if (found)
    log::info("prefixes in a store: {}, keys {}*", *found, store->prefix());
  else
    store->report(found.error(), fmt::format("it is tried again every {:.0f} s",
                                             to_seconds(PageStore::kRetryInterval)));
  return store;
}

}  // namespace hocket
