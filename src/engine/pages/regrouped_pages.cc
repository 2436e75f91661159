#include "engine/pages/regrouped_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

std::vector<PageKey> keys_of(const PageForms& forms, int page_tokens, const PagesWanted& wanted) {
  std::vector<PageKey> keys;
  PageKeys(forms.form(page_tokens), static_cast<size_t>(page_tokens))
      .append_to(wanted.name_space, wanted.prompt, keys);
  return keys;
}

PageLayout windows_of(const PageForms& forms, int page_tokens) {
  return forms.keeps_windows() ? forms.windows(page_tokens) : PageLayout();
}

}  // namespace

RegroupedPages::RegroupedPages(std::unique_ptr<PromptPages> peer, const PageForms& forms,
                               int peer_tokens, const PagesWanted& wanted)
    : peer_(std::move(peer)),
      here_(forms.pages(forms.page_tokens())),
      there_(forms.pages(peer_tokens)),
      keeps_windows_(forms.keeps_windows()),
      windows_here_(windows_of(forms, forms.page_tokens())),
      windows_there_(windows_of(forms, peer_tokens)),
      window_tokens_(forms.window_tokens()),
      peer_tokens_(peer_tokens),
      record_bytes_(static_cast<size_t>(forms.record_bytes(peer_tokens))),
      keys_(keys_of(forms, forms.page_tokens(), wanted)),
      peer_keys_(keys_of(forms, peer_tokens, wanted)) {}

std::optional<RegroupedPages::Place> RegroupedPages::find(const PageKey& key) const {
  if (const auto page = std::ranges::find(keys_, key); page != keys_.end())
    return Place{.index = static_cast<size_t>(page - keys_.begin()), .kind = PageKind::page};
  const auto state = std::ranges::find(keys_, key, PageKeys::of_state);
  if (state == keys_.end()) return std::nullopt;
  return Place{.index = static_cast<size_t>(state - keys_.begin()), .kind = PageKind::state};
}

// Returns the key of the peer's page that holds the last token of a page of this service, or of the
// peer's state at that border; nullopt: the peer can have none.
std::optional<PageKey> RegroupedPages::peer_key(const Place& place) const {
  const int end = end_of(place.index);
  const auto page = static_cast<size_t>((end - 1) / peer_tokens_);
  if (page >= peer_keys_.size()) return std::nullopt;
  if (place.kind == PageKind::page) return peer_keys_[page];
  if (end % peer_tokens_ != 0) return std::nullopt;
  return PageKeys::of_state(peer_keys_[page]);
}

Result<size_t> RegroupedPages::last_held(std::span<const PageKey> keys) {
  if (keys.empty()) return 0;
  const std::optional<Place> first = find(keys.front());
  HOCKET_CHECK((first.has_value() && first->index + keys.size() <= keys_.size()));
  std::vector<PageKey> asked;
  std::vector<size_t> counts;  // how many of `keys` there are up to each of `asked`
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto key = peer_key({.index = first->index + i, .kind = first->kind});
    if (!key) continue;
    asked.push_back(*key);
    counts.push_back(i + 1);
  }
  while (true) {
    HOCKET_TRY(const size_t held, peer_->last_held(asked));
    if (held == 0) return 0;
    const size_t count = counts[held - 1];
    if (first->kind == PageKind::page) return count;
    HOCKET_TRY(const bool is_whole, has_earlier_records(end_of(first->index + count - 1)));
    if (is_whole) return count;
    asked.resize(held - 1);
  }
}

// Returns whether the peer has what the record behind `border` here takes beside the peer's own
// record there. A peer that computed the prompt for none but itself may lack it.
Result<bool> RegroupedPages::has_earlier_records(int border) {
  if (!keeps_windows_) return true;
  for (const int at : record_borders(border, window_tokens_, peer_tokens_, here_tokens())) {
    if (at == border) continue;
    const PageKey key = record_key(at);
    HOCKET_TRY(const size_t held, peer_->last_held({&key, 1}));
    if (held == 0) return false;
  }
  return true;
}

Result<void> RegroupedPages::expect(std::span<const PageKey> keys, PageKind kind) {
  expected_.clear();
  num_got_ = 0;
  held_ = SIZE_MAX;
  if (keys.empty()) return {};
  const std::optional<Place> first = find(keys.front());
  HOCKET_CHECK((first.has_value() && first->kind == kind));
  for (size_t i = 0; i < keys.size(); ++i)
    expected_.push_back({.index = first->index + i, .kind = kind});
  if (kind == PageKind::state) return {};  // get() asks for the records of each
  const auto last = static_cast<size_t>((end_of(expected_.back().index) - 1) / peer_tokens_);
  const auto asked =
      std::span<const PageKey>(peer_keys_).first(std::min(last + 1, peer_keys_.size()));
  const auto begin = static_cast<size_t>((end_of(first->index) - here_tokens()) / peer_tokens_);
  return peer_->expect(asked.subspan(std::min(begin, asked.size())), kind);
}

