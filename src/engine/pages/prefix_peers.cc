#include "engine/pages/prefix_peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hocket {

size_t PrefixPeers::KeyHash::operator()(const PageKey& key) const noexcept {
  size_t first = 0;
  std::memcpy(&first, key.data(), sizeof first);
  return first;
}

void PrefixPeers::note(std::span<const PageKey> keys, size_t peer) {
  HOCKET_CHECK(peer < 256u);
  const MutexLock lock(mutex_);
  if (newer_.size() + kKeysOfPrompt > kMaxKeys) older_ = std::exchange(newer_, {});
  for (const PageKey& key : keys.last(std::min(keys.size(), kKeysOfPrompt)))
    newer_.insert_or_assign(key, static_cast<uint8_t>(peer));
}

std::optional<PrefixPeers::Prefix> PrefixPeers::find(std::span<const PageKey> keys) const {
  const MutexLock lock(mutex_);
  for (size_t num_pages = keys.size(); num_pages > 0; --num_pages)
    for (const Peers* known : {&newer_, &older_})
      if (const auto found = known->find(keys[num_pages - 1]); found != known->end())
        return Prefix{.peer = found->second, .num_pages = num_pages};
  return std::nullopt;
}

}  // namespace hocket
