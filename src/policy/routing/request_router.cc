#include "policy/routing/request_router.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "base/check.h"
#include "base/mix.h"

namespace hocket {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"shortest", "cache-aware", "round-robin"};

}  // namespace

Result<RoutingPolicy> parse_routing_policy(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<RoutingPolicy>(found - kNames.begin());
  return fail(error(ErrorCode::bad_value, "routing policy '{}' is unknown", name)
                  .with_fix("one of shortest, cache-aware, round-robin")
                  .with_param("dp-routing"));
}

RequestRouter::RequestRouter(int num_ranks, const Options& options)
    : options_(options), num_ranks_(num_ranks), asked_at_(static_cast<size_t>(num_ranks)) {
  HOCKET_CHECK(num_ranks >= 1);
  HOCKET_CHECK(options.block_tokens >= 1);
}

Result<int> RequestRouter::choose(const CacheNamespace& name, std::span<const TokenId> prompt,
                                  std::span<const RankLoad> loads) {
  HOCKET_CHECK(std::ssize(loads) == num_ranks_);
  if (std::ranges::none_of(loads, &RankLoad::takes_requests))
    return fail(error(ErrorCode::lost_rank, "none of {} ranks takes requests", num_ranks_)
                    .with_fix("try again later"));
  int chosen = shortest(loads);
  if (options_.policy == RoutingPolicy::cache_aware) {
    hash(name, prompt);
    const std::vector<int> known = known_lens();
    int most = chosen;
    for (int rank = 0; rank < num_ranks_; ++rank)
      if (loads[rank].takes_requests && known[rank] > known[most]) most = rank;
    const bool enough = known[most] >= options_.min_share * static_cast<double>(prompt.size());
    if (known[most] > 0 && enough && alike(loads)) chosen = most;
    remember(chosen);
  }
  asked_at_[chosen] = ++num_asked_;
  return chosen;
}

int RequestRouter::shortest(std::span<const RankLoad> loads) const {
  int best = -1;
  const auto place = [&](int rank) {
    const bool by_load = options_.policy != RoutingPolicy::round_robin;
    return std::tuple(!loads[rank].takes_requests, by_load ? loads[rank].num_tokens : 0,
                      asked_at_[rank]);
  };
  for (int rank = 0; rank < num_ranks_; ++rank)
    if (best < 0 || place(rank) < place(best)) best = rank;
  return best;
}

bool RequestRouter::alike(std::span<const RankLoad> loads) const {
  int least = std::numeric_limits<int>::max(), most = 0;
  for (const RankLoad& load : loads) {
    if (!load.takes_requests) continue;
    least = std::min(least, load.num_requests);
    most = std::max(most, load.num_requests);
  }
  return most - least <= options_.alike_requests || most <= options_.alike_ratio * least;
}

void RequestRouter::hash(const CacheNamespace& name, std::span<const TokenId> prompt) {
  hashes_.clear();
  uint64_t hash = mix64(name.high ^ mix64(name.low + kMixStep));
  const auto block = static_cast<size_t>(options_.block_tokens);
  for (size_t begin = 0; begin + block <= prompt.size(); begin += block) {
    for (const TokenId token : prompt.subspan(begin, block))
      hash = mix64(hash + kMixStep + static_cast<uint32_t>(value(token)));
    hashes_.push_back(hash);
  }
}

std::vector<int> RequestRouter::known_lens() {
  std::vector<int> lens(static_cast<size_t>(num_ranks_));
  std::vector<bool> still(static_cast<size_t>(num_ranks_), true);
  for (const uint64_t hash : hashes_) {
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) break;
    for (size_t rank = 0; rank < lens.size(); ++rank) {
      still[rank] = still[rank] && found->second.ranks[rank];
      if (still[rank]) lens[rank] += options_.block_tokens;
    }
  }
  return lens;
}

// Touches later blocks first, so that a prompt's beginning is younger than its end and outlives it.
void RequestRouter::remember(int rank) {
  for (size_t i = hashes_.size(); i-- > 0;) {
    const auto [block, is_new] = blocks_.try_emplace(hashes_[i]);
    if (is_new) {
      block->second.ranks.resize(static_cast<size_t>(num_ranks_));
      block->second.age = ages_.insert(ages_.end(), hashes_[i]);
    } else {
      ages_.splice(ages_.end(), ages_, block->second.age);
    }
    block->second.ranks[static_cast<size_t>(rank)] = true;
  }
  while (blocks_.size() > options_.max_blocks) {
    blocks_.erase(ages_.front());
    ages_.pop_front();
  }
}

void RequestRouter::forget(int rank) {
  for (auto& [hash, block] : blocks_) block.ranks[static_cast<size_t>(rank)] = false;
}

}  // namespace hocket
