// A scheduler with the cache tier of a rank, a pool of pages and a store in memory, in virtual
// time: steps take as long as their rows, and a read of the store as long as the test says. The
// bytes of a page are made from its tokens and all before them, and whatever the tree gives to a
// request is compared with these. For tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "base/clock_testing.h"
#include "base/folder_testing.h"
#include "base/mix.h"
#include "engine/tier/cache_tier.h"

namespace hocket::testing {

// Keeps pages in memory. A read may take long, hang, or lose its page.
class MemoryStore final : public PageStore {
 public:
  MemoryStore() : PageStore(kRetryInterval) {}

  // Called before each read. Returns false if the page is lost.
  std::function<bool()> on_read = [] { return true; };
  std::atomic<bool> hangs{false};
  std::atomic<bool> holds_writes{false};
  std::function<void()> on_look = [] {};  // called in has()
  std::function<void(const PagesWanted&)> on_open = [](const PagesWanted&) {};

  PageTier tier() const override { return PageTier::redis; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) override {
    on_open(wanted);
    return std::make_unique<HeldPages>(*this, wanted.is_over);
  }
  bool has(const PageKey& key) override {
    on_look();
    const MutexLock lock(mutex_);
    return pages_.contains(key);
  }
  Figures figures() const override { return {}; }
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override {
    std::vector<bool> found;
    const MutexLock lock(mutex_);
    for (const PageKey& key : keys) found.push_back(pages_.contains(key));
    return found;
  }
  Result<size_t> put(std::span<const Page> pages, const std::function<bool()>& is_over) override {
    while (holds_writes) {
      if (is_over()) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const MutexLock lock(mutex_);
    for (const Page& page : pages) pages_[page.key].assign(page.bytes.begin(), page.bytes.end());
    return pages.size();
  }
  using PageStore::leave;
  size_t size() const {
    const MutexLock lock(mutex_);
    return pages_.size();
  }

 private:
  class HeldPages final : public PromptPages {
   public:
    HeldPages(MemoryStore& store, std::function<bool()> is_over)
        : store_(store), is_over_(std::move(is_over)) {}
    Result<size_t> last_held(std::span<const PageKey> keys) override { return keys.size(); }
    Result<void> expect(std::span<const PageKey>, PageKind) override { return {}; }
    Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
      while (store_.hangs && !is_over_()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (is_over_()) return false;
      const bool is_there = store_.on_read();
      const MutexLock lock(store_.mutex_);
      const auto found = store_.pages_.find(key);
      if (found == store_.pages_.end()) return false;
      if (!is_there) return store_.pages_.erase(found), false;
      std::ranges::copy(found->second, page.begin());
      return true;
    }

   private:
    MemoryStore& store_;
    const std::function<bool()> is_over_;
  };

  mutable Mutex mutex_;
  std::map<PageKey, std::vector<std::byte>> pages_ HOCKET_GUARDED_BY(mutex_);
};

class TierWorld final : public SchedulerHooks {
 public:
  struct Options {
    KvShape page;
    int num_layers = 1;
    SchedulerOptions scheduler;
    CacheTier::Options tier;
    Duration row_time = std::chrono::milliseconds(1);
  };
  TierWorld(Options options, std::shared_ptr<MemoryStore> store, FakeClock& clock)
      : clock_(clock),
        row_time_(options.row_time),
        page_tokens_(static_cast<size_t>(options.page.page_tokens)),
        pool_(PagePool::create(
                  std::vector<KvShape>(static_cast<size_t>(options.num_layers), options.page),
                  options.scheduler.num_pages)
                  .value()),
        scheduler_(with_hooks(std::move(options))),
        buffer_(static_cast<size_t>(pool_.page_bytes())) {
    tier_options_.redis = std::move(store);
    if (!tier_options_.role)
      tier_options_.role = std::make_shared<PrefillRole>(PrefillRole::Options{});
    tier_options_.page_tokens = static_cast<int>(page_tokens_);
    tier_ = CacheTier::create(tier_options_, pool_,
                              {nullptr, nullptr, 1, static_cast<int>(page_tokens_)})
                .value();
    tier_->start(clock_, [] {}, [this](PageId) { on_taken(); });
  }

  std::function<void()> on_taken = [] {};  // called for each page that the tree gets from stores

  bool add(uint64_t id, std::vector<TokenId> prompt, int num_answers = 1) {
    RequestInput input{.id = RequestId{id}, .prompt = std::move(prompt), .arrived = clock_.now()};
    input.sampling.max_new_tokens = num_answers;
    input.sampling.ignore_eos = true;
    return scheduler_.add(std::move(input)).has_value();
  }
  void abort(uint64_t id) { scheduler_.abort(RequestId{id}, FinishReason::abort, {}); }

