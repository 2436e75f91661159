// Remembers which peer computed a prompt, so that the next turn of the conversation goes to the one
// that has its pages. The older half of what it knows is forgotten when the newer one is full.
// Owner: PeerSource. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/mutex.h"
#include "compute/kv/page_header.h"

namespace hocket {

class PrefixPeers {
 public:
  // Limit of the keys in each half; together they take about a MiB.
  static constexpr size_t kMaxKeys = 8192;
  // Keys of a prompt that are remembered: of its last pages. The last one may have tokens with
  // which a template opens the answer, and which the next turn has not.
  static constexpr size_t kKeysOfPrompt = 2;

  // Notes that the peer computes a prompt, whose whole pages have these keys.
  void note(std::span<const PageKey> keys, size_t peer);
  struct Prefix {
    size_t peer = 0;
    size_t num_pages = 0;  // that it has, if it has not evicted them
  };
  // Returns the longest beginning of these pages that a peer computed; nullopt: none is known.
  std::optional<Prefix> find(std::span<const PageKey> keys) const;

 private:
  struct KeyHash {
    size_t operator()(const PageKey& key) const noexcept;
  };
  using Peers = std::unordered_map<PageKey, uint8_t, KeyHash>;

  mutable Mutex mutex_;
  Peers newer_ HOCKET_GUARDED_BY(mutex_), older_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
