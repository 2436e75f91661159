#include "engine/pages/regrouped_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/mix.h"

namespace hocket {
namespace {

using Bytes = std::vector<std::byte>;
using Sizes = std::pair<int, int>;  // tokens of a page: the peer's, and ours

constexpr int kLen = 512;
constexpr CacheNamespace kSpace = CacheNamespace(3);

PageForms::Parts parts_of(int page_tokens) {
  return {
      .bits = "some model",
      .pages = {.layers = {
                    {.num_heads = 1, .key_dim = 32, .value_dim = 16, .page_tokens = page_tokens}}}};
}

PageForms::Parts with_window(int page_tokens, int window_tokens) {
  PageForms::Parts parts = parts_of(page_tokens);
  parts.windows = parts.pages;
  parts.window_tokens = window_tokens;
  return parts;
}

std::vector<TokenId> prompt_of(int len) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < len; ++i) prompt.push_back(TokenId{i % 91});
  return prompt;
}

// Returns a page of one layer that holds the tokens from `begin` to `end`; the others are zero.
Bytes page_of(const PageLayout& layout, int first, int begin, int end) {
  const PageLayout rows = layout.with_tokens(1);
  Bytes page(static_cast<size_t>(layout.page_bytes()));
  for (int token = std::max(first, begin); token < std::min(first + layout.page_tokens(), end);
       ++token) {
    Bytes row(static_cast<size_t>(rows.page_bytes()));
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = static_cast<std::byte>(mix64(static_cast<uint64_t>(token) * 1000 + i));
    copy_tokens(rows, row, layout, page, {.from = 0, .to = token - first, .count = 1});
  }
  return page;
}

// Pages and states of a peer in memory, by their keys there.
struct PeerMemory {
  std::map<PageKey, Bytes> held;
  int num_read = 0;
  size_t room = 0;  // as note_room() said last

  // The pages, as far as the tokens fill them.
  void add_pages(const PageForms& forms, int page_tokens, std::span<const TokenId> tokens) {
    const std::vector<PageKey> keys = keys_of(forms, page_tokens, tokens);
    const int len = static_cast<int>(tokens.size());
    for (size_t i = 0; i < keys.size(); ++i)
      held[keys[i]] = page_of(forms.pages(page_tokens), static_cast<int>(i) * page_tokens, 0, len);
  }
  // The window pages behind a border, as BorderStates::save() writes them.
  void add_window(const PageForms& forms, int page_tokens, int border) {
    held[PageKeys::of_state(keys_of(forms, page_tokens, prompt_of(border)).back())] =
        window_of(forms, page_tokens, border);
  }
  static Bytes window_of(const PageForms& forms, int page_tokens, int border) {
    Bytes record;
    for (int first = first_in_record(border, forms.window_tokens(), page_tokens); first < border;
         first += page_tokens)
      std::ranges::copy(page_of(forms.windows(page_tokens), first, 0, border),
                        std::back_inserter(record));
    record.resize(static_cast<size_t>(forms.record_bytes(page_tokens)));
    return record;
  }
  static std::vector<PageKey> keys_of(const PageForms& forms, int page_tokens,
                                      std::span<const TokenId> tokens) {
    std::vector<PageKey> keys;
    PageKeys(forms.form(page_tokens), static_cast<size_t>(page_tokens))
        .append_to(kSpace, tokens, keys);
    return keys;
  }
};

// Gives only what it was told to expect, in order, as a peer does.
class PeerMemoryPages final : public PromptPages {
 public:
  explicit PeerMemoryPages(PeerMemory& memory) : memory_(memory) {}
  Result<size_t> last_held(std::span<const PageKey> keys) override {
    size_t count = 0;
    for (size_t i = 0; i < keys.size(); ++i)
      if (memory_.held.contains(keys[i])) count = i + 1;
    return count;
  }
  Result<void> expect(std::span<const PageKey> keys, PageKind) override {
    expected_.assign(keys.begin(), keys.end());
    return {};
  }
  void note_room(size_t num_pages) override { memory_.room = num_pages; }
  Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
    if (expected_.empty() || expected_.front() != key) return false;
    expected_.erase(expected_.begin());
    const auto found = memory_.held.find(key);
    if (found == memory_.held.end()) return false;
    EXPECT_EQ(found->second.size(), page.size());
    std::ranges::copy(found->second, page.begin());
    ++memory_.num_read;
    return true;
  }

 private:
  PeerMemory& memory_;
  std::vector<PageKey> expected_;
};