// Counts the peer's pages that hold the tokens of those pages, without the one that is here.
void RegroupedPages::note_room(size_t num_pages) {
  const size_t end = std::min(num_got_ + num_pages, expected_.size());
  if (num_got_ >= end || expected_[num_got_].kind == PageKind::state) return peer_->note_room(1);
  const auto first =
      static_cast<size_t>((end_of(expected_[num_got_].index) - here_tokens()) / peer_tokens_);
  const auto last = static_cast<size_t>((end_of(expected_[end - 1].index) - 1) / peer_tokens_);
  peer_->note_room(last + 1 - first - (held_ == first ? 1 : 0));
}

Result<bool> RegroupedPages::get(const PageKey& key, std::span<std::byte> page) {
  if (num_got_ == expected_.size()) return false;
  const auto [index, kind] = expected_[num_got_];
  if (key != (kind == PageKind::page ? keys_[index] : PageKeys::of_state(keys_[index])))
    return false;
  HOCKET_TRY(const bool found,
             kind == PageKind::page ? get_page(index, page) : get_state(end_of(index), page));
  num_got_ = found ? num_got_ + 1 : expected_.size();
  return found;
}

Result<bool> RegroupedPages::get_page(size_t index, std::span<std::byte> page) {
  std::ranges::fill(page, std::byte{0});
  const int end = end_of(index), begin = end - here_tokens();
  for (int token = begin; token < end;) {
    const auto source = static_cast<size_t>(token / peer_tokens_);
    if (source >= peer_keys_.size()) return false;
    if (held_ != source) {
      held_ = SIZE_MAX;
      page_.resize(static_cast<size_t>(there_.page_bytes()));
      HOCKET_TRY(const bool found, peer_->get(peer_keys_[source], page_));
      if (!found) return false;
      held_ = source;
    }
    const int from = token % peer_tokens_;
    const int count = std::min(peer_tokens_ - from, end - token);
    copy_tokens(there_, page_, here_, page, {.from = from, .to = token - begin, .count = count});
    token += count;
  }
  return true;
}

PageKey RegroupedPages::record_key(int border) const {
  return PageKeys::of_state(peer_keys_[static_cast<size_t>(border / peer_tokens_) - 1]);
}

Result<bool> RegroupedPages::fetch_record(int border, std::span<std::byte> record) {
  const PageKey key = record_key(border);
  HOCKET_TRY_VOID(peer_->expect({&key, 1}, PageKind::state));
  return peer_->get(key, record);
}

Result<bool> RegroupedPages::get_state(int border, std::span<std::byte> record) {
  if (border % peer_tokens_ != 0 || border > std::ssize(peer_keys_) * peer_tokens_) return false;
  if (!keeps_windows_) return fetch_record(border, record);
  std::ranges::fill(record, std::byte{0});
  record_.resize(record_bytes_);
  int end = border;  // tokens from here on are there
  for (const int at : record_borders(border, window_tokens_, peer_tokens_, here_tokens())) {
    HOCKET_TRY(const bool found, fetch_record(at, record_));
    if (!found) return false;
    take_windows(at, end, border, record);
    end = first_in_record(at, window_tokens_, peer_tokens_);
  }
  return true;
}

// Copies the tokens before `end` of record_, which is the peer's behind record_border, into the
// record behind `border`.
void RegroupedPages::take_windows(int record_border, int end, int border,
                                  std::span<std::byte> record) const {
  const int from_begin = first_in_record(record_border, window_tokens_, peer_tokens_);
  const int to_begin = first_in_record(border, window_tokens_, here_tokens());
  const auto from_bytes = static_cast<size_t>(windows_there_.page_bytes());
  const auto to_bytes = static_cast<size_t>(windows_here_.page_bytes());
  for (int token = std::max(from_begin, to_begin); token < end;) {
    const int from = token - from_begin, to = token - to_begin;
    TokenMove move{.from = from % peer_tokens_, .to = to % here_tokens()};
    move.count = std::min({peer_tokens_ - move.from, here_tokens() - move.to, end - token});
    const auto source = std::span<const std::byte>(record_).subspan(
        static_cast<size_t>(from / peer_tokens_) * from_bytes, from_bytes);
    const auto target =
        record.subspan(static_cast<size_t>(to / here_tokens()) * to_bytes, to_bytes);
    copy_tokens(windows_there_, source, windows_here_, target, move);
    token += move.count;
  }
}

}  // namespace hocket
