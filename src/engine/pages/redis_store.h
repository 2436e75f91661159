// Pages in a Redis or Valkey as a store, which several services may share.
//
//   PREFIX:3f9a..c2    the key of the page in hex; its value is the page behind its header
//                      (compute/kv/page_header.h)
//
// The prefix names the form of the pages, and the secret if there is one: then only a service that
// has it can make a page that is accepted. A page that was not read for kKept is deleted; before
// that Redis evicts by its own rule (maxmemory-policy). Without hiredis nothing of this may be
// made.
// Thread: any; each call takes a connection of its own.
#pragma once

#include <unordered_set>

#include "base/timed_calls.h"
#include "compute/kv/page_folders.h"
#include "engine/pages/idle_redis_links.h"
#include "engine/pages/page_store.h"
#include "engine/pages/redis_address.h"
#include "engine/pages/redis_link.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {

class RedisStore final : public PageStore {
 public:
  static constexpr auto kKept = kOtherStoreKeeps;
  // Pages that travel at once, and their bytes, as far as one page allows.
  static constexpr size_t kMaxAhead = 64;
  static constexpr size_t kMaxAheadBytes = size_t{8} << 20;
  // A page may have been evicted there since it was seen, so it is asked for again after this.
  static constexpr Duration kKnownFor = std::chrono::minutes(10);

  struct Options {
    RedisAddress address;
    PageKey form{};      // hash of all that the pages depend on, beside their tokens
    std::string secret;  // empty: none
    std::shared_ptr<const TlsContext> tls = nullptr;  // null: without TLS
    Duration retry_interval = kRetryInterval;
    Duration trusted_for = IdleRedisLinks::kTrustedFor;
  };
  explicit RedisStore(Options options);

  PageTier tier() const override { return PageTier::redis; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) override;
  bool has(const PageKey& key) override;
  Figures figures() const override;
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override;
  Result<size_t> put(std::span<const Page> pages, const std::function<bool()>& is_over) override;

  // Connects, and returns what there is: version, memory in use and its limit, what is evicted.
  // Errors: io, timed_out, unauthorized.
  Result<std::string> describe();
  // The beginning of the names of all keys.
  const std::string& prefix() const { return prefix_; }

 private:
  friend class RedisPromptPages;
  using Link = IdleRedisLinks::Link;
  struct KeyHash {
    size_t operator()(const PageKey& key) const noexcept;
  };
  using Keys = std::unordered_set<PageKey, KeyHash>;

  Result<Link> connect_link();
  Result<void> log_in(RedisLink& link);
  Result<Link> take_link();
  void give_back(Link link);
  // Notes that the store failed, unless no request waits for it any more.
  template <class T>
  Result<T> watch(Result<T> result);
  Result<std::vector<bool>> exist_at(RedisLink& link, std::span<const PageKey> keys);
  Result<size_t> put_at(RedisLink& link, std::span<const Page> pages);
  Result<void> put_some(RedisLink& link, std::span<const Page* const> pages);
  std::string name_of(const PageKey& key) const;
  void age_known() HOCKET_REQUIRES(mutex_);
  void note(const PageKey& key);
  void forget(const PageKey& key);

  const Options options_;
  const std::string prefix_;
  const std::string name_;  // for errors
  TimedCalls resolver_;
  std::atomic<uint64_t> num_damaged_{0}, num_failures_{0};
  IdleRedisLinks idle_;
  mutable Mutex mutex_;
  // Keys that were seen there: the newer, and those before them.
  Keys newer_ HOCKET_GUARDED_BY(mutex_), older_ HOCKET_GUARDED_BY(mutex_);
  TimePoint began_ HOCKET_GUARDED_BY(mutex_){};  // when the newer were begun
};

}  // namespace hocket
