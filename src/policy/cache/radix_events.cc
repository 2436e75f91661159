#include "policy/cache/radix_events.h"

namespace hocket {

void RadixEvents::stored(RadixNode& node) {
  if (channel_ == nullptr) return;
  path_.clear();
  for (RadixNode* n = &node; !n->is_root() && n->hashes.size() < n->pages.size(); n = n->parent)
    path_.push_back(n);
  if (path_.empty()) return;
  if (!channel_->is_publishing()) {
    for (const RadixNode* n : path_)
      channel_->note_lost(n->num_pages() - static_cast<int>(n->hashes.size()));
    return;
  }
  for (; !path_.empty(); path_.pop_back()) {
    RadixNode& next = *path_.back();
    const RadixNode& parent = *next.parent;
    PageHash before = !next.hashes.empty() ? next.hashes.back()
                      : parent.is_root()   ? root_hash(parent.name_space)
                                           : parent.hashes.back();
    next.hashes.reserve(next.pages.size());
    while (next.hashes.size() < next.pages.size()) {
      const size_t begin = next.hashes.size() * page_tokens_;
      const PageHash hash =
          hash_page_(before, std::span<const TokenId>(next.tokens).subspan(begin, page_tokens_));
      channel_->push({.kind = KvEvent::Kind::stored, .hash = hash, .parent = before});
      next.hashes.push_back(hash);
      before = hash;
    }
  }
}

void RadixEvents::removed(const RadixNode& leaf, int num_pages) {
  if (channel_ == nullptr) return;
  const auto kept = leaf.pages.size() - static_cast<size_t>(num_pages);
  for (size_t i = leaf.hashes.size(); i > kept; --i) {
    if (channel_->is_publishing())
      channel_->push({.kind = KvEvent::Kind::removed, .hash = leaf.hashes[i - 1]});
    else
      channel_->note_lost(1);
  }
}

void RadixEvents::cleared(const RadixRoots& roots) {
  channel_->begin_anew();
  path_.clear();
  for (const auto& [name_space, top] : roots) path_.push_back(top.get());
  while (!path_.empty()) {
    RadixNode& node = *path_.back();
    path_.pop_back();
    node.hashes.clear();
    for (const auto& child : node.children) path_.push_back(child.get());
  }
}

void RadixEvents::catch_up(const RadixRoots& roots) {
  if (channel_ == nullptr || !channel_->needs_all()) return;
  cleared(roots);
  std::vector<RadixNode*> todo;
  for (const auto& [name_space, top] : roots) todo.push_back(top.get());
  size_t room = channel_->room() / 2;
  while (!todo.empty() && channel_->is_publishing()) {
    RadixNode& node = *todo.back();
    todo.pop_back();
    if (node.pages.size() > room) continue;
    room -= node.pages.size();
    if (!node.is_root()) stored(node);
    for (const auto& child : node.children) todo.push_back(child.get());
  }
}

}  // namespace hocket
