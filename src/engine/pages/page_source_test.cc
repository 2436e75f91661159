#include "engine/pages/page_source.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hocket
