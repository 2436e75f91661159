// An LRU cache of compiled grammars, and of the errors of specs that could not be compiled.
// Thread: one at a time.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "text/grammar/grammar.h"

namespace hocket {

using MadeGrammar = Result<std::shared_ptr<const Grammar>>;

class GrammarCache {
 public:
  // max_bytes limits grammars and their texts; the newest entry stays whatever its size.
  GrammarCache(size_t max_entries, size_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  // Returns null if the spec is not cached. Valid until keep().
  const MadeGrammar* find(const GrammarSpec& spec);
  void keep(const GrammarSpec& spec, MadeGrammar made);
  int num_entries() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    std::string key;
    MadeGrammar made;
    size_t bytes = 0;
  };
  const size_t max_entries_, max_bytes_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  size_t bytes_ = 0;
};

}  // namespace hocket
