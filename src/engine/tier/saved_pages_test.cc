// Tests the look for a saved session's pages over a store that hangs in the middle of it.
#include "engine/tier/saved_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/pages/page_keys.h"

namespace hocket {
namespace {

// Has some pages and states. Each look fails from a certain one on, as those of a mount do that
// stops answering.
class HangingStore final : public PageStore {
 public:
  HangingStore(std::vector<PageKey> held, int num_good_looks)
      : PageStore(kRetryInterval), held_(std::move(held)), num_good_looks_(num_good_looks) {}
  PageTier tier() const override { return PageTier::file; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& /*wanted*/) override {
    return std::make_unique<Pages>(*this);
  }
  bool has(const PageKey& /*key*/) override { return false; }
  Figures figures() const override { return {}; }
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override {
    if (++num_looks > num_good_looks_) return fail(ErrorCode::timed_out, "it hangs");
    std::vector<bool> found;
    for (const PageKey& key : keys) found.push_back(std::ranges::find(held_, key) != held_.end());
    return found;
  }
  Result<size_t> put(std::span<const Page> pages,
                     const std::function<bool()>& /*is_over*/) override {
    return pages.size();
  }
  int num_looks = 0;

 private:
  class Pages final : public PromptPages {
   public:
    explicit Pages(HangingStore& store) : store_(store) {}
    Result<size_t> last_held(std::span<const PageKey> keys) override {
      HOCKET_TRY(const std::vector<bool> found, store_.exist(keys));
      const auto last = std::find(found.rbegin(), found.rend(), true);
      return static_cast<size_t>(found.rend() - last);
    }
    Result<void> expect(std::span<const PageKey> /*keys*/, PageKind /*kind*/) override {
      return {};
    }
    Result<bool> get(const PageKey& /*key*/, std::span<std::byte> /*page*/) override {
      return false;
    }

   private:
    HangingStore& store_;
  };
  const std::vector<PageKey> held_;
  const int num_good_looks_;
};

class SavedPagesTest : public ::testing::Test {
 protected:
  static constexpr size_t kPages = 100;
  SavedPagesTest() {
    const std::vector<TokenId> tokens(kPages * 32, TokenId{1});
    PageKeys({}, 32).append_to({}, tokens, keys_);
  }
  // Pages that are found, and whether these are all; the tree had all, and a state behind 64.
  std::pair<int, bool> look(const std::shared_ptr<HangingStore>& store, bool has_states) const {
    std::pair<int, bool> found;
    SavedPages{.files = store,
               .keys = keys_,
               .num_held = kPages,
               .has_states = has_states,
               .num_with_state = has_states ? size_t{64} : 0,
               .done = [&](int num_pages, bool whole) { found = {num_pages, whole}; }}(true);
    return found;
  }
  std::vector<PageKey> keys_;
};

TEST_F(SavedPagesTest, PagesCountUpToTheLastState) {
  std::vector<PageKey> held = keys_;
  EXPECT_EQ(look(std::make_shared<HangingStore>(held, 9), false), std::pair(100, true));
  held.push_back(PageKeys::of_state(keys_[31]));
  EXPECT_EQ(look(std::make_shared<HangingStore>(held, 9), true), std::pair(32, false));
  held.push_back(PageKeys::of_state(keys_[63]));
  EXPECT_EQ(look(std::make_shared<HangingStore>(held, 9), true), std::pair(64, true));
  held.erase(held.begin() + 40);
  EXPECT_EQ(look(std::make_shared<HangingStore>(held, 9), true), std::pair(32, false));
}

// One look for the states, however many pages there are.
TEST_F(SavedPagesTest, AFolderThatHangsBehindThePagesIsAskedOnce) {
  const auto store = std::make_shared<HangingStore>(keys_, 1);
  EXPECT_EQ(look(store, true), std::pair(0, false));
  EXPECT_EQ(store->num_looks, 2);
}

}  // namespace
}  // namespace hocket