  // Runs one step. Returns false if there was nothing to compute.
  bool step() {
    if (tier_->has_delayed_pages())
      tier_->copy_delayed(scheduler_,
                          scheduler_.idle() ? [] { return false; } : std::function<bool()>());
    tier_->take_read_pages(
        scheduler_, scheduler_.stats().num_running > 0 ? EngineLoad::running : EngineLoad::idle);
    const Batch& batch = scheduler_.schedule(clock_.now());
    if (batch.empty()) return collect(), false;
    tier_->note_begun(batch);
    sampled_.clear();
    for (const Slice& slice : batch.slices) {
      compute(slice);
      if (slice.is_sampled)
        sampled_.push_back({.token = TokenId{static_cast<int32_t>(++next_token_ % 1000)}});
    }
    const Duration took = batch.num_rows * row_time_;
    clock_.advance(took);
    scheduler_.commit(batch, sampled_, clock_.now());
    tier_->note_step(batch, took);
    collect();
    return true;
  }
  // Steps until `done` holds; virtual time continues while nothing can be computed. Returns false
  // if that takes too long in real time.
  bool run_until(const std::function<bool()>& done, Duration idle = Duration{}) {
    const TimePoint end = RealClock().now() + std::chrono::seconds(20);
    while (!done()) {
      if (RealClock().now() > end) return false;
      if (step()) continue;
      clock_.advance(idle);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  // Waits for the threads, without a step. Returns false if that takes too long.
  static bool wait_until(const std::function<bool()>& done) {
    const TimePoint end = RealClock().now() + std::chrono::seconds(20);
    while (!done()) {
      if (RealClock().now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  bool run_all(Duration idle = Duration{}) {
    return run_until([this] { return scheduler_.idle(); }, idle);
  }

  struct Ended {
    FinishReason finish = FinishReason::none;
    int cached = 0, fetched = 0;  // tokens
  };
  const std::map<uint64_t, Ended>& ended() const { return ended_; }
  Scheduler& scheduler() { return scheduler_; }
  CacheTier& tier() { return *tier_; }
  int64_t page_bytes() const { return pool_.page_bytes(); }

  Result<bool> ready(const Request& request) override { return tier_->ready(request, scheduler_); }
  bool waits_again(const Request& request) override {
    return tier_->waits_again(request, scheduler_);
  }
  void on_pages_cached(const Request& request) override {
    tier_->on_pages_cached(request, scheduler_);
  }

 private:
  SchedulerOptions with_hooks(Options options) {
    tier_options_ = std::move(options.tier);
    options.scheduler.hooks = this;
    options.scheduler.page_tokens = options.page.page_tokens;
    return std::move(options.scheduler);
  }
  // The bytes of the page that ends behind `tokens`.
  void make_page(std::span<const TokenId> tokens, std::span<std::byte> page) const {
    uint64_t sum = 1;
    for (const TokenId token : tokens) sum = mix64(sum + static_cast<uint64_t>(value(token)));
    for (size_t i = 0; i < page.size(); i += 4096)
      page[i] = static_cast<std::byte>(sum >> (i % 57));
    for (size_t i = 1; i < std::min<size_t>(page.size(), 64); ++i)
      page[i] = static_cast<std::byte>(mix64(sum + i));
  }
  std::vector<std::byte> page_behind(const Request& request, size_t num_pages) const {
    std::vector<std::byte> page(buffer_.size());
    make_page(std::span(request.tokens).first(num_pages * page_tokens_), page);
    return page;
  }
  void compute(const Slice& slice) {
    const Request& request = *slice.request;
    for (size_t i = 0; i < static_cast<size_t>(request.leased_pages); ++i) {
      pool_.save_page(request.pages[i], buffer_);
      ASSERT_EQ(buffer_, page_behind(request, i + 1)) << "page " << i;
    }
    const auto end = static_cast<size_t>(slice.begin + slice.len);
    for (size_t i = static_cast<size_t>(slice.begin) / page_tokens_; (i + 1) * page_tokens_ <= end;
         ++i)
      pool_.load_page(page_behind(request, i + 1), request.pages[i]);
  }
  void collect() {
    for (const auto& request : scheduler_.take_finished()) {
      const PerTier<int> found = tier_->fetched(request->id);
      ended_[value(request->id)] = {.finish = request->finish,
                                    .cached = request->cached_len,
                                    .fetched = found[static_cast<size_t>(PageTier::redis)]};
      tier_->forget(request->id);
    }
  }

  FakeClock& clock_;
  const Duration row_time_;
  const size_t page_tokens_;
  CacheTier::Options tier_options_;
  PagePool pool_;
  Scheduler scheduler_;
  std::vector<std::byte> buffer_;
  std::vector<SampledToken> sampled_;
  std::map<uint64_t, Ended> ended_;
  uint64_t next_token_ = 0;
  std::unique_ptr<CacheTier> tier_;  // last: its threads use the store and the clock
};

inline std::vector<TokenId> tier_prompt(int seed, int num_tokens) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<TokenId> tokens;
  for (int i = 0; i < num_tokens; ++i)
    tokens.push_back(TokenId{static_cast<int32_t>(random() % 1000)});
  return tokens;
}

// 128 tokens of 192 KiB, as of a large model without latents; or small pages of 32 tokens.
inline TierWorld::Options with_pages(bool large, int num_pages) {
  TierWorld::Options options;
  options.page = {.num_heads = large ? 16 : 1,
                  .key_dim = 128,
                  .value_dim = 128,
                  .page_tokens = large ? 128 : 32};
  options.num_layers = large ? 24 : 1;
  options.scheduler = {.num_pages = num_pages,
                       .max_running_requests = 16,
                       .chunk_tokens = 256,
                       .max_prefill_tokens = 512,
                       .context_length = 4096,
                       .vocab_size = 1000};
  return options;
}

class TierWorldTest : public ::testing::Test {
 protected:
  // Has a world compute a prompt, so that the store has its pages.
  void fill(const TierWorld::Options& options, int seed, int num_tokens) {
    const size_t want = store_->size() + static_cast<size_t>(num_tokens / options.page.page_tokens);
    TierWorld world(options, store_, clock_);
    ASSERT_TRUE(world.add(kWriter, tier_prompt(seed, num_tokens)));
    ASSERT_TRUE(world.run_all());
    ASSERT_TRUE(world.run_until([&] { return store_->size() >= want; }));
  }

  static constexpr uint64_t kWriter = 1000000;
  FakeClock clock_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

}  // namespace hocket::testing
