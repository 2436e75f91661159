// Which rank takes a request, when every rank has a scheduler and a prefix cache of its own.
//
//   round_robin   one after the other
//   shortest      the rank with the fewest tokens still to compute; ties: the one asked longest ago
//   cache_aware   the rank that was sent most of this prompt's beginning, while loads are alike;
//                 otherwise, among equals, and where too little is known, the shortest
//
// What was sent where is remembered by the hashes of whole blocks of prompts, each hash covering
// all before it, the oldest forgotten first: a guess of what the ranks' caches hold, never asked of
// them. A wrong guess costs time and no token.
// Pure: the same calls give the same answers.   Thread: the owner's.   Source:
// docs/contracts/expert_parallel.md.
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
// Errors: bad_value, with the names there are: shortest, cache-aware, round-robin.
Result<RoutingPolicy> parse_routing_policy(std::string_view name);

// Of one rank, now.
struct RankLoad {
  bool takes_requests = true;  // false: lost, or shutting down
  int num_requests = 0;        // that run or wait
  int64_t num_tokens = 0;      // prompt tokens that wait, and one for each that runs
};

class RequestRouter {
 public:
  struct Options {
    RoutingPolicy policy = RoutingPolicy::cache_aware;
    int block_tokens = 32;      // granularity of what is remembered
    size_t max_blocks = 65536;  // remembered in all
    // cache_aware: loads are alike while the largest number of requests is at most so many above
    // the smallest, or at most so many times it; a beginning counts from this share of the prompt.
    int alike_requests = 8;
    double alike_ratio = 1.5;
    double least_share = 0.3;
  };
  RequestRouter(int num_ranks, const Options& options);

  // Errors: lost_rank when no rank takes requests.
  Result<int> choose(const CacheNamespace& name, std::span<const TokenId> prompt,
                     std::span<const RankLoad> loads);
  // Its cache is empty from now on.
  void forget(int rank);

  size_t num_blocks() const { return blocks_.size(); }

 private:
  struct Block {
    std::vector<bool> ranks;
    std::list<uint64_t>::iterator age;
  };

  int shortest(std::span<const RankLoad> loads) const;
  bool alike(std::span<const RankLoad> loads) const;
  // Tokens of the prompt's beginning that each rank was sent.
  std::vector<int> known_lens();
  void hash(const CacheNamespace& name, std::span<const TokenId> prompt);
  void remember(int rank);

  Options options_;
  int num_ranks_;
  uint64_t num_asked_ = 0;
  std::vector<uint64_t> asked_at_;              // of each rank: when it was last chosen
  std::vector<uint64_t> hashes_;                // of this prompt's blocks
  std::list<uint64_t> ages_;                    // the oldest first
  std::unordered_map<uint64_t, Block> blocks_;  // by hash
};

}  // namespace hocket
