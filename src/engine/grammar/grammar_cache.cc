#include "engine/grammar/grammar_cache.h"

#include <fmt/core.h>

#include <utility>

namespace hocket {
namespace {

std::string key_of(const GrammarSpec& spec) {
  return fmt::format("{}:{}", static_cast<int>(spec.kind), spec.text);
}

}  // namespace

const MadeGrammar* GrammarCache::find(const GrammarSpec& spec) {
  const auto found = by_key_.find(key_of(spec));
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front().made;
}

void GrammarCache::keep(const GrammarSpec& spec, MadeGrammar made) {
  std::string key = key_of(spec);
  if (by_key_.contains(key)) return;  // both lanes may have compiled it
  const size_t bytes = key.size() + (made ? (*made)->num_bytes() : 0);
  entries_.push_front({.key = std::move(key), .made = std::move(made), .bytes = bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  while (entries_.size() > 1 && (entries_.size() > max_entries_ || bytes_ > max_bytes_)) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace hocket
