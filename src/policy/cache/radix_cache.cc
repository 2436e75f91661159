#include "policy/cache/radix_cache.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "policy/cache/eviction.h"
#include "policy/cache/radix_node.h"

namespace hocket {
namespace {

using Tokens = std::span<const TokenId>;

size_t common_prefix(Tokens a, Tokens b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(limit), b.begin()).first -
      a.begin());
}

// Where a walk from the root ended.
//   node     the last one that matched at least one whole page (or the root), `node_pages` of it
//   source   the one whose page `source_page` shares `partial_len` < page_tokens more tokens; may
//   be `node` itself
struct Place {
  RadixNode* node = nullptr;
  int node_pages = 0;
  int num_pages = 0;  // matched from the root
  RadixNode* source = nullptr;
  int source_page = 0;
  int partial_len = 0;
};

}  // namespace

struct RadixCache::Tree {
  Tree(PageAllocator& allocator, Options tree_options)
      : pages(allocator), options(tree_options), evictable_leaves(allocator.num_pages()) {}

  Place walk(uint64_t name_space, Tokens tokens) const;
  void look_beside(const RadixNode& node, Tokens rest, Place& place) const;
  RadixNode* split(RadixNode& node, int num_front_pages);
  RadixNode& root(uint64_t name_space);
  RadixNode& append_leaf(RadixNode& parent, Tokens tokens, std::span<const PageId> new_pages);
  void adopt(RadixNode& node, int num_pages, std::span<PageId> callers);
  void pin(RadixNode& node);
  void unpin(RadixNode& node);
  void drop_leaf(RadixNode& leaf);

  size_t page_tokens() const { return static_cast<size_t>(pages.page_tokens()); }

  PageAllocator& pages;
  Options options;
  std::unordered_map<uint64_t, std::unique_ptr<RadixNode>> roots;
  EvictionOrder evictable_leaves;
  uint64_t tick = 0;
  uint64_t num_evicted = 0;
  int num_cached = 0, num_evictable = 0;
  int num_leases = 0;
};

// The longest match. Children are ordered by their first page, so one step costs O(log siblings).
Place RadixCache::Tree::walk(uint64_t name_space, Tokens tokens) const {
  Place place;
  const auto found = roots.find(name_space);
  if (found == roots.end()) return place;
  place.node = found->second.get();
  for (Tokens rest = tokens; !rest.empty();) {
    const auto& children = place.node->children;
    const Tokens key = rest.first(std::min(rest.size(), page_tokens()));
    const auto child = key.size() == page_tokens() ? children.find(key) : children.end();
    if (child == children.end()) {
      look_beside(*place.node, key, place);
      break;
    }
    RadixNode& node = **child;
    const size_t common = common_prefix(node.tokens, rest);
    place.node = &node;
    place.node_pages = static_cast<int>(common / page_tokens());
    place.num_pages += place.node_pages;
    if (place.node_pages < node.num_pages()) {
      place.source = &node;
      place.source_page = place.node_pages;
      place.partial_len = static_cast<int>(common % page_tokens());
      break;
    }
    rest = rest.subspan(common);
  }
  return place;
}

// No child begins with `key`: finds the one that shares most of it.
void RadixCache::Tree::look_beside(const RadixNode& node, Tokens key, Place& place) const {
  auto consider = [&](RadixNode& child) {
    const auto common = static_cast<int>(common_prefix(child.tokens, key));
    if (common <= place.partial_len) return;
    place.source = &child;
    place.source_page = 0;
    place.partial_len = common;
  };
  const auto after = node.children.lower_bound(key);
  if (after != node.children.end()) consider(**after);
  if (after != node.children.begin()) consider(**std::prev(after));
}

