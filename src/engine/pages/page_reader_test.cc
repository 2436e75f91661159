// Tests the reader of pages alone, over a source in memory and in virtual time.
#include "engine/pages/page_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "base/clock_testing.h"

namespace hocket {
namespace {

// Has every page, each after ten seconds.
class SlowPeer final : public PageSource {
 public:
  explicit SlowPeer(FakeClock& clock) : clock_(clock) {}
  PageTier tier() const override { return PageTier::peer; }
  bool computes() const override { return true; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    return std::make_unique<Pages>(clock_);
  }

 private:
  class Pages final : public PromptPages {
   public:
    explicit Pages(FakeClock& clock) : clock_(clock) {}
    Result<size_t> last_held(std::span<const PageKey> keys) override { return keys.size(); }
    Result<void> expect(std::span<const PageKey> /*keys*/, PageKind /*kind*/) override {
      return {};
    }
    Result<bool> get(const PageKey& /*key*/, std::span<std::byte> page) override {
      clock_.advance(std::chrono::seconds(10));
      std::ranges::fill(page, std::byte{1});
      return true;
    }

   private:
    FakeClock& clock_;
  };
  FakeClock& clock_;
};

// A peer that computes a prompt may take long, and yet be fast where it has the pages.
TEST(PageReader, TheTimeOfComputingIsNotThatOfReading) {
  constexpr int64_t kBytes = 1 << 12;
  for (const bool is_sent : {true, false}) {
    SCOPED_TRACE(is_sent ? "computed" : "read");
    FakeClock clock;
    SlowPeer peer(clock);
    ReadFigures figures;
    PageReader reader(
        {.sources = {&peer}, .page_tokens = 32, .page_bytes = kBytes, .num_senders = 1},
        TransferBuffers::allocate({.page_bytes = kBytes}).value(), figures);
    reader.start(clock, [] {});
    auto task = std::make_shared<ReadTask>();
    task->prompt = std::vector<TokenId>(100, TokenId{1});
    task->num_whole = 96;
    task->is_sent = is_sent;
    ASSERT_TRUE(reader.add(task));
    int num_pages = 0;
    const TimePoint end = RealClock().now() + std::chrono::seconds(20);
    for (bool is_done = false; !is_done && RealClock().now() < end;) {
      const auto read = reader.pop();
      if (!read) {
        std::this_thread::yield();
        continue;
      }
      is_done = !read->kind;
      if (is_done) continue;
      ++num_pages;
      reader.release(*read);
    }
    reader.stop();
    EXPECT_EQ(num_pages, 3);
    const auto tier = static_cast<size_t>(PageTier::peer);
    const PageTierCounters counts = figures.tiers[tier].read(kPageTierCounters);
    EXPECT_EQ(counts.pages_read_total, 3u);
    EXPECT_EQ(counts.read_bytes_total, 3u * kBytes);
    EXPECT_EQ(counts.read_seconds_total > 0, !is_sent);
    EXPECT_EQ(peer.time_to_read(kBytes) > Duration::zero(), !is_sent);
  }
}

// A client that restores a session waits no longer, and others want the thread.
TEST(PageReader, ATaskEndsWhenNobodyWaitsForItAnyLonger) {
  constexpr int64_t kBytes = 1 << 12;
  FakeClock clock;
  SlowPeer peer(clock);
  ReadFigures figures;
  PageReader reader({.sources = {&peer}, .page_tokens = 32, .page_bytes = kBytes},
                    TransferBuffers::allocate({.page_bytes = kBytes}).value(), figures);
  reader.start(clock, [] {});
  auto task = std::make_shared<ReadTask>();
  task->prompt = std::vector<TokenId>(321, TokenId{1});
  task->num_whole = 320;
  task->until = clock.now() + std::chrono::seconds(25);
  ASSERT_TRUE(reader.add(task));
  int num_pages = 0;
  const TimePoint end = RealClock().now() + std::chrono::seconds(20);
  for (bool is_done = false; !is_done && RealClock().now() < end; std::this_thread::yield()) {
    const auto read = reader.pop();
    is_done = read && !read->kind;
    if (!read || is_done) continue;
    ++num_pages;
    reader.release(*read);
  }
  reader.stop();
  EXPECT_EQ(num_pages, 3) << "the third one begins in time";
}

// A peer that has every page, and notes how many may be on their way.
class NotingPeer final : public PageSource {
 public:
  PageTier tier() const override { return PageTier::peer; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    return std::make_unique<Pages>(*this);
  }
  std::atomic<size_t> num_given{0}, most_at_once{0};
  std::atomic<size_t> most_held{0};  // pages that were given, and those on their way

