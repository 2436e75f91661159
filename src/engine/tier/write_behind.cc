#include "engine/tier/write_behind.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/pages/page_forms.h"
#include "engine/tier/saved_pages.h"

namespace hocket {
namespace {

using CopyOutcome = PageWriter::CopyOutcome;

}  // namespace

WriteBehind::WriteBehind(const CacheTierOptions& options, PagePool& pages,
                         const BorderStates& states, PageWriter& writer)
    : options_(options),
      page_tokens_(static_cast<size_t>(options.page_tokens)),
      writer_(writer),
      states_(states),
      copier_(pages, states, writer),
      delayed_(copier_, page_tokens_),
      keys_(options.form, page_tokens_) {}

// Returns how many of the request's first pages are to be written.
size_t WriteBehind::num_to_write(const Request& request) const {
  const auto num_pages = static_cast<size_t>(request.leased_pages);
  if (options_.writes == StorageWrites::write_through || writer_.is_awaited(request.id))
    return num_pages;
  return std::min(num_pages, static_cast<size_t>(request.cached_len) / page_tokens_);
}

void WriteBehind::write_state(const Request& request, StoredRequest& stored, size_t num_pages,
                              std::span<const int> indices) {
  const CopyOutcome copied = copier_.copy_state(num_pages, indices, stored);
  if (copied == CopyOutcome::yes) return;
  if (DelayedPages* delayed = delayed_.delay_awaited(request, stored))
    delayed->states.push_back(num_pages);
  else if (copied == CopyOutcome::no_store || !delayed_.delay_state(request, num_pages, stored))
    copier_.leave_out({1, copied});
}

// A state that a second request continues from is written with the pages before it. If a peer
// awaits the prompt, it is written under every policy: a store may have deleted it, and a state for
// edits is in no store.
void WriteBehind::write_found_state(const Request& request, StoredRequest& stored) {
  const StateLease& found = request.states.leased;
  if (options_.writes == StorageWrites::write_through && !writer_.is_awaited(request.id)) return;
  if (!found || found.len() == 0 || found.len() > request.cached_len) return;
  const size_t num_pages = static_cast<size_t>(found.len()) / page_tokens_;
  const CopyOutcome copied = copier_.copy_state(num_pages, std::array{found.slot()}, stored);
  if (copied != CopyOutcome::yes) copier_.leave_out({1, copied});
}

// Returns the borders, in pages, behind `begin` and up to `end`, whose windows are written: where
// the same prompt would continue, where its next turn would, and at regular intervals before that,
// so that a prompt that branches off finds one near. Ends of chunks get none. For a peer with
// larger pages they are borders of its pages, too, and several records make one of its own.
std::vector<size_t> WriteBehind::window_borders(const Request& request, size_t begin,
                                                size_t end) const {
  const auto prompt_len = static_cast<size_t>(request.prompt_len);
  const size_t peer_tokens = std::max(page_tokens_, static_cast<size_t>(request.border_tokens));
  const size_t step = peer_tokens / page_tokens_;
  const size_t interval = (states_.interval_pages() + step - 1) / step * step;
  const size_t same_prompt = (prompt_len - 1) / peer_tokens * step;
  const size_t prompt = prompt_len / page_tokens_;
  const size_t found = static_cast<size_t>(request.cached_len) / page_tokens_;
  std::vector<size_t> borders;
  const auto add = [&](size_t num_pages, size_t tokens) {
    const size_t len = num_pages * page_tokens_;
    if (len < CacheTierOptions::kMinTokens) return;
    for (const int border :
         record_borders(static_cast<int>(len), states_.window_tokens(),
                        static_cast<int>(page_tokens_), static_cast<int>(tokens))) {
      const size_t one = static_cast<size_t>(border) / page_tokens_;
      if (std::ranges::find(borders, one) == borders.end()) borders.push_back(one);
    }
  };
  if (begin < same_prompt && same_prompt <= end) add(same_prompt, peer_tokens);
  if (end >= prompt || end == found) add(end, page_tokens_);
  for (size_t border = begin / interval * interval + interval; border <= end; border += interval)
    add(border, peer_tokens);
  return borders;
}

// Writes the windows that stores lack.
void WriteBehind::write_windows(const Request& request, StoredRequest& stored,
                                const Scheduler& scheduler) {
  const size_t written = stored.num_pages_with_windows_written, end = num_to_write(request);
  if (end <= written) return;
  for (const size_t num_pages : window_borders(request, written, end)) {
    if (writer_.stores_lacking(PageKeys::of_state(stored.keys[num_pages - 1])) == 0) continue;
    const auto indices = states_.find(scheduler, request.cache_namespace,
                                      std::span(request.tokens).first(num_pages * page_tokens_));
    if (!indices.empty()) write_state(request, stored, num_pages, indices);
  }
  stored.num_pages_with_windows_written = end;
}

// It is asked at each try to begin the request, so its keys are kept.
bool WriteBehind::lacks_windows(const Request& request, int border) {
  if (!states_.keeps_windows() || options_.files == nullptr || !writer_.is_awaited(request.id) ||
      border < CacheTierOptions::kMinTokens)
    return false;
  std::vector<PageKey>& keys = requests_[request.id].keys;
  keys_.append_to(request.cache_namespace,
                  std::span(request.tokens).first(static_cast<size_t>(border)), keys);
  return std::ranges::any_of(record_borders(border, states_.window_tokens(),
                                            static_cast<int>(page_tokens_), request.border_tokens),
                             [&](int one) {
                               const size_t num_pages = static_cast<size_t>(one) / page_tokens_;
                               return !options_.files->has(PageKeys::of_state(keys[num_pages - 1]));
                             });
}

void WriteBehind::on_pages_cached(const Request& request, const Scheduler& scheduler) {
  if (!writer_.has_stores()) return;
  if (!writer_.files_take_writes()) writer_.end_waiting(request.id);
  StoredRequest& stored = requests_[request.id];
  keys_.append_to(
      request.cache_namespace,
      std::span(request.tokens).first(static_cast<size_t>(request.leased_pages) * page_tokens_),
      stored.keys);
  const std::span<const PageId> pages = std::span(request.pages).first(num_to_write(request));
  const PageCopier::Rest rest = copier_.copy_pages(pages, stored);
  write_found_state(request, stored);
  if (states_.keeps_windows()) write_windows(request, stored, scheduler);
  if (rest.count == 0 || delayed_.delay_awaited(request, stored) != nullptr) return;
  if (rest.why == CopyOutcome::no_buffer && delayed_.delay_pages(request, pages.size(), stored))
    return;
  copier_.leave_out(rest);
  stored.num_written = pages.size();
}

void WriteBehind::on_state_cached(const Request& request, int len, int slot) {
  const auto num_tokens = static_cast<size_t>(len);
  if (!writer_.has_stores() || num_to_write(request) * page_tokens_ < num_tokens) return;
  StoredRequest& stored = requests_[request.id];
  const size_t num_pages = num_tokens / page_tokens_;
  HOCKET_CHECK(num_pages > 0u);
  keys_.append_to(request.cache_namespace, std::span(request.tokens).first(num_tokens),
                  stored.keys);
  write_state(request, stored, num_pages, std::array{slot});
}

void WriteBehind::copy_delayed(const Scheduler& scheduler, std::function<bool()> is_wanted) {
  for (const RequestId id : delayed_.copy(requests_, scheduler, std::move(is_wanted))) {
    const auto copied = requests_.find(id);
    if (!copied->second.has_ended) continue;
    writer_.end(id, std::move(copied->second.saved));
    requests_.erase(copied);
  }
}

void WriteBehind::save(const SessionTokens& session, const Scheduler& scheduler,
                       std::function<void(int num_pages, bool whole)> done) {
  const RequestId id{next_save_--};
  StoredRequest& stored = requests_[id];
  keys_.append_to(session.name_space, session.tokens, stored.keys);
  stored.has_ended = true;
  const auto held = static_cast<size_t>(scheduler.in_tree_len(session.name_space, session.tokens));
  DelayedPages pages{
      .is_awaited = true,
      .name_space = session.name_space,
      .tokens = {session.tokens.begin(), session.tokens.begin() + static_cast<ptrdiff_t>(held)},
      .num_pages = held / page_tokens_};
  const bool has_states = states_.enabled();
  const size_t state =
      has_states ? static_cast<size_t>(scheduler.cached_len(session.name_space, session.tokens)) /
                       page_tokens_
                 : 0;
  if (state > 0) pages.states.push_back(state);
  stored.saved = SavedPages{.files = options_.files,
                            .keys = stored.keys,
                            .num_held = held / page_tokens_,
                            .has_states = has_states,
                            .num_with_state = state,
                            .done = std::move(done)};
  delayed_.delay_saved(id, std::move(pages), stored);
}

void WriteBehind::forget(RequestId id) {
  const auto stored = requests_.find(id);
  if (stored == requests_.end()) return writer_.end(id, {});
  stored->second.has_ended = true;
  if (stored->second.delayed) return;
  writer_.end(id, {});
  requests_.erase(stored);
}

}  // namespace hocket
