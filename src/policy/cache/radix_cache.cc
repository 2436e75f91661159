#include "policy/cache/radix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/cache/radix_tree.h"

namespace hocket {

using Tokens = std::span<const TokenId>;

RadixCache::RadixCache(PageAllocator& pages, Options options)
    : tree_(std::make_unique<Tree>(pages, options)) {
  HOCKET_CHECK((options.states == nullptr || options.windows == nullptr));
  HOCKET_CHECK((options.windows == nullptr || options.window.bounded()));
}

// Flushes the tree bottom up first, so that destroying a deep tree does not recurse.
RadixCache::~RadixCache() {
  HOCKET_CHECK(tree_->num_leases == 0);
  flush();
}

PrefixMatch RadixCache::match(const CacheNamespace& name_space, Tokens tokens) {
  PrefixMatch match;
  RadixPosition position = tree_->walk(name_space, tokens);
  match.longest_len = position.num_pages * tree_->pages.page_tokens() + position.partial_len;
  tree_->limit(position);
  if (position.num_pages == 0 && position.partial_len == 0) return match;

  RadixNode* end = position.partial_len > 0 ? position.source : position.node;
  const int end_pages = position.partial_len > 0 ? position.source_page + 1 : position.node_pages;
  if (position.partial_len > 0) {
    match.partial_source = position.source->pages[static_cast<size_t>(position.source_page)];
    match.partial_len = position.partial_len;
  }
  if (end_pages < end->num_pages()) end = tree_->split(*end, end_pages);
  match.lease = Lease(this, end);
  if (tree_->states.enabled()) {
    tree_->states.use(*end);
    match.state = StateLease(Lease(this, end));
  }
  for (RadixNode* node = end; !node->is_root(); node = node->parent) ++node->num_uses;

  match.pages = tree_->pages_to(end, position.num_pages);
  if (tree_->windows.enabled()) pin_match(match);
  return match;
}

// Adds the pages of window layers that the token behind the match sees. Precondition: the match is
// leased.
void RadixCache::pin_match(PrefixMatch& match) {
  const int num_pages = static_cast<int>(match.pages.size());
  const int begin = tree_->first_seen(match.len(tree_->pages.page_tokens()));
  match.window_pages.assign(match.pages.size(), kNoPage);
  const int end = num_pages + (match.partial_len > 0 ? 1 : 0);
  std::vector<PageId> seen = tree_->window_pages_in(match.lease.node_, begin, end);
  match.window = WindowLease(this, begin, seen, WindowPosition::in_window);
  if (match.partial_len > 0) {
    match.window_partial_source = seen.back();
    seen.pop_back();
  }
  std::ranges::copy(seen, match.window_pages.begin() + begin);
}

int RadixCache::match_len(const CacheNamespace& name_space, Tokens tokens) const {
  RadixPosition position = tree_->walk(name_space, tokens);
  tree_->limit(position);
  return position.num_pages * tree_->pages.page_tokens() + position.partial_len;
}

size_t RadixCache::continuation(const CacheNamespace& name_space, const Lease& path, Tokens rest,
                                std::span<TokenId> out) const {
  if (rest.size() > kMaxWalked) return 0;
  const RadixNode* node = path.node_;
  if (const auto root = tree_->roots.find(name_space);
      node == nullptr && root != tree_->roots.end())
    node = root->second.get();
  size_t num_found = 0;
  while (node != nullptr && num_found < out.size()) {
    const Tokens key = rest.first(std::min(rest.size(), tree_->page_tokens()));
    node = tree_->child_that_begins_with(*node, key);
    if (node == nullptr) break;
    const Tokens tokens = node->tokens;
    const size_t common = common_len(tokens, rest);
    if (common < std::min(tokens.size(), rest.size())) break;  // it differs behind its first page
    rest = rest.subspan(common);
    const Tokens behind = tokens.subspan(common);
    const size_t count = std::min(behind.size(), out.size() - num_found);
    std::ranges::copy(behind.first(count), out.begin() + static_cast<ptrdiff_t>(num_found));
    num_found += count;
  }
  return num_found;
}

Lease RadixCache::insert(const CacheNamespace& name_space, Tokens tokens, std::span<PageId> pages,
                         int priority, std::span<PageId> window_pages) {
  HOCKET_CHECK(tokens.size() == pages.size() * tree_->page_tokens());
  HOCKET_CHECK(window_pages.size() == (tree_->windows.enabled() ? pages.size() : 0));
  if (!tree_->options.enabled || pages.empty()) return {};
  RadixNode* node = &tree_->root(name_space);
  ++tree_->tick;
  while (!pages.empty()) {
    const auto child = node->children.find(tokens.first(tree_->page_tokens()));
    if (child == node->children.end()) {
      node = &tree_->append_leaf(*node, tokens, pages);
      if (tree_->windows.enabled())
        tree_->adopt_windows(*node, node->num_pages(), window_pages, WindowPosition::passed);
      break;
    }
    node = child->get();
    const auto shared = static_cast<int>(common_len(node->tokens, tokens) / tree_->page_tokens());
    tree_->adopt(*node, shared, pages);
    if (shared < node->num_pages()) node = tree_->split(*node, shared);
    tokens = tokens.subspan(static_cast<size_t>(shared) * tree_->page_tokens());
    pages = pages.subspan(static_cast<size_t>(shared));
    if (tree_->windows.enabled()) {
      tree_->adopt_windows(*node, shared, window_pages, WindowPosition::in_window);
      window_pages = window_pages.subspan(static_cast<size_t>(shared));
    }
  }
  Lease lease(this, node);
  for (RadixNode* n = node; !n->is_root(); n = n->parent)
    n->priority = std::max(n->priority, priority);
  tree_->events.stored(*node);
  return lease;
}

int RadixCache::num_pages_in_tree(const CacheNamespace& name_space, Tokens tokens) const {
  return tree_->walk(name_space, tokens).num_pages;
}

std::vector<PageId> RadixCache::pages_in_tree(const CacheNamespace& name_space,
                                              Tokens tokens) const {
  const RadixPosition position = tree_->walk(name_space, tokens);
  return tree_->pages_to(position.node, position.num_pages);
}

int RadixCache::state_in_tree(const CacheNamespace& name_space, Tokens tokens) const {
  const RadixPosition position = tree_->walk(name_space, tokens);
  const bool ends_a_node =
      position.num_pages > 0 && position.node_pages == position.node->num_pages() &&
      tokens.size() == static_cast<size_t>(position.num_pages) * tree_->page_tokens();
  return ends_a_node ? position.node->state : -1;
}

std::vector<PageId> RadixCache::window_in_tree(const CacheNamespace& name_space,
                                               Tokens tokens) const {
  const RadixPosition position = tree_->walk(name_space, tokens);
  if (tokens.size() != static_cast<size_t>(position.num_pages) * tree_->page_tokens()) return {};
  const int begin = tree_->first_seen(static_cast<int>(tokens.size()));
  return Tree::window_pages_in(position.node, begin, position.num_pages);
}

int RadixCache::first_dropped_window(const CacheNamespace& name_space, Tokens tokens,
                                     int begin) const {
  const RadixPosition position = tree_->walk(name_space, tokens);
  if (begin >= position.num_pages) return position.num_pages;
  const std::vector<PageId> pages = Tree::window_pages_in(position.node, begin, position.num_pages);
  return begin + static_cast<int>(std::ranges::find(pages, kNoPage) - pages.begin());
}

Lease RadixCache::pin(const CacheNamespace& name_space, Tokens tokens) {
  if (tokens.empty()) return {};
  const RadixPosition position = tree_->walk(name_space, tokens);
  HOCKET_CHECK(tokens.size() == static_cast<size_t>(position.num_pages) * tree_->page_tokens());
  const bool ends_inside = position.node_pages < position.node->num_pages();
  return {this, ends_inside ? tree_->split(*position.node, position.node_pages) : position.node};
}

void RadixCache::append_restored(const CacheNamespace& name_space, Tokens tokens,
                                 std::span<const PageId> pages) {
  HOCKET_CHECK(tree_->options.enabled);
  const Tokens added = tokens.last(pages.size() * tree_->page_tokens());
  const Lease path = pin(name_space, tokens.first(tokens.size() - added.size()));
  RadixNode& parent = path ? *path.node_ : tree_->root(name_space);
  ++tree_->tick;
  RadixNode& leaf = tree_->append_leaf(parent, added, pages);
  const Lease registers(this, &leaf);  // its end makes the leaf evictable
  tree_->events.stored(leaf);
}

void RadixCache::fill_window(const Lease& path, std::span<const PageId> pages) {
  HOCKET_CHECK((tree_->windows.enabled() && path));
  RadixNode* node = path.node_;
  int page_index = node->end_pages;
  for (size_t i = pages.size(); i > 0; --i) {
    --page_index;
    while (page_index < node->begin_pages()) node = node->parent;
    if (pages[i - 1] != kNoPage)
      tree_->windows.insert(*node, page_index, pages[i - 1], WindowPosition::in_window);
  }
}

void RadixCache::protect(const CacheNamespace& name_space, Tokens tokens, uint64_t until) {
  const RadixPosition position = tree_->walk(name_space, tokens);
  if (position.num_pages == 0) return;
  RadixNode* end = position.node;
  if (position.node_pages < end->num_pages()) end = tree_->split(*end, position.node_pages);
  for (RadixNode* node = end; !node->is_root(); node = node->parent)
    if (node->protected_until < until) tree_->set_protected_until(*node, until);
}

void RadixCache::unprotect(const CacheNamespace& name_space, Tokens tokens, uint64_t until) {
  const RadixPosition position = tree_->walk(name_space, tokens);
  if (position.num_pages == 0) return;
  const bool ends_inside = position.node_pages < position.node->num_pages();
  for (RadixNode* node = ends_inside ? position.node->parent : position.node; !node->is_root();
       node = node->parent)
    if (node->protected_until <= until) tree_->set_protected_until(*node, 0);
}

StateLease RadixCache::cache_state(const Lease& path, int len, int slot) {
  const int num_pages = len / tree_->pages.page_tokens();
  HOCKET_CHECK(static_cast<bool>(path));
  HOCKET_CHECK(len == num_pages * tree_->pages.page_tokens());
  RadixNode* node = path.node_;
  HOCKET_CHECK(num_pages > 0 && num_pages <= node->end_pages);
  while (node->begin_pages() >= num_pages) node = node->parent;
  if (node->end_pages > num_pages) node = tree_->split(*node, num_pages - node->begin_pages());
  if (node->state >= 0) {
    tree_->options.states->give_back(slot);
    tree_->states.use(*node);
  } else {
    tree_->states.insert(*node, slot);
  }
  return StateLease(Lease(this, node));
}

bool RadixCache::evict_state() {
  return tree_->states.evict_one();
}

WindowLease RadixCache::pin_window(int begin, std::span<const PageId> pages) {
  return {this, begin, pages, WindowPosition::passed};
}

void RadixCache::evict_window(int num_pages) {
  while (num_pages > 0 && tree_->windows.evict_one()) --num_pages;
}

// Trims the last pages of a leaf where that is enough, so that no more is evicted than asked for.
int RadixCache::evict(int num_pages) {
  Tree& tree = *tree_;
  int num_freed = 0;
  while (num_freed < num_pages && !tree.evictable_leaves.empty()) {
    RadixNode& leaf = tree.evictable_leaves.first();
    const int count = std::min(leaf.num_pages(), num_pages - num_freed);
    tree.trim_leaf(leaf, count);
    num_freed += count;
  }
  return num_freed;
}

int RadixCache::flush() {
  Tree& tree = *tree_;
  const bool all = tree.num_evictable == tree.num_cached;
  if (all && tree.events.is_publishing()) tree.events.cleared(tree.roots);
  return evict(tree_->num_evictable);
}

void RadixCache::emit_to_listeners() {
  tree_->events.catch_up(tree_->roots);
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

int RadixCache::num_states() const {
  return tree_->states.num_cached();
}
int RadixCache::num_evictable_states() const {
  return tree_->states.num_evictable();
}
uint64_t RadixCache::num_evicted_states_total() const {
  return tree_->states.num_evicted_total();
}

int RadixCache::num_window_pages() const {
  return tree_->windows.num_cached();
}
int RadixCache::num_evictable_window_pages() const {
  return tree_->windows.num_evictable();
}
uint64_t RadixCache::num_evicted_window_pages_total() const {
  return tree_->windows.num_evicted_total();
}

void RadixCache::check_integrity() const {
  tree_->check_integrity();
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

StateLease::StateLease(Lease path) : path_(std::move(path)) {
  path_.cache_->tree_->states.pin(*path_.node_);
}

StateLease::StateLease(StateLease&& other) noexcept = default;

StateLease& StateLease::operator=(StateLease&& other) noexcept {
  std::swap(path_, other.path_);
  StateLease released = std::move(other);
  return *this;
}

StateLease::~StateLease() {
  if (path_) path_.cache_->tree_->states.unpin(*path_.node_);
}

int StateLease::slot() const {
  return path_ ? path_.node_->state : -1;
}

WindowLease::WindowLease(RadixCache* cache, int begin, std::span<const PageId> pages,
                         WindowPosition position)
    : cache_(cache), begin_(begin), pages_(pages.begin(), pages.end()) {
  for (const PageId page : pages_) cache_->tree_->windows.pin(page, position);
}

WindowLease::~WindowLease() {
  for (const PageId page : pages_) cache_->tree_->windows.unpin(page, WindowPosition::in_window);
}

WindowLease::WindowLease(WindowLease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      begin_(std::exchange(other.begin_, 0)),
      pages_(std::exchange(other.pages_, {})) {}

WindowLease& WindowLease::operator=(WindowLease&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(begin_, other.begin_);
  std::swap(pages_, other.pages_);
  WindowLease released = std::move(other);
  return *this;
}

void WindowLease::release_before(int page_index) {
  const int count = std::clamp(page_index - begin_, 0, static_cast<int>(pages_.size()));
  for (const PageId page : std::span(pages_).first(static_cast<size_t>(count)))
    cache_->tree_->windows.unpin(page, WindowPosition::passed);
  pages_.erase(pages_.begin(), pages_.begin() + count);
  begin_ += count;
}

int WindowLease::num_sole_pages() const {
  return static_cast<int>(std::ranges::count_if(
      pages_, [&](PageId page) { return cache_->tree_->windows.num_leases(page) == 1; }));
}

int Lease::len() const {
  return node_ == nullptr ? 0 : node_->end_pages * cache_->tree_->pages.page_tokens();
}

}  // namespace hocket
