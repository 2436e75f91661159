#include "engine/pages/page_source.h"

#include <gtest/gtest.h>

#include "engine/pages/peer_source.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct NoSource final : PageSource {
  PageTier tier() const override { return PageTier::file; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    return nullptr;
  }
};

// Nothing is expected to be slow before it was tried.
TEST(PageSource, HasNoSpeedUntilATrialIsOver) {
  NoSource source;
  EXPECT_EQ(source.time_to_read(1 << 30), Duration::zero());
  source.note_read(1000, milliseconds(20));
  EXPECT_EQ(source.time_to_read(1 << 30), Duration::zero());
  source.note_read(3000, milliseconds(60));
  EXPECT_EQ(to_ms(source.time_to_read(1000)), 20);
}

TEST(PageSource, KnowsAFastSourceByItsBytes) {
  NoSource source;
  source.note_read(100'000'000, milliseconds(10));
  EXPECT_EQ(to_ms(source.time_to_read(1'000'000'000)), 100);
}

TEST(PageSource, CountsNewerReadsMore) {
  NoSource source;
  source.note_read(1'000'000'000, seconds(100));
  for (int i = 0; i < 20; ++i) source.note_read(64'000'000, milliseconds(64));
  EXPECT_NEAR(to_ms(source.time_to_read(1'000'000)), 1, 0.01);
}

// Returns the lines that `say` logs which have this text.
template <class F>
ptrdiff_t num_logged(std::string_view text, F say) {
  ::testing::internal::CaptureStderr();
  say();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  ptrdiff_t count = 0;
  for (size_t at = lines.find(text); at != std::string::npos; at = lines.find(text, at + 1))
    ++count;
  return count;
}

TEST(PageSource, FaultsThatComeAndGoDoNotFillTheLog) {
  NoSource source;
  const ptrdiff_t count = num_logged("stored prefixes", [&] {
    for (int i = 0; i < 100; ++i) {
      source.report(error(ErrorCode::io, "fault {}", i), "it is computed");
      source.note_success();
    }
  });
  EXPECT_EQ(count, 2) << "the first fault, and its end";
}

TEST(PageSource, FaultsWhoseTextsVaryDoNotFillTheLog) {
  NoSource source;
  EXPECT_EQ(num_logged("stored prefixes",
                       [&] {
                         for (int i = 0; i < 100; ++i)
                           source.report(error(ErrorCode::io, "fault {}", i), "it is computed");
                       }),
            1);
  EXPECT_EQ(num_logged("works again", [&] { source.note_success(); }), 1);
}

TEST(PeerOrderTest, PeersWithFewerTokensUnderWayComeFirstAndEqualOnesTakeTurns) {
  using Order = std::vector<size_t>;
  const std::vector<int64_t> idle = {0, 0, 0}, busy = {900, 0, 100};
  EXPECT_EQ(order_of_peers(0, idle), (Order{0, 1, 2}));
  EXPECT_EQ(order_of_peers(5, idle), (Order{2, 0, 1}));
  for (size_t first = 0; first < 3; ++first)
    EXPECT_EQ(order_of_peers(first, busy), (Order{1, 2, 0}));
}

}  // namespace
}  // namespace hocket
