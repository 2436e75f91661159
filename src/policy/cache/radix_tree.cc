#include "policy/cache/radix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hocket {

size_t common_len(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Finds the longest match. Children are ordered by their first page, so each level costs O(log
// siblings).
RadixPosition RadixCache::Tree::walk(const CacheNamespace& name_space, Tokens tokens) const {
  RadixPosition position;
  const auto found = roots.find(name_space);
  if (found == roots.end()) return position;
  position.node = found->second.get();
  for (Tokens rest = tokens; !rest.empty();) {
    const auto& children = position.node->children;
    const Tokens key = rest.first(std::min(rest.size(), page_tokens()));
    const auto child = key.size() == page_tokens() ? children.find(key) : children.end();
    if (child == children.end()) {
      look_beside(*position.node, key, position);
      break;
    }
    RadixNode& node = **child;
    const size_t common = common_len(node.tokens, rest);
    position.node = &node;
    position.node_pages = static_cast<int>(common / page_tokens());
    position.num_pages += position.node_pages;
    if (position.node_pages < node.num_pages()) {
      position.source = &node;
      position.source_page = position.node_pages;
      position.partial_len = static_cast<int>(common % page_tokens());
      break;
    }
    rest = rest.subspan(common);
  }
  return position;
}

// Returns the first pages of the path from the root to `end`; none if that is null.
std::vector<PageId> RadixCache::Tree::pages_to(const RadixNode* end, int num_pages) const {
  std::vector<PageId> found(static_cast<size_t>(num_pages), kNoPage);
  for (const RadixNode* node = end; node != nullptr && !node->is_root(); node = node->parent) {
    const int begin = node->begin_pages();
    const int count = std::min(node->end_pages, num_pages) - begin;
    if (count > 0) std::copy_n(node->pages.begin(), count, found.begin() + begin);
  }
  return found;
}

// Returns the pages of window layers at places [begin, end) from the root; `node` ends behind them.
std::vector<PageId> RadixCache::Tree::window_pages_in(const RadixNode* node, int begin, int end) {
  std::vector<PageId> found(static_cast<size_t>(end - begin), kNoPage);
  for (int page_index = end - 1; page_index >= begin; --page_index) {
    while (page_index < node->begin_pages()) node = node->parent;
    found[static_cast<size_t>(page_index - begin)] = node->window_page(page_index);
  }
  return found;
}

// Ends a match where a state is kept: at the end of a node whose pages all match.
void RadixCache::Tree::limit_to_state(RadixPosition& position) const {
  RadixNode* node = position.node;
  if (node == nullptr) return;
  if (!node->is_root() && position.node_pages < node->num_pages()) node = node->parent;
  while (!node->is_root() && node->state < 0) node = node->parent;
  position = {.node = node, .node_pages = node->num_pages(), .num_pages = node->end_pages};
}

// Ends a match where the next token's window is kept: walks back over the pages that it would see,
// and begins again at each that was dropped.
void RadixCache::Tree::limit_to_window(RadixPosition& position) const {
  const RadixNode* at = position.node;
  if (at == nullptr) return;
  const auto source = static_cast<size_t>(position.source_page);
  if (position.partial_len > 0 && position.source->window_pages[source] == kNoPage)
    position.partial_len = 0;
  int end = position.num_pages;
  int first = first_seen(end * pages.page_tokens() + position.partial_len);
  for (int page = end - 1; page >= first; --page) {
    while (page < at->begin_pages()) at = at->parent;
    if (at->window_page(page) != kNoPage) continue;
    end = page;
    position.partial_len = 0;
    first = first_seen(end * pages.page_tokens());
  }
  RadixNode* node = position.node;
  while (!node->is_root() && node->begin_pages() >= end) node = node->parent;
  position.node = node;
  position.node_pages = end - node->begin_pages();
  position.num_pages = end;
}

void RadixCache::Tree::limit(RadixPosition& position) const {
  if (states.enabled()) limit_to_state(position);
  if (windows.enabled()) limit_to_window(position);
}

// Called when no child begins with the whole `key`: finds the child that shares most tokens with
// it.
void RadixCache::Tree::look_beside(const RadixNode& node, Tokens key,
                                   RadixPosition& position) const {
  auto consider = [&](RadixNode& child) {
    const auto common = static_cast<int>(common_len(child.tokens, key));
    if (common <= position.partial_len) return;
    position.source = &child;
    position.source_page = 0;
    position.partial_len = common;
  };
  const auto after = node.children.lower_bound(key);
  if (after != node.children.end()) consider(**after);
  if (after != node.children.begin()) consider(**std::prev(after));
}

// Returns the child used last among the first few whose tokens begin with `key`, which is at most a
// page; null if there is none.
const RadixNode* RadixCache::Tree::child_that_begins_with(const RadixNode& node, Tokens key) const {
  constexpr int kMaxSiblings = 8;
  const RadixNode* found = nullptr;
  auto at = node.children.lower_bound(key);
  for (int i = 0; i < kMaxSiblings && at != node.children.end(); ++i, ++at) {
    if (common_len((*at)->tokens, key) < key.size()) break;
    if (found == nullptr || (*at)->last_used > found->last_used) found = at->get();
  }
  return found;
}

// The order of eviction follows.
void RadixCache::Tree::set_protected_until(RadixNode& node, uint64_t until) {
  const bool in_order = node.eviction_slot >= 0;
  if (in_order) evictable_leaves.remove(node);
  node.protected_until = until;
  if (in_order) evictable_leaves.add(node);
  states.reorder(node);
}

// Cuts `node` into its first pages and the rest, and returns the front node. `node` itself keeps
// the rest and its children, because leases on it cover its end.
//
//   parent - [ a b c d ] - children     becomes     parent - [ a b ] - [ c d ] - children
//               node                                          front      node
RadixNode* RadixCache::Tree::split(RadixNode& node, int num_front_pages) {
  HOCKET_CHECK(num_front_pages > 0);
  HOCKET_CHECK(num_front_pages < node.num_pages());
  const auto cut_pages = static_cast<ptrdiff_t>(num_front_pages);
  const auto cut_tokens = cut_pages * static_cast<ptrdiff_t>(page_tokens());
  auto front = std::make_unique<RadixNode>(node.parent, pages.page_tokens());
  RadixNode* result = front.get();
  front->tokens.assign(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  front->pages.assign(node.pages.begin(), node.pages.begin() + cut_pages);
  front->end_pages = node.begin_pages() + num_front_pages;
  front->num_leases = node.num_leases;
  front->created = node.created;
  front->last_used = node.last_used;
  front->num_uses = node.num_uses;
  front->priority = node.priority;
  front->protected_until = node.protected_until;
  front->num_states_below = node.num_states_below + (node.state >= 0 ? 1 : 0);
  const auto num_hashes = static_cast<ptrdiff_t>(std::min(node.hashes.size(), front->pages.size()));
  front->hashes.assign(node.hashes.begin(), node.hashes.begin() + num_hashes);
  node.hashes.erase(node.hashes.begin(), node.hashes.begin() + num_hashes);

  auto& siblings = node.parent->children;
  const Tokens first_page = Tokens(node.tokens).first(page_tokens());
  auto handle = siblings.extract(siblings.find(first_page));
  std::swap(handle.value(), front);  // both begin with the same page, so the set stays ordered
  siblings.insert(std::move(handle));
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  node.pages.erase(node.pages.begin(), node.pages.begin() + cut_pages);
  if (windows.enabled()) {
    const auto cut = node.window_pages.begin() + cut_pages;
    result->window_pages.assign(node.window_pages.begin(), cut);
    node.window_pages.erase(node.window_pages.begin(), cut);
    for (const PageId page : result->window_pages)
      if (page != kNoPage) windows.move(page, *result);
  }
  release_unused(node);
  node.parent = result;
  result->children.insert(std::move(front));
  return result;
}

RadixNode& RadixCache::Tree::root(const CacheNamespace& name_space) {
  auto& root = roots[name_space];
  if (!root) {
    root = std::make_unique<RadixNode>(nullptr, pages.page_tokens());
    root->name_space = name_space;
  }
  return *root;
}

RadixNode& RadixCache::Tree::append_leaf(RadixNode& parent, Tokens tokens,
                                         std::span<const PageId> new_pages) {
  auto leaf = std::make_unique<RadixNode>(&parent, pages.page_tokens());
  RadixNode& result = *leaf;
  leaf->tokens.assign(tokens.begin(), tokens.end());
  leaf->pages.assign(new_pages.begin(), new_pages.end());
  if (windows.enabled()) leaf->window_pages.assign(new_pages.size(), kNoPage);
  leaf->end_pages = parent.end_pages + leaf->num_pages();
  leaf->created = tick;
  leaf->num_uses = 1;
  num_cached += leaf->num_pages();
  num_evictable += leaf->num_pages();
  parent.children.insert(std::move(leaf));
  return result;
}

// Replaces the first `num_pages` of `callers` by the pages of `node` at the same places. A caller's
// page that differs is a duplicate and is returned to the allocator.
void RadixCache::Tree::adopt(RadixNode& node, int num_pages, std::span<PageId> callers) {
  for (size_t i = 0; i < static_cast<size_t>(num_pages); ++i) {
    PageId& callers_page = callers[i];
    if (callers_page == node.pages[i]) continue;
    pages.give_back({&callers_page, 1});
    callers_page = node.pages[i];
  }
}

// The same for pages of window layers, of which the caller or the tree may lack some. A page that
// only the caller has is the tree's from then on.
void RadixCache::Tree::adopt_windows(RadixNode& node, int num_pages, std::span<PageId> callers,
                                     WindowPosition position) {
  for (int i = 0; i < num_pages; ++i) {
    PageId& callers_page = callers[static_cast<size_t>(i)];
    const int page_index = node.begin_pages() + i;
    const PageId trees_page = node.window_page(page_index);
    if (callers_page == kNoPage || callers_page == trees_page) continue;
    if (trees_page == kNoPage) {
      windows.insert(node, page_index, callers_page, position);
    } else {
      windows.give_back(callers_page);
      callers_page = trees_page;
    }
  }
}

// Gives back the memory of the pages that a node has lost, so that all nodes together take no more
// than max_tree_bytes() says.
void RadixCache::Tree::release_unused(RadixNode& node) {
  if (node.pages.capacity() == node.pages.size()) return;
  node.tokens.shrink_to_fit();
  node.pages.shrink_to_fit();
  node.window_pages.shrink_to_fit();
  node.hashes.shrink_to_fit();
}

// Marks the path as used, too, because only pinned nodes may change last_used: they are not in the
// heap.
void RadixCache::Tree::pin(RadixNode& node) {
  ++num_leases;
  ++tick;
  for (RadixNode* n = &node; !n->is_root(); n = n->parent) {
    if (n->num_leases++ == 0) {
      num_evictable -= n->num_pages();
      if (n->eviction_slot >= 0) evictable_leaves.remove(*n);
      release_unused(*n);
    }
    n->last_used = tick;
  }
}

void RadixCache::Tree::unpin(RadixNode& node) {
  --num_leases;
  for (RadixNode* n = &node; !n->is_root(); n = n->parent) {
    HOCKET_CHECK(n->num_leases > 0);
    if (--n->num_leases > 0) continue;
    num_evictable += n->num_pages();
    if (n->is_evictable_leaf()) evictable_leaves.add(*n);
  }
}

// Evicts the last `count` pages of an evictable leaf; removes the leaf if those are all.
void RadixCache::Tree::trim_leaf(RadixNode& leaf, int count) {
  events.removed(leaf, count);
  if (leaf.state >= 0) states.drop(leaf);  // it stood for the end of the leaf
  pages.give_back(std::span(leaf.pages).last(static_cast<size_t>(count)));
  if (windows.enabled()) {
    for (int page_index = leaf.end_pages - count; page_index < leaf.end_pages; ++page_index)
      if (const PageId page = leaf.window_page(page_index); page != kNoPage) windows.drop(page);
  }
  num_cached -= count;
  num_evictable -= count;
  num_evicted += static_cast<uint64_t>(count);
  if (count == leaf.num_pages()) return drop_leaf(leaf);
  leaf.pages.resize(leaf.pages.size() - static_cast<size_t>(count));
  if (windows.enabled()) leaf.window_pages.resize(leaf.pages.size());
  leaf.tokens.resize(leaf.pages.size() * page_tokens());
  leaf.hashes.resize(std::min(leaf.hashes.size(), leaf.pages.size()));
  leaf.end_pages -= count;
}

void RadixCache::Tree::drop_leaf(RadixNode& leaf) {
  evictable_leaves.remove(leaf);
  RadixNode& parent = *leaf.parent;
  const Tokens first_page = Tokens(leaf.tokens).first(page_tokens());
  parent.children.erase(parent.children.find(first_page));
  if (parent.is_evictable_leaf()) evictable_leaves.add(parent);
  if (!parent.is_root() || !parent.children.empty()) return;
  const CacheNamespace name_space = parent.name_space;
  roots.erase(name_space);
}

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

}  // namespace hocket
