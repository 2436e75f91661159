// The slower tiers of the prefix cache in the simulation: files of this rank, and the pages of
// another rank. They hold prefixes by all their tokens, get what the tree takes, lose some of it,
// and give it back page by page while other requests run. For tests.   Thread: any one.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "policy/scheduler/fake_engine_testing.h"

namespace hocket {

class SimulatedTiers {
 public:
  using Counts = std::map<std::string_view, uint64_t>;

  // `random` is a generator of its own, so that the traffic does not change.
  SimulatedTiers(std::mt19937_64& random, const SchedulerOptions& options, Counts& counts)
      : random_(random),
        page_tokens_(static_cast<size_t>(options.page_tokens)),
        // Behind these borders a model without states or windows can continue, too.
        record_tokens_(
            std::lcm(page_tokens_, static_cast<size_t>(std::max(1, options.state_tokens)))),
        has_states_(options.num_states > 0),
        has_windows_(options.window.bounded()),
        counts_(counts) {}

  // The pages that the tree has taken are written behind; some find no buffer.
  void write(const Request& request, const Scheduler& scheduler) {
    const auto tokens =
        beginning(request, static_cast<size_t>(request.leased_pages) * page_tokens_);
    write_pages(kFiles, request.cache_namespace, tokens);
    if (!has_windows_ || tokens.empty()) return;
    const auto window = scheduler.window_in_tree(request.cache_namespace, tokens);
    if (!window.empty() && std::ranges::find(window, kNoPage) == window.end())
      keep(tiers_[kFiles].records, {request.cache_namespace, tokens});
  }
  void write_state(const Request& request, int len) {
    if (draw(8)) return;
    keep(tiers_[kFiles].records,
         {request.cache_namespace, beginning(request, static_cast<size_t>(len))});
  }
  // Another rank has computed a part of these tokens.
  void compute_elsewhere(const CacheNamespace& name_space, std::span<const TokenId> tokens) {
    const size_t most = tokens.size() + 1;
    const size_t len = std::max(random_() % most, random_() % most) / page_tokens_ * page_tokens_;
    write_pages(kOtherRank, name_space, tokens.first(len));
    const size_t step = has_states_ ? record_tokens_ : page_tokens_;
    for (size_t end = step; end <= len; end += step)
      if (draw(2)) keep(tiers_[kOtherRank].records, {name_space, copy(tokens.first(end))});
  }

  // Returns true if the request need not wait for pages. The first call orders them.
  bool ready(const Request& request, const Scheduler& scheduler) {
    if (asked_.insert(request.id).second) return !order(request, scheduler);
    if (!readings_.contains(request.id)) return true;
    if (!draw(16)) return false;
    ++counts_["tier_given_up"];
    readings_.erase(request.id);
    return true;
  }
  void end(const Request& request) {
    asked_.erase(request.id);
    readings_.erase(request.id);
    ended_.emplace_back(request.cache_namespace, request.tokens);
    ended_.back().second.pop_back();  // it was never computed
    if (ended_.size() > 8) ended_.pop_front();
  }

  // Gives some of the pages that were ordered to the tree, and now and then a prefix that no
  // request ordered, whether the tree has it or not.
  void deliver(FakeEngine& engine) {
    for (auto at = readings_.begin(); at != readings_.end();) {
      const bool done = draw(2) && !read_on(at->second, engine);
      at = done ? readings_.erase(at) : std::next(at);
    }
    if (ended_.empty() || !draw(4)) return;
    const auto& [name_space, tokens] = ended_[random_() % ended_.size()];
    const size_t step = has_states_ ? record_tokens_ : page_tokens_;
    const auto whole = std::span(tokens).first(tokens.size() / step * step);
    if (engine.restore_pages(name_space, whole, static_cast<int>(whole.size() / page_tokens_)))
      restore_record(name_space, whole, engine);
  }

 private:
  enum Tier : uint8_t { kFiles, kOtherRank, kNumTiers };
  using Tokens = std::vector<TokenId>;
  // A namespace and all tokens of a beginning: what a key of a store is a hash of.
  struct Key {
    CacheNamespace name_space;
    Tokens tokens;
    friend bool operator<(const Key& a, const Key& b) {
      return std::tie(a.name_space.high, a.name_space.low, a.tokens) <
             std::tie(b.name_space.high, b.name_space.low, b.tokens);
    }
  };
  using Keys = std::set<Key>;
  struct StoredKeys {
    Keys pages, records;
  };
  struct Reading {
    CacheNamespace name_space;
    Tokens tokens;   // up to the last page that is wanted
    size_t end = 0;  // tokens that the tree has, or got
  };
  static constexpr size_t kMaxKeys = 150;  // pages, or records, of a tier

