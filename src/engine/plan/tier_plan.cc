#include "engine/plan/tier_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/heap_bytes.h"
#include "compute/kv/page_files.h"
#include "compute/kv/page_layout.h"
#include "engine/plan/tier_buffers.h"
#include "policy/cache/tree_bytes.h"

namespace hocket {
namespace {

TierBuffers tier_buffers(const MemoryPlanInput& q, const MemoryPlan& plan) {
  TierBuffers buffers{.page_bytes = q.page_bytes,
                      .chunk_pages = chunk_pages(plan.chunk_tokens, plan.max_prefill_tokens,
                                                 q.settings.memory.page_size),
                      .peer_bytes = has_peers(q.settings) ? q.peer_page_bytes : 0,
                      .num_senders = num_senders(q.settings),
                      .has_files = !q.settings.memory.kv_cache_dir.empty(),
                      .has_redis = !q.settings.memory.kv_cache_store.empty()};
  if (q.model.num_linear_layers() > 0) {
    buffers.record_bytes = q.model.num_linear_layers() *
                           delta_shape_of(q.model, q.dtype, plan.max_drafts).state_bytes();
  } else if (q.window_page_bytes > 0) {
    const int window = std::min(q.model.window().max_keys(), plan.context_length);
    buffers.record_bytes =
        q.window_page_bytes * window_record_pages(window, q.settings.memory.page_size);
    if (buffers.peer_bytes > 0)
      buffers.peer_bytes +=
          q.peer_window_page_bytes * window_record_pages(window, PageLayout::kMaxTokens);
  }
  return buffers;
}

int64_t smallest_file(const TierBuffers& buffers) {
  const int64_t page = buffers.record_bytes > 0 ? std::min(buffers.page_bytes, buffers.record_bytes)
                                                : buffers.page_bytes;
  return page + static_cast<int64_t>(sizeof(PageHeader));
}

// Returns how many files of this form the limit of their size lets be there, within the limits of
// their number. Their index takes a small part of the memory of the ranks that share it.
int64_t max_files(const MemoryPlanInput& q, const MemoryPlan& plan, const TierBuffers& buffers) {
  if (q.settings.memory.kv_cache_dir.empty()) return 0;
  const int64_t part = plan.budget_bytes / kPartOfIndex * num_sharing_ranks(q.settings.parallel);
  const int64_t most = std::clamp(part / PageFiles::index_bytes(1), kMinIndexedFiles,
                                  static_cast<int64_t>(PageFiles::kMaxFiles));
  return std::clamp(q.max_stored_bytes / smallest_file(buffers) + 1, kMinIndexedFiles, most);
}

}  // namespace

void plan_tier(const MemoryPlanInput& q, MemoryPlan& plan) {
  if (!has_cache_tier(q.settings)) return;
  const TierBuffers buffers = tier_buffers(q, plan);
  // The ranks of a process share the buffers of its server and its stores, and each plans with its
  // part of the memory.
  const int64_t num_sharing = num_sharing_ranks(q.settings.parallel);
  const auto part = [&](int64_t bytes) { return (bytes + num_sharing - 1) / num_sharing; };
  plan.tier_bytes = buffers.bytes();
  if (!q.settings.peers.kv_cache_listen.empty()) plan.tier_bytes += part(buffers.served_bytes());
  plan.max_stored_files = max_files(q, plan, buffers);
  int64_t indexes = PageFiles::index_bytes(plan.max_stored_files);
  if (!q.settings.memory.kv_cache_store.empty())
    indexes += 2 * kMaxKnownKeys * (node_heap_bytes(sizeof(PageKey)) + kBucketBytes);
  plan.index_bytes = part(indexes);
}

std::string smaller_index(const MemoryPlanInput& q, const MemoryPlan& plan) {
  if (plan.max_stored_files <= kMinIndexedFiles) return "";
  const int64_t bytes = (kMinIndexedFiles - 1) * smallest_file(tier_buffers(q, plan));
  const int64_t whole_mb = bytes / 1'000'000;
  return fmt::format(" | --kv-cache-dir-gb {}", static_cast<double>(whole_mb) / 1e3);
}

int64_t tree_bytes_of(const MemoryPlanInput& q, const MemoryPlan& plan, int64_t pages) {
  if (q.settings.scheduler.disable_radix_cache) return 0;
  return max_tree_bytes({.num_pages = pages,
                         .page_tokens = q.settings.memory.page_size,
                         .num_window_pages = window_pages_for(q, plan, pages),
                         .num_states = plan.num_states,
                         .has_events = q.settings.scheduler.kv_events});
}

}  // namespace hocket