 private:
  class Pages final : public PromptPages {
   public:
    explicit Pages(NotingPeer& peer) : peer_(peer) {}
    Result<size_t> last_held(std::span<const PageKey> keys) override { return keys.size(); }
    Result<void> expect(std::span<const PageKey> /*keys*/, PageKind /*kind*/) override {
      return {};
    }
    void note_room(size_t num_pages) override {
      peer_.most_at_once = std::max<size_t>(peer_.most_at_once, num_pages);
      peer_.most_held = std::max<size_t>(peer_.most_held, peer_.num_given + num_pages);
    }
    Result<bool> get(const PageKey& /*key*/, std::span<std::byte> page) override {
      std::ranges::fill(page, std::byte{1});
      ++peer_.num_given;
      return true;
    }

   private:
    NotingPeer& peer_;
  };
};

// The engine takes no page, as in a long step. Pages on their way would fill the connection, and
// the peer would end it.
TEST(PageReader, APeerSendsNoMorePagesThanThereAreBuffers) {
  const TierBuffers sizes{.page_bytes = 64};
  const auto num_buffers = static_cast<size_t>(sizes.num_pages());
  NotingPeer peer;
  ReadFigures figures;
  const RealClock clock;
  PageReader reader({.sources = {&peer}, .page_tokens = 32, .page_bytes = sizes.page_bytes},
                    TransferBuffers::allocate(sizes).value(), figures);
  reader.start(clock, [] {});
  const auto task_of = [](size_t num_pages) {
    auto task = std::make_shared<ReadTask>();
    task->prompt = std::vector<TokenId>(32 * num_pages + 1, TokenId{1});
    task->num_whole = 32 * num_pages;
    return task;
  };
  const auto task = task_of(2 * num_buffers);
  auto added = task;
  ASSERT_TRUE(reader.add(added));
  const TimePoint end = clock.now() + std::chrono::seconds(20);
  while (peer.num_given < num_buffers && clock.now() < end) std::this_thread::yield();
  EXPECT_EQ(peer.num_given.load(), num_buffers);
  EXPECT_EQ(peer.most_held.load(), num_buffers);
  EXPECT_GT(peer.most_at_once.load(), 1u) << "pages travel together";
  EXPECT_LE(peer.most_at_once.load(), num_buffers / 2 + 1) << "others get buffers, too";
  task->given_up = true;
  // All buffers come back, also those that were taken for pages that did not come.
  for (bool is_done = false; !is_done && clock.now() < end; std::this_thread::yield()) {
    const auto read = reader.pop();
    is_done = read && !read->kind;
    if (read && read->kind) reader.release(*read);
  }
  peer.num_given = 0;
  auto next = task_of(num_buffers);
  ASSERT_TRUE(reader.add(next));
  while (peer.num_given < num_buffers && clock.now() < end) std::this_thread::yield();
  EXPECT_EQ(peer.num_given.load(), num_buffers);
  reader.stop();
}

// Has every page, but no memory to open or to read the first time.
class PoorSource final : public PageSource {
 public:
  explicit PoorSource(bool opens) : opens_(opens) {}
  PageTier tier() const override { return PageTier::peer; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    if (!opens_ && std::exchange(is_first_, false)) throw std::bad_alloc();
    return std::make_unique<Pages>(is_first_);
  }

 private:
  class Pages final : public PromptPages {
   public:
    explicit Pages(bool& is_first) : is_first_(is_first) {}
    Result<size_t> last_held(std::span<const PageKey> keys) override { return keys.size(); }
    Result<void> expect(std::span<const PageKey> /*keys*/, PageKind /*kind*/) override {
      return {};
    }
    Result<bool> get(const PageKey& /*key*/, std::span<std::byte> page) override {
      if (std::exchange(is_first_, false)) throw std::bad_alloc();
      std::ranges::fill(page, std::byte{1});
      return true;
    }

