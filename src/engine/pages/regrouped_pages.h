// The pages of a prompt at a peer whose pages have another size, as pages of this service.
//
//   here, 64 tokens     |           0           |           1           |
//   peer, 32 tokens     |     0     |     1     |     2     |     3     |
//
// The peer is asked for its own pages, by the chain of keys that they have there, so every token of
// the prompt up to a page's end is compared as for pages of one size. A page comes if the peer has
// all pages that hold its tokens. A state comes if the border that it is behind is one for both.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/pages/page_forms.h"
#include "engine/pages/page_keys.h"
#include "engine/pages/page_source.h"

namespace hocket {

class RegroupedPages final : public PromptPages {
 public:
  // `peer` has the prompt of `wanted` in pages of `peer_tokens`. forms: those of this service.
  // Memory: two keys a page of the prompt; a page and a record of the peer, once they are read.
  RegroupedPages(std::unique_ptr<PromptPages> peer, const PageForms& forms, int peer_tokens,
                 const PagesWanted& wanted);

  // As PromptPages. A window takes several records of a peer with smaller pages; last_held() counts
  // it if the peer has all of them.
  Result<size_t> last_held(std::span<const PageKey> keys) override;
  Result<void> expect(std::span<const PageKey> keys, PageKind kind) override;
  void note_room(size_t num_pages) override;
  Result<bool> get(const PageKey& key, std::span<std::byte> page) override;

 private:
  struct Place {
    size_t index = 0;  // the page's, or that of the page before the state
    PageKind kind{};
  };
  std::optional<Place> find(const PageKey& key) const;
  int here_tokens() const { return here_.page_tokens(); }
  int end_of(size_t index) const { return static_cast<int>(index + 1) * here_tokens(); }
  std::optional<PageKey> peer_key(const Place& place) const;
  Result<bool> get_page(size_t index, std::span<std::byte> page);
  Result<bool> get_state(int border, std::span<std::byte> record);
  Result<bool> has_earlier_records(int border);
  // Returns the peer's key of the state behind `border`, an end of a page there.
  PageKey record_key(int border) const;
  Result<bool> fetch_record(int border, std::span<std::byte> record);
  void take_windows(int record_border, int end, int border, std::span<std::byte> record) const;

  const std::unique_ptr<PromptPages> peer_;
  const PageLayout here_, there_;
  const bool keeps_windows_;
  const PageLayout windows_here_, windows_there_;  // without layers if no window is kept
  const int window_tokens_, peer_tokens_;
  const size_t record_bytes_;  // the peer's
  std::vector<PageKey> keys_, peer_keys_;
  std::vector<Place> expected_;           // in order
  size_t num_got_ = 0;                    // the first ones of expected_
  std::vector<std::byte> page_, record_;  // the peer's page and record that were read last
  size_t held_ = SIZE_MAX;                // index of the page in page_; SIZE_MAX: there is none
};

}  // namespace hocket
