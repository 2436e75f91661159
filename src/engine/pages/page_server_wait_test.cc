// Tests how long a service waits for a page of a prompt that it computes for another one.
#include <thread>

#include "engine/pages/page_server_testing.h"

namespace hocket {
namespace {

class PageServerWaitTest : public testing::PageServerTest {
 protected:
  static constexpr PageKey kLater = {2};

  // Has a prompt computed, and asks for a page of it that is not there yet.
  std::unique_ptr<PageLink> ask_later() {
    computes_ = true;
    start();
    auto link = introduce(PageFrame::ok);
    const std::string prompt(sizeof(CacheNamespace) + 10 * sizeof(TokenId), '\0');
    EXPECT_TRUE(link->send(PageFrame::prefill, prompt));
    EXPECT_EQ(next(*link).type, PageFrame::ok);
    ask_for(*link, kLater);
    return link;
  }
  static void ask_for(PageLink& link, const PageKey& key) {
    EXPECT_TRUE(link.send(PageFrame::get, std::string(1, '\0') + text_of(key)));
  }
  // Returns the first answer that is no sign of life.
  static PageFrame answer_of(PageLink& link) {
    PageFrame type = PageFrame::waiting;
    while (type == PageFrame::waiting) type = next(link).type;
    return type;
  }
};

// Two prompts are under way at a time. The second one may stand in line longer than a page takes.
TEST_F(PageServerWaitTest, APromptInLineIsAwaitedWhileOthersAreComputed) {
  max_wait_ = std::chrono::seconds(1);
  const auto link = ask_later();
  const Thread others({.name = "others"}, [&] {
    const TimePoint end = RealClock().now() + 2 * max_wait_;
    for (; RealClock().now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      prefills_->note_page(kKey);
    write(kLater);
    prefills_->note_page(kKey);
  });
  EXPECT_EQ(answer_of(*link), PageFrame::page);
}

TEST_F(PageServerWaitTest, AServiceThatWritesNothingForLongHasNoPage) {
  max_wait_ = std::chrono::milliseconds(200);
  const auto link = ask_later();
  EXPECT_EQ(answer_of(*link), PageFrame::absent);
  EXPECT_TRUE(prefills_->is_watched(kPrompt));
}

// A page that is lost ends no prompt that does not need it.
TEST_F(PageServerWaitTest, APageThatIsLostIsAwaitedNoLonger) {
  constexpr PageKey kOther = {3};
  const auto link = ask_later();
  prefills_->note_lost(kLater);
  EXPECT_EQ(answer_of(*link), PageFrame::absent);
  EXPECT_TRUE(prefills_->is_watched(kPrompt));
  ask_for(*link, kOther);
  write(kOther);
  prefills_->note_page(kOther);
  EXPECT_EQ(answer_of(*link), PageFrame::page);
  prefills_->note_page(kLater);
  EXPECT_FALSE(prefills_->is_lost(kLater)) << "it was written after all";
  prefills_->note_lost(kLater);
  prefills_->end(kPrompt);
  EXPECT_FALSE(prefills_->is_lost(kLater)) << "nobody waits for it";
}

TEST(PrefillWatch, MoreLostPagesThanAreRememberedEndAll) {
  PrefillWatch watch;
  const auto key_of = [](size_t number) {
    return PageKey{static_cast<uint8_t>(number), static_cast<uint8_t>(number >> 8)};
  };
  watch.note_lost({});
  EXPECT_FALSE(watch.is_lost({})) << "nobody waits";
  ASSERT_TRUE(watch.begin(RequestId{1}));
  for (size_t i = 0; i < PrefillWatch::kMaxLost; ++i) watch.note_lost(key_of(i));
  watch.note_lost({});  // it counts once
  EXPECT_TRUE(watch.is_watched(RequestId{1}) && watch.is_lost({}));
  watch.note_lost(key_of(PrefillWatch::kMaxLost));
  EXPECT_FALSE(watch.is_watched(RequestId{1}) || watch.is_lost({}));
}

}  // namespace
}  // namespace hocket