   private:
    bool& is_first_;
  };
  const bool opens_;
  bool is_first_ = true;
};

// Every buffer is still there afterwards, as the second task needs all of them.
TEST(PageReader, ALackOfMemoryEndsTheReadingOfOneTask) {
  const TierBuffers sizes{.page_bytes = 64};
  const auto num_pages = static_cast<size_t>(sizes.num_pages());
  for (const bool opens : {true, false}) {
    SCOPED_TRACE(opens ? "at a page" : "at the beginning");
    PoorSource source(opens);
    ReadFigures figures;
    const RealClock clock;
    PageReader reader({.sources = {&source}, .page_tokens = 32, .page_bytes = sizes.page_bytes},
                      TransferBuffers::allocate(sizes).value(), figures);
    reader.start(clock, [] {});
    const TimePoint end = clock.now() + std::chrono::seconds(20);
    for (const size_t expected : {size_t{0}, num_pages}) {
      auto task = std::make_shared<ReadTask>();
      task->prompt = std::vector<TokenId>(32 * num_pages + 1, TokenId{1});
      task->num_whole = 32 * num_pages;
      ASSERT_TRUE(reader.add(task));
      std::vector<ReadPage> pages;
      bool is_done = false;
      while (!is_done && clock.now() < end) {
        auto read = reader.pop();
        if (!read)
          std::this_thread::yield();
        else if (read->kind)
          pages.push_back(*std::move(read));
        else
          is_done = true;
      }
      EXPECT_TRUE(is_done);
      EXPECT_EQ(pages.size(), expected);
      for (const ReadPage& page : pages) reader.release(page);
    }
    reader.stop();
  }
}

// Notes the prompts that are read, and has no page of them. The first one takes until it is let go.
class NotingSource final : public PageSource {
 public:
  PageTier tier() const override { return PageTier::file; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) override {
    const MutexLock lock(mutex_);
    lengths_.push_back(wanted.prompt.size());
    while (!may_end && lengths_.size() == 1) std::this_thread::yield();
    return nullptr;
  }
  std::vector<size_t> lengths() const {
    const MutexLock lock(mutex_);
    return lengths_;
  }
  std::atomic<bool> may_end{false};

 private:
  mutable Mutex mutex_;
  std::vector<size_t> lengths_ HOCKET_GUARDED_BY(mutex_);
};

// A short prompt, which would soon be computed, waits for the one that is read now alone.
TEST(PageReader, PromptsAreReadInTheOrderInWhichTheyAreDue) {
  NotingSource source;
  ReadFigures figures;
  const RealClock clock;
  PageReader reader({.sources = {&source}, .page_tokens = 32, .page_bytes = 64},
                    TransferBuffers::allocate({.page_bytes = 64}).value(), figures);
  const auto add = [&](size_t num_tokens, Duration due) {
    auto task = std::make_shared<ReadTask>();
    task->prompt = std::vector<TokenId>(num_tokens, TokenId{1});
    task->num_whole = num_tokens / 32 * 32;
    task->due = TimePoint(due);
    return reader.add(task);
  };
  reader.start(clock, [] {});
  ASSERT_TRUE(add(640, std::chrono::seconds(60)));
  const TimePoint end = clock.now() + std::chrono::seconds(20);
  while (reader.num_waiting() > 0 && clock.now() < end) std::this_thread::yield();
  ASSERT_TRUE(add(960, std::chrono::seconds(90)));
  ASSERT_TRUE(add(961, std::chrono::seconds(90)));
  ASSERT_TRUE(add(320, std::chrono::seconds(31)));
  ASSERT_TRUE(add(800, std::chrono::seconds(80)));
  source.may_end = true;
  for (int num_ended = 0; num_ended < 5 && clock.now() < end; std::this_thread::yield())
    num_ended += reader.pop() ? 1 : 0;
  reader.stop();
  EXPECT_EQ(source.lengths(), (std::vector<size_t>{640, 320, 800, 960, 961}));
}

}  // namespace
}  // namespace hocket
