// Two views of the whole tree: check_integrity() recounts it, and tell_*() names its pages to
// listeners.
#include "base/check.h"
#include "policy/cache/radix_tree.h"

namespace hocket {

// Recounts every counter from the nodes; a difference is a bug.
void RadixCache::Tree::check_integrity() const {
  std::vector<bool> seen(static_cast<size_t>(pages.num_pages()));
  std::vector<const RadixNode*> todo;
  int cached = 0, evictable = 0, leases = 0, num_states = 0;
  size_t num_leaves = 0;
  for (const auto& [name_space, top] : roots) {
    HOCKET_CHECK(!top->children.empty());
    HOCKET_CHECK(top->name_space == name_space);
    todo.push_back(top.get());
  }
  while (!todo.empty()) {
    const RadixNode& node = *todo.back();
    todo.pop_back();
    int leases_below = 0, states_below = 0;
    for (const auto& child : node.children) {
      HOCKET_CHECK(child->parent == &node);
      HOCKET_CHECK(child->num_pages() > 0);
      HOCKET_CHECK(child->end_pages == node.end_pages + child->num_pages());
      leases_below += child->num_leases;
      states_below += child->num_states_below + (child->state >= 0 ? 1 : 0);
      todo.push_back(child.get());
    }
    if (node.is_root()) continue;
    HOCKET_CHECK(node.tokens.size() == node.pages.size() * page_tokens());
    HOCKET_CHECK(node.num_leases >= leases_below);
    HOCKET_CHECK(node.hashes.size() <= node.pages.size());
    const bool all_told =
        node.parent->is_root() || node.parent->hashes.size() == node.parent->pages.size();
    HOCKET_CHECK((node.hashes.empty() || all_told));
    HOCKET_CHECK(node.is_evictable_leaf() == (node.eviction_slot >= 0));
    if (node.state >= 0) {
      ++num_states;
      HOCKET_CHECK(states.node_of(node.state) == &node);
    }
    const bool is_evictable_state = node.state >= 0 && node.num_state_leases == 0;
    HOCKET_CHECK(node.num_states_below == states_below);
    HOCKET_CHECK(is_evictable_state == (node.state_eviction_slot >= 0));
    HOCKET_CHECK(node.num_state_leases == 0 || node.state >= 0);
    HOCKET_CHECK(node.num_state_leases <= node.num_leases);
    leases += node.num_leases - leases_below;
    cached += node.num_pages();
    if (node.num_leases == 0) evictable += node.num_pages();
    if (node.is_evictable_leaf()) ++num_leaves;
    for (PageId page : node.pages) {
      HOCKET_CHECK(!seen[static_cast<size_t>(value(page))]);
      seen[static_cast<size_t>(value(page))] = true;
    }
    HOCKET_CHECK(node.window_pages.size() == (windows.enabled() ? node.pages.size() : 0));
  }
  HOCKET_CHECK(cached == num_cached);
  HOCKET_CHECK(evictable == num_evictable);
  HOCKET_CHECK(leases == num_leases);
  HOCKET_CHECK(num_states == states.num_cached());
  HOCKET_CHECK(num_leaves == evictable_leaves.size());
  HOCKET_CHECK(num_cached + pages.num_free() <= pages.num_pages());
  if (windows.enabled()) check_windows();
}

// Recounts the pages of window layers. Each is at one place, which the CachedWindows know.
void RadixCache::Tree::check_windows() const {
  std::vector<const RadixNode*> todo;
  for (const auto& [name_space, top] : roots) todo.push_back(top.get());
  int num_pages = 0, evictable = 0;
  while (!todo.empty()) {
    const RadixNode& node = *todo.back();
    todo.pop_back();
    for (const auto& child : node.children) todo.push_back(child.get());
    for (int page_index = node.begin_pages(); page_index < node.end_pages; ++page_index) {
      const PageId page = node.window_page(page_index);
      if (page == kNoPage) continue;
      HOCKET_CHECK(windows.is_at(page, node, page_index));
      HOCKET_CHECK(windows.num_leases(page) <= node.num_leases);
      ++num_pages;
      evictable += windows.num_leases(page) == 0 ? 1 : 0;
    }
  }
  HOCKET_CHECK(num_pages == windows.num_cached());
  HOCKET_CHECK(evictable == windows.num_evictable());
  HOCKET_CHECK(num_pages + options.windows->num_free() <= options.windows->num_pages());
}

// Pushes `stored` for each page from the root to the end of `node` that listeners do not know yet.
void RadixCache::Tree::emit_stored(RadixNode& node) {
  path.clear();
  for (RadixNode* n = &node; !n->is_root() && n->hashes.size() < n->pages.size(); n = n->parent)
    path.push_back(n);
  if (path.empty()) return;
  if (!options.events->is_publishing()) {
    for (const RadixNode* n : path)
      options.events->note_lost(n->num_pages() - static_cast<int>(n->hashes.size()));
    return;
  }
  for (; !path.empty(); path.pop_back()) {
    RadixNode& next = *path.back();
    const RadixNode& parent = *next.parent;
    PageHash before = !next.hashes.empty() ? next.hashes.back()
                      : parent.is_root()   ? root_hash(parent.name_space)
                                           : parent.hashes.back();
    next.hashes.reserve(next.pages.size());
    while (next.hashes.size() < next.pages.size()) {
      const size_t begin = next.hashes.size() * page_tokens();
      const PageHash hash = hash_page(before, Tokens(next.tokens).subspan(begin, page_tokens()));
      options.events->push({.kind = KvEvent::Kind::stored, .hash = hash, .parent = before});
      next.hashes.push_back(hash);
      before = hash;
    }
  }
}

// Pushes `removed` for the last pages of a leaf. Pages that listeners were never told of are left
// out.
void RadixCache::Tree::emit_removed(const RadixNode& leaf, int num_pages) {
  const auto kept = leaf.pages.size() - static_cast<size_t>(num_pages);
  for (size_t i = leaf.hashes.size(); i > kept; --i) {
    if (options.events->is_publishing())
      options.events->push({.kind = KvEvent::Kind::removed, .hash = leaf.hashes[i - 1]});
    else
      options.events->note_lost(1);
  }
}

// Pushes `cleared`: from then on listeners know no page.
void RadixCache::Tree::emit_cleared() {
  options.events->begin_anew();
  path.clear();
  for (const auto& [name_space, top] : roots) path.push_back(top.get());
  while (!path.empty()) {
    RadixNode& node = *path.back();
    path.pop_back();
    node.hashes.clear();
    for (const auto& child : node.children) path.push_back(child.get());
  }
}

// Tells the tree from the roots down, in at most half of the queue's free places; the other half is
// for events that happen meanwhile. The remaining pages are told when they are used again.
void RadixCache::Tree::emit_all() {
  emit_cleared();
  std::vector<RadixNode*> todo;
  for (const auto& [name_space, top] : roots) todo.push_back(top.get());
  size_t room = options.events->room() / 2;
  while (!todo.empty() && options.events->is_publishing()) {
    RadixNode& node = *todo.back();
    todo.pop_back();
    if (node.pages.size() > room) continue;
    room -= node.pages.size();
    if (!node.is_root()) emit_stored(node);
    for (const auto& child : node.children) todo.push_back(child.get());
  }
}

}  // namespace hocket