// Cuts `node` after its first pages and returns the new front; `node` keeps the rest, its children
// and its identity, since leases on it cover its end.
RadixNode* RadixCache::Tree::split(RadixNode& node, int num_front_pages) {
  HOCKET_CHECK(num_front_pages > 0);
  HOCKET_CHECK(num_front_pages < node.num_pages());
  const auto cut_pages = static_cast<ptrdiff_t>(num_front_pages);
  const auto cut_tokens = cut_pages * static_cast<ptrdiff_t>(page_tokens());
  auto front = std::make_unique<RadixNode>(node.parent, pages.page_tokens());
  RadixNode* result = front.get();
  front->tokens.assign(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  front->pages.assign(node.pages.begin(), node.pages.begin() + cut_pages);
  front->end_pages = node.end_pages - node.num_pages() + num_front_pages;
  front->num_leases = node.num_leases;
  front->last_used = node.last_used;

  auto& siblings = node.parent->children;
  const Tokens first_page = Tokens(node.tokens).first(page_tokens());
  auto handle = siblings.extract(siblings.find(first_page));
  std::swap(handle.value(), front);  // both begin with the same page, so the place stays right
  siblings.insert(std::move(handle));
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  node.pages.erase(node.pages.begin(), node.pages.begin() + cut_pages);
  node.parent = result;
  result->children.insert(std::move(front));
  return result;
}

RadixNode& RadixCache::Tree::root(uint64_t name_space) {
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
  leaf->end_pages = parent.end_pages + leaf->num_pages();
  num_cached += leaf->num_pages();
  num_evictable += leaf->num_pages();
  parent.children.insert(std::move(leaf));
  return result;
}

// Replaces the caller's pages by the node's own and gives back what was a duplicate.
//   callers   | ... | the pages of `node`, `num_pages` of them |
void RadixCache::Tree::adopt(RadixNode& node, int num_pages, std::span<PageId> callers) {
  for (size_t i = 0; i < static_cast<size_t>(num_pages); ++i) {
    PageId& callers_page = callers[i];
    if (callers_page == node.pages[i]) continue;
    pages.give_back({&callers_page, 1});
    callers_page = node.pages[i];
  }
}

// Marks the path as used now, too: only pinned nodes may change their place in time.
void RadixCache::Tree::pin(RadixNode& node) {
  ++num_leases;
  ++tick;
  for (RadixNode* n = &node; !n->is_root(); n = n->parent) {
    if (n->num_leases++ == 0) {
      num_evictable -= n->num_pages();
      if (n->eviction_slot >= 0) evictable_leaves.remove(*n);
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

void RadixCache::Tree::drop_leaf(RadixNode& leaf) {
  evictable_leaves.remove(leaf);
  RadixNode& parent = *leaf.parent;
  const Tokens first_page = Tokens(leaf.tokens).first(page_tokens());
  parent.children.erase(parent.children.find(first_page));
  if (parent.is_evictable_leaf()) evictable_leaves.add(parent);
  if (parent.is_root() && parent.children.empty()) roots.erase(parent.name_space);
}

RadixCache::RadixCache(PageAllocator& pages, Options options)
    : tree_(std::make_unique<Tree>(pages, options)) {}

// Bottom up, so that a deep tree does not recurse.
RadixCache::~RadixCache() {
  HOCKET_CHECK(tree_->num_leases == 0);
  flush();
}

PrefixMatch RadixCache::match(uint64_t name_space, Tokens tokens) {
  PrefixMatch match;
  const Place place = tree_->walk(name_space, tokens);
  if (place.num_pages == 0 && place.partial_len == 0) return match;

  RadixNode* end = place.partial_len > 0 ? place.source : place.node;
  const int end_pages = place.partial_len > 0 ? place.source_page + 1 : place.node_pages;
  if (place.partial_len > 0) {
    match.partial_source = place.source->pages[static_cast<size_t>(place.source_page)];
    match.partial_len = place.partial_len;
  }
  if (end_pages < end->num_pages()) end = tree_->split(*end, end_pages);
  match.lease = Lease(this, end);

  match.pages.resize(static_cast<size_t>(place.num_pages));
  for (const RadixNode* node = end; !node->is_root(); node = node->parent) {
    const int begin = node->end_pages - node->num_pages();
    const int count = std::min(node->end_pages, place.num_pages) - begin;
    if (count > 0) std::copy_n(node->pages.begin(), count, match.pages.begin() + begin);
  }
  return match;
}

int RadixCache::match_len(uint64_t name_space, Tokens tokens) const {
  const Place place = tree_->walk(name_space, tokens);
  return place.num_pages * tree_->pages.page_tokens() + place.partial_len;
}

Lease RadixCache::insert(uint64_t name_space, Tokens tokens, std::span<PageId> pages) {
  HOCKET_CHECK(tokens.size() == pages.size() * tree_->page_tokens());
  if (!tree_->options.enabled || pages.empty()) return {};
  RadixNode* node = &tree_->root(name_space);
  while (!pages.empty()) {
    const auto child = node->children.find(tokens.first(tree_->page_tokens()));
    if (child == node->children.end()) {
      node = &tree_->append_leaf(*node, tokens, pages);
      break;
    }
    node = child->get();
    const auto shared =
        static_cast<int>(common_prefix(node->tokens, tokens) / tree_->page_tokens());
    tree_->adopt(*node, shared, pages);
    if (shared < node->num_pages()) node = tree_->split(*node, shared);
    tokens = tokens.subspan(static_cast<size_t>(shared) * tree_->page_tokens());
    pages = pages.subspan(static_cast<size_t>(shared));
  }
  return Lease(this, node);
}

// Trims the last pages of a leaf when that is enough, so that no more is forgotten than asked for.
int RadixCache::evict(int num_pages) {
  Tree& tree = *tree_;
  int num_freed = 0;
  while (num_freed < num_pages && !tree.evictable_leaves.empty()) {
    RadixNode& leaf = tree.evictable_leaves.first();
    const int count = std::min(leaf.num_pages(), num_pages - num_freed);
    tree.pages.give_back(std::span(leaf.pages).last(static_cast<size_t>(count)));
    num_freed += count;
    if (count == leaf.num_pages()) {
      tree.drop_leaf(leaf);
      continue;
    }
    leaf.pages.resize(leaf.pages.size() - static_cast<size_t>(count));
    leaf.tokens.resize(leaf.pages.size() * tree.page_tokens());
    leaf.end_pages -= count;
  }
  tree.num_cached -= num_freed;
  tree.num_evictable -= num_freed;
  tree.num_evicted += static_cast<uint64_t>(num_freed);
  return num_freed;
}

int RadixCache::flush() {
  return evict(tree_->num_evictable);
}

int RadixCache::num_cached_pages() const {
  return tree_->num_cached;
}
int RadixCache::num_evictable_pages() const {
  return tree_->num_evictable;
}
uint64_t RadixCache::num_evicted_total() const {
  return tree_->num_evicted;
}

void RadixCache::check_integrity() const {
  const Tree& tree = *tree_;
  std::vector<bool> seen(static_cast<size_t>(tree.pages.num_pages()));
  std::vector<const RadixNode*> todo;
  int num_cached = 0, num_evictable = 0, num_leases = 0;
  size_t num_leaves = 0;
  for (const auto& [name_space, root] : tree.roots) {
    HOCKET_CHECK(!root->children.empty());
    HOCKET_CHECK(root->name_space == name_space);
    todo.push_back(root.get());
  }
  while (!todo.empty()) {
    const RadixNode& node = *todo.back();
    todo.pop_back();
    int leases_below = 0;
    for (const auto& child : node.children) {
      HOCKET_CHECK(child->parent == &node);
      HOCKET_CHECK(child->num_pages() > 0);
      HOCKET_CHECK(child->end_pages == node.end_pages + child->num_pages());
      leases_below += child->num_leases;
      todo.push_back(child.get());
    }
    if (node.is_root()) continue;
    HOCKET_CHECK(node.tokens.size() == node.pages.size() * tree.page_tokens());
    HOCKET_CHECK(node.num_leases >= leases_below);
    HOCKET_CHECK(node.is_evictable_leaf() == (node.eviction_slot >= 0));
    num_leases += node.num_leases - leases_below;
    num_cached += node.num_pages();
    if (node.num_leases == 0) num_evictable += node.num_pages();
    if (node.is_evictable_leaf()) ++num_leaves;
    for (PageId page : node.pages) {
      HOCKET_CHECK(!seen[static_cast<size_t>(value(page))]);
      seen[static_cast<size_t>(value(page))] = true;
    }
  }
  HOCKET_CHECK(num_cached == tree.num_cached);
  HOCKET_CHECK(num_evictable == tree.num_evictable);
  HOCKET_CHECK(num_leases == tree.num_leases);
  HOCKET_CHECK(num_leaves == tree.evictable_leaves.size());
  HOCKET_CHECK(num_cached + tree.pages.num_free() <= tree.pages.num_pages());
}

Lease::Lease(RadixCache* cache, RadixNode* node) : cache_(cache), node_(node) {
  cache_->tree_->pin(*node_);
}

Lease::Lease(Lease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), node_(std::exchange(other.node_, nullptr)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(node_, other.node_);
  Lease released = std::move(other);
  return *this;
}

Lease::~Lease() {
  if (node_ != nullptr) cache_->tree_->unpin(*node_);
}

int Lease::len() const {
  return node_ == nullptr ? 0 : node_->end_pages * cache_->tree_->pages.page_tokens();
}

}  // namespace hocket
