// Chooses the rank that takes a request, when every rank has a scheduler and a prefix cache.
//
//   round_robin   the ranks in turn
//   shortest      the rank with the fewest tokens still to compute; if several are equal, the one
//                 that was chosen the longest ago
//   cache_aware   the rank that was sent the longest beginning of this prompt, if the loads are
//                 alike and that beginning is a large enough share; otherwise like shortest
//
// The router remembers which rank was sent which blocks of prompts. A block's hash covers all
// blocks before it, and the oldest are forgotten first. This is a guess of what the ranks' caches
// hold; the ranks are never asked. A wrong guess costs time and changes no answer. Pure: the same
// calls give the same answers.   Thread: the owner's.   Source: docs/contracts/expert_parallel.md.
//
// Ranks that are threads of one process have one router, in Engine. Ranks that are processes have
// one each, in server/ranks/rank_router.h: any of them may be asked.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "policy/cache/radix_cache.h"

namespace hocket {

enum class RoutingPolicy : uint8_t { shortest, cache_aware, round_robin };
// Errors: bad_value; its fix lists shortest, cache-aware, round-robin.
Result<RoutingPolicy> parse_routing_policy(std::string_view name);

// The present load of one rank.
struct RankLoad {
  bool takes_requests = true;  // false: lost, or shutting down
  int num_requests = 0;        // requests that run or wait
  int64_t num_tokens = 0;      // prompt tokens that wait, plus one for each running request

  bool operator==(const RankLoad&) const = default;
};

class RequestRouter {
 public:
  struct Options {
    RoutingPolicy policy = RoutingPolicy::cache_aware;
    // The length of one remembered block, short, so that a repeated prompt finds the rank that has
    // it cached; and the blocks that are remembered for all ranks together, of 1 M tokens.
    int block_tokens = 16;
    size_t max_blocks = 1 << 16;
    // cache_aware: loads are alike while the largest number of requests exceeds the smallest by at
    // most alike_requests, or is at most alike_ratio times the smallest. A remembered beginning
    // counts if it is at least min_share of the prompt.
    int alike_requests = 8;
    double alike_ratio = 1.5;
    double min_share = 0.3;
  };
  RequestRouter(int num_ranks, const Options& options);

  // Returns the chosen rank. Errors: lost_rank when no rank takes requests.
  Result<int> choose(const CacheNamespace& name, std::span<const TokenId> prompt,
                     std::span<const RankLoad> loads);
  // Call when the cache of `rank` has become empty: the router deletes its record of what it sent
  // there.
  void forget(int rank);

  size_t num_blocks() const { return blocks_.size(); }

 private:
  struct Block {
    std::vector<bool> ranks;
    std::list<uint64_t>::iterator age;
  };

  int shortest(std::span<const RankLoad> loads) const;
  bool alike(std::span<const RankLoad> loads) const;
  // Returns for each rank how many tokens of the prompt's beginning it was sent.
  std::vector<int> known_lens();
  void hash(const CacheNamespace& name, std::span<const TokenId> prompt);
  void remember(int rank);

  Options options_;
  int num_ranks_;
  uint64_t num_asked_ = 0;
  // The value of num_asked_ when a rank was last chosen, by rank.
  std::vector<uint64_t> asked_at_;
  std::vector<uint64_t> hashes_;                // hashes of this prompt's blocks
  std::list<uint64_t> ages_;                    // hashes of the remembered blocks, the oldest first
  std::unordered_map<uint64_t, Block> blocks_;  // by hash
};

}  // namespace hocket
