#include "policy/scheduler/prefix_order.h"

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

namespace hocket {
namespace {

std::pair<uint64_t, uint64_t> name_of(const PrefixCandidate& candidate) {
  const CacheNamespace& name = candidate.request->cache_namespace;
  return {name.high, name.low};
}

std::span<const TokenId> cached(const PrefixCandidate& candidate) {
  return std::span(candidate.request->tokens).first(static_cast<size_t>(candidate.cached_len));
}

// Sorts before the policy does: by priority, retracted (newest first), then not marked `last`.
auto class_of(const PrefixCandidate& candidate) {
  const Request& request = *candidate.request;
  return std::tuple(-int64_t{request.priority}, std::min<int64_t>(request.queue_order, 0),
                    candidate.last);
}

// Sorts the branches of the prefix tree. `leaves` are sorted by cached prefix and equal in their
// first `depth` tokens; those whose prefix ends at `depth` come first.
class BranchSorter {
 public:
  void visit(std::span<PrefixCandidate*> leaves, size_t depth) {
    size_t num_here = 0;
    while (num_here < leaves.size() && cached(*leaves[num_here]).size() == depth) ++num_here;
    std::vector<std::span<PrefixCandidate*>> branches;
    for (size_t begin = num_here, end = begin; begin < leaves.size(); begin = end) {
      while (end < leaves.size() && cached(*leaves[end])[depth] == cached(*leaves[begin])[depth])
        ++end;
      branches.push_back(leaves.subspan(begin, end - begin));
    }
    std::ranges::stable_sort(branches, std::greater{}, [](const auto& b) { return b.size(); });
    for (const auto branch : branches)
      visit(branch, common_len(cached(*branch.front()), cached(*branch.back())));
    for (PrefixCandidate* leaf : leaves.first(num_here)) leaf->branch_position = next_++;
  }

 private:
  int next_ = 0;
};

void rank_branches(std::span<PrefixCandidate> candidates) {
  std::vector<PrefixCandidate*> leaves;
  for (PrefixCandidate& candidate : candidates) leaves.push_back(&candidate);
  std::ranges::stable_sort(leaves, [](const PrefixCandidate* a, const PrefixCandidate* b) {
    if (a->request->cache_namespace != b->request->cache_namespace)
      return name_of(*a) < name_of(*b);
    return std::ranges::lexicographical_compare(cached(*a), cached(*b));
  });
  BranchSorter sorter;
  for (size_t begin = 0, end = 0; begin < leaves.size(); begin = end) {
    while (end < leaves.size() &&
           leaves[end]->request->cache_namespace == leaves[begin]->request->cache_namespace)
      ++end;
    sorter.visit(std::span(leaves).subspan(begin, end - begin), 0);
  }
}

// Returns the policy's sort key; smaller is first.
double key_of(SchedulePolicy policy, const PrefixCandidate& candidate, uint64_t rows_total) {
  if (policy == SchedulePolicy::lpm) return -candidate.cached_len;
  if (policy == SchedulePolicy::dfs_weight) return candidate.branch_position;
  if (policy == SchedulePolicy::shortest_prefill_first) return candidate.uncached_len();
  return -static_cast<double>(rows_total - candidate.request->rows_at_arrival) /
         std::max(candidate.uncached_len(), 1);
}

}  // namespace

void mark_in_batch_sharers(std::span<PrefixCandidate> candidates, const InBatchSharing& options) {
  if (options.max_cached < 0) return;
  const auto min_common = static_cast<size_t>(std::max(options.min_common, 1));
  using Name = std::pair<uint64_t, uint64_t>;
  using Beginning = std::pair<Name, std::span<const TokenId>>;
  const auto before = [](const Beginning& a, const Beginning& b) {
    if (a.first != b.first) return a.first < b.first;
    return std::ranges::lexicographical_compare(a.second, b.second);
  };
  std::vector<Beginning> seen;  // sorted
  for (PrefixCandidate& candidate : candidates) {
    candidate.last = false;
    const auto reusable = candidate.request->reusable_tokens();
    if (candidate.cached_len > options.max_cached || reusable.size() < min_common) continue;
    const Beginning beginning{name_of(candidate), reusable.first(min_common)};
    const auto position = std::lower_bound(seen.begin(), seen.end(), beginning, before);
    candidate.last = position != seen.end() && !before(beginning, *position);
    if (!candidate.last) seen.insert(position, beginning);
  }
}

void sort_by_prefix(SchedulePolicy policy, std::span<PrefixCandidate> candidates,
                    uint64_t rows_total) {
  if (policy == SchedulePolicy::dfs_weight) rank_branches(candidates);
  const auto order = [&](const PrefixCandidate& candidate) {
    return std::tuple(class_of(candidate), key_of(policy, candidate, rows_total),
                      candidate.request->queue_order);
  };
  std::ranges::sort(candidates, [&](const PrefixCandidate& a, const PrefixCandidate& b) {
    return order(a) < order(b);
  });
}

}  // namespace hocket
