#include "core/ordered_tree.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace hocket {
namespace {

using Tree = OrderedTreeBuilder::Tree;
using Entries = Tree::object_t::Container;

Entries& entries_of(Tree& object) {
  return object.get_ref<Tree::object_t&>();
}

// Returns pairs of indices with equal keys: the first entry of the key, and a later one. The keys
// are sorted and not hashed, since a client can choose keys that all have one hash.
std::vector<std::pair<size_t, size_t>> doubles_in(const Entries& entries) {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    const auto by_key = entries[a].first <=> entries[b].first;
    return by_key != 0 ? by_key < 0 : a < b;
  });
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t first = 0, i = 1; i < order.size(); ++i) {
    if (entries[order[first]].first == entries[order[i]].first)
      found.emplace_back(order[first], order[i]);
    else
      first = i;
  }
  return found;
}

}  // namespace

bool OrderedTreeBuilder::key(string_t& v) {
  levels_.back().key = std::move(v);
  return true;
}

bool OrderedTreeBuilder::end_object() {
  Entries& entries = entries_of(*levels_.back().value);
  levels_.pop_back();
  if (entries.size() < 2) return true;
  const auto doubles = doubles_in(entries);
  if (doubles.empty()) return true;
  if (!may_repeat(entries[doubles.front().first].first)) return false;
  std::vector<bool> repeats(entries.size());
  for (const auto& [first, later] : doubles) {
    entries[first].second = std::move(entries[later].second);
    repeats[later] = true;
  }
  Entries kept;
  for (size_t i = 0; i < entries.size(); ++i)
    if (!repeats[i]) kept.emplace_back(entries[i].first, std::move(entries[i].second));
  entries = std::move(kept);
  return true;
}

bool OrderedTreeBuilder::end_array() {
  levels_.pop_back();
  return true;
}

Tree* OrderedTreeBuilder::put(Tree&& value) {
  if (levels_.empty()) return tree = std::move(value), &tree;
  Level& level = levels_.back();
  if (level.value->is_array())
    return &level.value->get_ref<Tree::array_t&>().emplace_back(std::move(value));
  return &entries_of(*level.value).emplace_back(std::move(level.key), std::move(value)).second;
}

bool OrderedTreeBuilder::add(Tree value) {
  put(std::move(value));
  return true;
}

bool OrderedTreeBuilder::open(Tree value) {
  if (!may_open(levels_.size())) return false;
  Tree* const placed = put(std::move(value));
  levels_.push_back({placed, {}});
  return true;
}

Tree parse_ordered(std::string_view text) {
  OrderedTreeBuilder builder;
  if (Tree::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.tree);
  return Tree(Tree::value_t::discarded);
}

void append_field(Tree& object, std::string key, Tree value) {
  entries_of(object).emplace_back(std::move(key), std::move(value));
}

}  // namespace hocket