// Those of this service: `forms` is its own.
struct PagesHere {
  PagesHere(const PageForms& forms, int peer_tokens, PeerMemory& memory,
            std::span<const TokenId> prompt)
      : page_bytes(static_cast<size_t>(forms.pages(forms.page_tokens()).page_bytes())),
        keys(PeerMemory::keys_of(forms, forms.page_tokens(), prompt)),
        pages(std::make_unique<PeerMemoryPages>(memory), forms, peer_tokens,
              {.name_space = kSpace, .prompt = prompt, .is_over = [] { return false; }}) {}

  // Reads pages from `first` on, until one does not come. Returns how many came.
  size_t read(size_t first, const PageForms& forms) {
    EXPECT_TRUE(pages.expect(std::span(keys).subspan(first), PageKind::page));
    Bytes page(page_bytes, std::byte{77});
    for (size_t i = first; i < keys.size(); ++i) {
      const Result<bool> found = pages.get(keys[i], page);
      EXPECT_TRUE(found.has_value());
      if (!*found) return i - first;
      const PageLayout layout = forms.pages(forms.page_tokens());
      EXPECT_EQ(page, page_of(layout, static_cast<int>(i) * layout.page_tokens(), 0, kLen)) << i;
    }
    return keys.size() - first;
  }
  size_t last_state() {
    std::vector<PageKey> states;
    for (const PageKey& key : keys) states.push_back(PageKeys::of_state(key));
    return pages.last_held(states).value();
  }
  // Returns the record behind that many pages; empty if it does not come.
  Bytes read_state(size_t num_pages, int64_t record_bytes) {
    const PageKey key = PageKeys::of_state(keys[num_pages - 1]);
    EXPECT_TRUE(pages.expect({&key, 1}, PageKind::state));
    Bytes record(static_cast<size_t>(record_bytes), std::byte{77});
    return pages.get(key, record).value() ? record : Bytes();
  }

  const size_t page_bytes;
  const std::vector<PageKey> keys;
  RegroupedPages pages;
};

constexpr Sizes kSizes[] = {{32, 64}, {64, 32}, {32, 128}, {128, 32}, {1, 32},
                            {32, 1},  {16, 64}, {64, 16},  {2, 8},    {8, 2}};

TEST(RegroupedPages, PagesOfOneSizeBecomeThoseOfAnother) {
  const std::vector<TokenId> prompt = prompt_of(kLen);
  for (const auto& [there, here] : kSizes) {
    SCOPED_TRACE(::testing::Message() << there << " to " << here);
    const PageForms forms(parts_of(here));
    PeerMemory memory;
    memory.add_pages(forms, there, prompt);
    EXPECT_EQ(PagesHere(forms, there, memory, prompt).read(0, forms),
              static_cast<size_t>(kLen / here));
    EXPECT_EQ(memory.num_read, kLen / there) << "each page is read once";
    // The first tokens are here already, and their border lies inside a page of the peer's.
    memory.num_read = 0;
    const auto first = static_cast<size_t>(160 / here);
    EXPECT_EQ(PagesHere(forms, there, memory, prompt).read(first, forms),
              static_cast<size_t>(kLen / here) - first);
    EXPECT_EQ(memory.num_read, kLen / there - static_cast<int>(first) * here / there);
  }
}

