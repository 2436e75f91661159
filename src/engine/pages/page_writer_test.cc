// Tests the writer of pages alone, over a store in memory and over a folder.
#include "engine/pages/page_writer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <new>
#include <thread>

#include "base/folder_testing.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

// Has no memory for the first pages, in one of two ways, and takes all others.
class PoorStore final : public PageStore {
 public:
  explicit PoorStore(bool throws) : PageStore(kRetryInterval), throws_(throws) {}
  using PageStore::leave;
  PageTier tier() const override { return PageTier::redis; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    return nullptr;
  }
  bool has(const PageKey& /*key*/) override { return false; }
  Figures figures() const override { return {}; }
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override {
    return std::vector<bool>(keys.size());
  }
  Result<size_t> put(std::span<const Page> pages,
                     const std::function<bool()>& /*is_over*/) override {
    if (!std::exchange(is_first_, false)) return pages.size();
    if (throws_) throw std::bad_alloc();
    return fail(ErrorCode::out_of_memory, "there is too little memory for a call");
  }

 private:
  const bool throws_;
  bool is_first_ = true;
};

using PageWriterFolderTest = testing::FolderTest;

// Every buffer is free again afterwards, as the second round needs all of them.
TEST(PageWriter, ALackOfMemoryCostsThePagesOfOneCall) {
  const TierBuffers sizes{.page_bytes = 64};
  const auto num_pages = static_cast<size_t>(sizes.num_pages());
  for (const bool throws : {true, false}) {
    SCOPED_TRACE(throws);
    const auto store = std::make_shared<PoorStore>(throws);
    PageWriter writer({.files = nullptr, .redis = store, .prefills = nullptr},
                      TransferBuffers::allocate(sizes).value());
    const RealClock clock;
    writer.start(clock, [] {});
    // Returns whether all was written, as the end of a session's save learns it.
    const auto write_round = [&] {
      for (size_t i = 0; i < num_pages; ++i) {
        const PageWriter::Lacked page{.kind = PageKind::page, .stores = 1};
        EXPECT_EQ(writer.copy(page, [](std::span<std::byte>) {}), PageWriter::CopyOutcome::yes);
      }
      const auto done = std::make_shared<std::promise<bool>>();
      auto answer = done->get_future();
      writer.end(RequestId{1}, [done](bool all_written) { done->set_value(all_written); });
      return answer.get();
    };
    EXPECT_TRUE(write_round());
    EXPECT_TRUE(write_round());
    CacheTierStats stats;
    writer.add_to(stats);
    const uint64_t num_lost = stats.left_out(UnwrittenReason::no_memory);
    EXPECT_GE(num_lost, 1u);
    EXPECT_LE(num_lost, PageWriter::kMaxAtOnce);
    EXPECT_EQ(stats.pages_written_total, 2 * num_pages - num_lost);
    EXPECT_TRUE(store->takes_writes()) << "the store has not failed";
    writer.begin_end();
    writer.join();
  }
}

// A client waits for the pages of a prompt until its end, unless it hears that they do not come.
TEST_F(PageWriterFolderTest, APageThatCannotBeWrittenEndsTheWaitsOfPeers) {
  const auto files = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                                 FileStore::calls_for(folder_));
  const auto prefills = std::make_shared<PrefillWatch>();
  PageWriter writer({.files = files, .redis = nullptr, .prefills = prefills},
                    TransferBuffers::allocate({.page_bytes = 64}).value());
  const RealClock clock;
  writer.start(clock, [] {});
  std::ofstream(folder_ / "00") << "no folder";
  ASSERT_TRUE(prefills->begin(RequestId{1}));
  const PageWriter::Lacked page{.kind = PageKind::page, .stores = 1};  // its name begins with 00
  ASSERT_EQ(writer.copy(page, [](std::span<std::byte>) {}), PageWriter::CopyOutcome::yes);
  const TimePoint end = clock.now() + std::chrono::seconds(20);
  while (writer.is_awaited(RequestId{1}) && clock.now() < end) std::this_thread::yield();
  EXPECT_FALSE(writer.is_awaited(RequestId{1}));
  EXPECT_FALSE(writer.files_take_writes());
  // Nor does one that began meanwhile wait for the others.
  ASSERT_TRUE(prefills->begin(RequestId{2}));
  writer.end_waiting(RequestId{2});
  EXPECT_FALSE(writer.is_awaited(RequestId{2}));
  writer.begin_end();
  writer.join();
}

// A folder of somebody else has the page's name. The store takes all others.
TEST_F(PageWriterFolderTest, APageThatHasNoPlaceEndsNoPromptThatDoesNotNeedIt) {
  const auto files = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                                 FileStore::calls_for(folder_));
  const auto prefills = std::make_shared<PrefillWatch>();
  PageWriter writer({.files = files, .redis = nullptr, .prefills = prefills},
                    TransferBuffers::allocate({.page_bytes = 64}).value());
  const RealClock clock;
  writer.start(clock, [] {});
  const PageWriter::Lacked page{.kind = PageKind::page, .stores = 1};
  std::filesystem::create_directories(path_of_page(folder_, page.key) / "stranger");
  ASSERT_TRUE(prefills->begin(RequestId{1}));
  ASSERT_EQ(writer.copy(page, [](std::span<std::byte>) {}), PageWriter::CopyOutcome::yes);
  const TimePoint end = clock.now() + std::chrono::seconds(20);
  while (!prefills->is_lost(page.key) && clock.now() < end) std::this_thread::yield();
  EXPECT_TRUE(prefills->is_lost(page.key));
  EXPECT_TRUE(writer.is_awaited(RequestId{1}));
  EXPECT_TRUE(writer.files_take_writes());
  writer.begin_end();
  writer.join();
}

// Pages that find no buffer are tried again, perhaps many times.
TEST_F(PageWriterFolderTest, APageThatAStoreThatIsAwayLacksCountsOnce) {
  const auto files = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                                 FileStore::calls_for(folder_));
  const auto redis = std::make_shared<PoorStore>(false);
  const TierBuffers sizes{.page_bytes = 64};
  PageWriter writer({.files = files, .redis = redis, .prefills = nullptr},
                    TransferBuffers::allocate(sizes).value());
  redis->leave();
  const auto copy = [&] {  // no thread runs that would free a buffer
    return writer.copy({.kind = PageKind::page, .stores = 3}, [](std::span<std::byte>) {});
  };
  for (int64_t i = 0; i < sizes.num_pages(); ++i) EXPECT_EQ(copy(), PageWriter::CopyOutcome::yes);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(copy(), PageWriter::CopyOutcome::no_buffer);
  CacheTierStats stats;
  writer.add_to(stats);
  EXPECT_EQ(stats.left_out(UnwrittenReason::store_away), static_cast<uint64_t>(sizes.num_pages()));
}

// A session is not saved if its files could not be looked for, and its client learns so.
TEST(PageWriter, ALackOfMemoryBehindAllPagesIsTold) {
  PageWriter writer(
      {.files = nullptr, .redis = std::make_shared<PoorStore>(true), .prefills = nullptr},
      TransferBuffers::allocate({.page_bytes = 64}).value());
  const RealClock clock;
  writer.start(clock, [] {});
  const auto done = std::make_shared<std::promise<bool>>();
  auto answer = done->get_future();
  writer.end(RequestId{1}, [done](bool all_written) {
    if (all_written) throw std::bad_alloc();
    done->set_value(all_written);
  });
  EXPECT_FALSE(answer.get());
  writer.begin_end();
  writer.join();
}

}  // namespace
}  // namespace hocket