  bool draw(uint64_t one_of) { return random_() % one_of == 0; }
  bool has_records() const { return has_states_ || has_windows_; }
  static Tokens copy(std::span<const TokenId> tokens) { return {tokens.begin(), tokens.end()}; }
  static Tokens beginning(const Request& request, size_t len) {
    return copy(std::span(request.tokens).first(len));
  }

  void keep(Keys& keys, Key key) {
    keys.insert(std::move(key));
    if (keys.size() <= kMaxKeys) return;
    keys.erase(std::next(keys.begin(), static_cast<ptrdiff_t>(random_() % keys.size())));
    ++counts_["tier_evicted"];
  }
  void write_pages(Tier tier, const CacheNamespace& name_space, std::span<const TokenId> tokens) {
    for (size_t end = page_tokens_; end <= tokens.size(); end += page_tokens_)
      if (!draw(16)) keep(tiers_[tier].pages, {name_space, copy(tokens.first(end))});
  }
  template <class Kind>
  bool is_held(Kind kind, const CacheNamespace& name_space, std::span<const TokenId> tokens) const {
    const Key key{name_space, copy(tokens)};
    return std::ranges::any_of(tiers_,
                               [&](const StoredKeys& tier) { return (tier.*kind).contains(key); });
  }

  // Returns true if something is read for the request: up to the last page behind which it can
  // continue.
  bool order(const Request& request, const Scheduler& scheduler) {
    const auto reusable = request.reusable_tokens();
    const auto whole = reusable.first(reusable.size() / page_tokens_ * page_tokens_);
    const auto& name_space = request.cache_namespace;
    const auto begin = static_cast<size_t>(scheduler.in_tree_len(name_space, whole));
    size_t end = begin;
    while (end < whole.size() &&
           is_held(&StoredKeys::pages, name_space, whole.first(end + page_tokens_)))
      end += page_tokens_;
    const auto cached = static_cast<size_t>(scheduler.cached_len(name_space, whole));
    while (has_records() && end > cached &&
           !is_held(&StoredKeys::records, name_space, whole.first(end)))
      end -= page_tokens_;
    if (end <= (has_records() ? cached : begin)) return false;
    readings_[request.id] = {name_space, copy(whole.first(end)), std::min(begin, end)};
    ++counts_["tier_held"];
    return true;
  }

  // Reads some pages more, at the end the record behind them. Returns false if there is no more to
  // read, or it was lost meanwhile.
  bool read_on(Reading& reading, FakeEngine& engine) {
    const size_t num_left = (reading.tokens.size() - reading.end) / page_tokens_;
    const size_t num_pages = std::min<size_t>(num_left, 1 + random_() % 3);
    const auto tokens = std::span(reading.tokens);
    for (size_t i = 0; i < num_pages; ++i) {
      const auto page = tokens.first(reading.end + (i + 1) * page_tokens_);
      if (draw(24)) {
        ++counts_["tier_damaged"];
        for (StoredKeys& tier : tiers_) tier.pages.erase({reading.name_space, copy(page)});
      }
      if (!is_held(&StoredKeys::pages, reading.name_space, page)) return false;
    }
    const auto next = tokens.first(reading.end + num_pages * page_tokens_);
    if (!engine.restore_pages(reading.name_space, next, static_cast<int>(num_pages))) {
      ++counts_["tier_no_room"];
      return false;
    }
    counts_["tier_pages"] += num_pages;
    reading.end = next.size();
    if (reading.end < tokens.size()) return true;
    if (is_held(&StoredKeys::records, reading.name_space, tokens))
      restore_record(reading.name_space, tokens, engine);
    return false;
  }

  void restore_record(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                      FakeEngine& engine) {
    if (tokens.empty()) return;
    if (has_states_) counts_["tier_states"] += engine.restore_state(name_space, tokens) ? 1 : 0;
    if (has_windows_) counts_["tier_windows"] += engine.restore_window(name_space, tokens) ? 1 : 0;
  }

  std::mt19937_64& random_;
  const size_t page_tokens_, record_tokens_;
  const bool has_states_, has_windows_;
  Counts& counts_;
  std::array<StoredKeys, kNumTiers> tiers_;
  std::set<RequestId> asked_;
  std::map<RequestId, Reading> readings_;
  std::deque<std::pair<CacheNamespace, Tokens>> ended_;
};

}  // namespace hocket