// A page of the peer's that is here already does not travel again.
TEST(RegroupedPages, ThePeerIsAskedForAsManyPagesAsFillTheBuffers) {
  const std::vector<TokenId> prompt = prompt_of(kLen);
  struct Case {
    int there = 0, here = 0;
    size_t at_first = 0, behind = 0;
  };
  for (const auto& [there, here, at_first, behind] :
       {Case{32, 64, 4, 8}, Case{128, 32, 1, 1}, Case{128, 64, 1, 2}}) {
    SCOPED_TRACE(::testing::Message() << there << " to " << here);
    const PageForms forms(parts_of(here));
    PeerMemory memory;
    memory.add_pages(forms, there, prompt);
    PagesHere mine(forms, there, memory, prompt);
    ASSERT_TRUE(mine.pages.expect(mine.keys, PageKind::page));
    mine.pages.note_room(2);
    EXPECT_EQ(memory.room, at_first);
    Bytes page(mine.page_bytes);
    ASSERT_TRUE(mine.pages.get(mine.keys.front(), page).value_or(false));
    mine.pages.note_room(4);
    EXPECT_EQ(memory.room, behind);
    mine.pages.note_room(1000);
    EXPECT_EQ(memory.room, memory.held.size() - static_cast<size_t>(memory.num_read));
  }
}

// The prompt ends inside a page of the peer's, or the peer has lost a page.
TEST(RegroupedPages, PagesComeAsFarAsThePeerHasAllOfTheirTokens) {
  const std::vector<TokenId> prompt = prompt_of(kLen - 20);
  for (const auto& [there, here] : kSizes) {
    SCOPED_TRACE(::testing::Message() << there << " to " << here);
    const PageForms forms(parts_of(here));
    PeerMemory memory;
    memory.add_pages(forms, there, prompt);
    EXPECT_EQ(PagesHere(forms, there, memory, prompt).read(0, forms),
              static_cast<size_t>((kLen - 20) / there * there / here));
    const auto lost = static_cast<size_t>(256 / there);
    memory.held.erase(PeerMemory::keys_of(forms, there, prompt)[lost]);
    EXPECT_EQ(PagesHere(forms, there, memory, prompt).read(0, forms),
              static_cast<size_t>(256 / here));
  }
}

TEST(RegroupedPages, APromptWithOtherTokensFindsWhatIsEqualBeforeThem) {
  std::vector<TokenId> other = prompt_of(kLen);
  other[200] = TokenId{1000};
  for (const auto& [there, here] : kSizes) {
    SCOPED_TRACE(::testing::Message() << there << " to " << here);
    const PageForms forms(parts_of(here));
    PeerMemory memory;
    memory.add_pages(forms, there, other);
    EXPECT_EQ(PagesHere(forms, there, memory, prompt_of(kLen)).read(0, forms),
              static_cast<size_t>(200 / there * there / here));
  }
}

// That of delta nets has the same bytes for every size.
TEST(RegroupedPages, AStateComesFromABorderOfBothSizes) {
  const std::vector<TokenId> prompt = prompt_of(kLen);
  PageForms::Parts parts = parts_of(128);
  parts.state_bytes = 40;
  const PageForms forms(parts);
  const Bytes state(40, std::byte{9});
  PeerMemory memory;
  const std::vector<PageKey> keys = PeerMemory::keys_of(forms, 32, prompt);
  memory.held[PageKeys::of_state(keys[7])] = state;       // behind 256 tokens
  memory.held[PageKeys::of_state(keys[10])] = Bytes(40);  // no page ends there here
  PagesHere pages(forms, 32, memory, prompt);
  EXPECT_EQ(pages.last_state(), 2u);
  EXPECT_EQ(pages.read_state(2, 40), state);
  EXPECT_EQ(pages.read_state(3, 40), Bytes());

  parts = parts_of(32);
  parts.state_bytes = 40;
  const PageForms small(parts);
  memory.held = {{PageKeys::of_state(PeerMemory::keys_of(small, 128, prompt)[1]), state}};
  PagesHere more(small, 128, memory, prompt);
  EXPECT_EQ(more.last_state(), 8u);
  EXPECT_EQ(more.read_state(8, 40), state);
  EXPECT_EQ(more.read_state(7, 40), Bytes()) << "that is inside a page of the peer's";
}

// A token of a window page that the peer's record lacks comes from an earlier record.
TEST(RegroupedPages, WindowsOfOneSizeBecomeThoseOfAnother) {
  const std::vector<TokenId> prompt = prompt_of(kLen);
  for (const int window : {2, 8, 100, 128, 300}) {
    for (const auto& [there, here] : kSizes) {
      for (const int border : {128, 384}) {
        SCOPED_TRACE(::testing::Message()
                     << there << " to " << here << ", " << window << " before " << border);
        const PageForms forms(with_window(here, window));
        PeerMemory memory;
        for (const int one : record_borders(border, window, there, here))
          memory.add_window(forms, there, one);
        PagesHere pages(forms, there, memory, prompt);
        const auto num_pages = static_cast<size_t>(border / here);
        EXPECT_EQ(pages.last_state(), num_pages);
        const Bytes got = pages.read_state(num_pages, forms.record_bytes(here));
        const Bytes want = PeerMemory::window_of(forms, here, border);
        EXPECT_TRUE(got == want);
        // The earliest record has been lost.
        const int last = record_borders(border, window, there, here).back();
        const std::vector<PageKey> keys = PeerMemory::keys_of(forms, there, prompt);
        memory.held.erase(PageKeys::of_state(keys[static_cast<size_t>(last / there) - 1]));
        EXPECT_EQ(pages.read_state(num_pages, forms.record_bytes(here)), Bytes());
      }
    }
  }
}

// A peer that computed the prompt for itself has one record at the prompt's last border.
TEST(RegroupedPages, ABorderCountsIfAllRecordsOfItsWindowAreThere) {
  constexpr int kWindow = 32;
  const std::vector<TokenId> prompt = prompt_of(kLen);
  const PageForms forms(with_window(32, kWindow));
  PeerMemory memory;
  memory.add_window(forms, 1, 384);
  PagesHere pages(forms, 1, memory, prompt);
  EXPECT_EQ(pages.last_state(), 0u);
  for (const int border : {128, 97}) memory.add_window(forms, 1, border);
  EXPECT_EQ(pages.last_state(), 4u);
  EXPECT_TRUE(pages.read_state(4, forms.record_bytes(32)) == PeerMemory::window_of(forms, 32, 128));
  memory.add_window(forms, 1, 353);
  EXPECT_EQ(pages.last_state(), 12u);
}

TEST(PageForms, FormsOfAllSizesDifferAndAreKnown) {
  const PageForms forms(with_window(32, 100)), other(with_window(64, 100));
  for (int tokens = 1; tokens <= PageLayout::kMaxTokens; tokens *= 2) {
    EXPECT_EQ(forms.size_of(forms.form(tokens)), tokens);
    EXPECT_EQ(forms.form(tokens), other.form(tokens)) << "whatever the size of one's own";
  }
  PageForms::Parts parts = with_window(32, 100);
  parts.bits = "another model";
  EXPECT_EQ(forms.size_of(PageForms(parts).form()), std::nullopt);
  EXPECT_EQ(forms.size_of(PageForms(with_window(32, 200)).form()), std::nullopt);
  EXPECT_EQ(forms.size_of(PageForms(parts_of(32)).form()), std::nullopt);
  for (const int64_t size : {int64_t{0}, int64_t{-32}, int64_t{48}, int64_t{256}})
    EXPECT_FALSE(PageForms::is_size(size)) << size;
}

TEST(PageForms, RecordsTogetherHaveEveryTokenOfALargerOne) {
  for (int window = 2; window < 300; window = window * 3 / 2 + 1)
    for (const auto& [there, here] : kSizes)
      for (int border = 128; border <= 1024; border += 128) {
        int begin = border;  // tokens from here on are in a record
        for (const int one : record_borders(border, window, there, here)) {
          ASSERT_GE(one, begin) << "no token between two records is missing";
          ASSERT_EQ(one % there, 0);
          begin = first_in_record(one, window, there);
        }
        ASSERT_LE(begin, first_in_record(border, window, here));
      }
}

}  // namespace
}  // namespace hocket
