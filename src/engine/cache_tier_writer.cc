// The writing of pages and states to stores: behind the steps, for sessions that are saved, and
// late where they found no buffer.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/cache_tier.h"
#include "engine/pages/saved_speed.h"

namespace hocket {
namespace {

constexpr auto kWriterWait = std::chrono::milliseconds(100);
constexpr auto kSpeedSavesApart = std::chrono::seconds(60);

}  // namespace

// Copied pages are written before the end, so that a restart finds them.
CacheTier::~CacheTier() {
  end_.until = RealClock().now() + kMaxEnd;
  end_.has_begun = true;
  reads_.close();
  for (const auto& writer : writers_) writer->orders.close();
  for (Thread& reader : readers_) reader.join();
  for (const auto& writer : writers_) {
    if (writer->thread.joinable()) writer->thread.join();
    if (writer->num_given_up > 0)
      log::warning(
          "stored prefixes: at shutdown, {} pages or states were not written within {:.0f} s ({}) "
          "and are lost from the store. To mend it: look at the store's disk or network",
          writer->num_given_up, to_seconds(kMaxEnd),
          kPageTierNames[static_cast<size_t>(writer->store->tier())]);
  }
  if (num_late_ > 0)
    log::warning(
        "stored prefixes: at shutdown, pages or states of {} requests had found no buffer and are "
        "lost from the store. To mend it: a faster disk or network",
        num_late_.load());
}

// Returns a bit for each writer whose store is not known to have the page. Asks all of them, since
// that counts as a use.
unsigned CacheTier::stores_lacking(const PageKey& key) const {
  unsigned lacking = 0;
  for (size_t i = 0; i < writers_.size(); ++i)
    lacking |= writers_[i]->store->has(key) ? 0 : 1U << i;
  return lacking;
}

// Counts pages and states that are not written, and says so from time to time.
void CacheTier::leave_out(size_t count, LeftOut why) {
  const bool takes = std::ranges::any_of(
      writers_, [](const auto& writer) { return writer->store->takes_writes(); });
  left_out_.count_and_warn(why, count, takes, clock_->now());
}

// Has `fill` copy a page or a state to a buffer for the stores that lack it.
CacheTier::Copied CacheTier::write_one(Kind kind, const PageKey& key,
                                       const std::function<void(std::span<std::byte>)>& fill) {
  const unsigned lacking = stores_lacking(key);
  unsigned taking = 0;
  for (size_t i = 0; i < writers_.size(); ++i)
    taking |= writers_[i]->store->takes_writes() ? lacking & 1U << i : 0;
  if (lacking == 0) return Copied::yes;
  if (taking == 0) return Copied::no_store;
  PageBuffers& buffers = write_buffers_.of(kind);
  const auto buffer = buffers.free.pop();
  if (!buffer) return Copied::no_buffer;
  fill(buffers.of(*buffer));
  buffers.share(*buffer, std::popcount(taking));
  left_out_.count(LeftOut::store_away, taking == lacking ? 0 : 1);
  for (size_t i = 0; i < writers_.size(); ++i)
    if ((taking >> i & 1U) != 0)
      HOCKET_CHECK(writers_[i]->orders.push({.kind = kind, .key = key, .buffer = *buffer}));
  return Copied::yes;
}

// Copies those pages to buffers that stores lack, from the first that is not written on.
CacheTier::NotCopied CacheTier::write_pages(std::span<const PageId> pages, TierRequest& known) {
  // From the last page to the first: the file used last is the one that others build on.
  std::vector<size_t> lacking;
  for (size_t i = pages.size(); i > known.num_written; --i)
    if (stores_lacking(known.hashes[i - 1]) != 0) lacking.push_back(i - 1);
  for (; !lacking.empty(); lacking.pop_back()) {
    const size_t next = lacking.back();
    const Copied copied =
        write_one(Kind::page, known.hashes[next],
                  [&](std::span<std::byte> bytes) { pages_.save_page(pages[next], bytes); });
    if (copied != Copied::yes) {
      known.num_written = next;
      return {lacking.size(), copied};
    }
  }
  known.num_written = pages.size();
  return {};
}

// Copies the state behind that many pages to a buffer.
CacheTier::Copied CacheTier::write_state(size_t num_pages, std::span<const int> places,
                                         const TierRequest& known) {
  return write_one(Kind::state, hash_of_state(known.hashes[num_pages - 1]),
                   [&](std::span<std::byte> bytes) { states_.save(places, bytes); });
}

void CacheTier::write_or_leave_state(const Request& request, TierRequest& known, size_t num_pages,
                                     std::span<const int> places) {
  const Copied copied = write_state(num_pages, places, known);
  if (copied == Copied::yes) return;
  if (Late* late = late_of(request, known))
    late->states.push_back(num_pages);
  else if (copied == Copied::no_store || !delay_state(request, num_pages, known))
    leave_out({1, copied});
}

// Pages behind one that is not written are not read, so those that find no buffer wait for one.
// Returns false if too many requests wait.
bool CacheTier::delay_pages(const Request& request, size_t num_pages, TierRequest& known) {
  if (!known.late && num_late_ >= kMaxLate) return false;
  make_late(request, num_pages, known).num_pages = num_pages;
  return true;
}

// A prompt that comes again goes on behind one of its last states, so these wait for a buffer.
// Returns false if too many requests wait.
bool CacheTier::delay_state(const Request& request, size_t num_pages, TierRequest& known) {
  if (!known.late && num_late_ >= kMaxLate) return false;
  std::vector<size_t>& states = make_late(request, num_pages, known).states;
  states.push_back(num_pages);
  if (known.late->is_awaited || states.size() <= kMaxLateStates) return true;
  states.erase(states.begin());
  leave_out(1, LeftOut::no_buffer);
  return true;
}

// Writes the windows that stores lack: where the same prompt would go on, where its next turn
// would, and at regular intervals before that, so that a prompt that branches off finds one near.
// Ends of chunks get none.
void CacheTier::write_windows(const Request& request, TierRequest& known,
                              const Scheduler& scheduler) {
  const size_t interval = states_.interval_pages(), end = num_to_write(request);
  const auto write_at = [&](size_t num_pages) {
    const size_t len = num_pages * page_tokens_;
    if (len < kFewestTokens || stores_lacking(hash_of_state(known.hashes[num_pages - 1])) == 0)
      return;
    const auto places =
        states_.find(scheduler, request.cache_namespace, std::span(request.tokens).first(len));
    if (!places.empty()) write_or_leave_state(request, known, num_pages, places);
  };
  if (end <= known.num_pages_with_windows_written) return;
  const auto prompt_len = static_cast<size_t>(request.prompt_len);
  const size_t same_prompt = (prompt_len - 1) / page_tokens_, prompt = prompt_len / page_tokens_;
  const size_t found = static_cast<size_t>(request.cached_len) / page_tokens_;
  if (known.num_pages_with_windows_written < same_prompt && same_prompt < end)
    write_at(same_prompt);
  if (end >= prompt || end == found) write_at(end);
  for (size_t border = known.num_pages_with_windows_written / interval * interval + interval;
       border <= end; border += interval)
    write_at(border);
  known.num_pages_with_windows_written = end;
}

// Returns the place for what is late; null if nobody waits for the request's pages.
CacheTier::Late* CacheTier::late_of(const Request& request, TierRequest& known) {
  if (is_quiet() || !is_awaited(request.id)) return nullptr;
  const auto num_pages = static_cast<size_t>(request.leased_pages);
  Late& late = make_late(request, num_pages, known);
  late.is_awaited = true;
  late.num_pages = num_pages;
  return &late;
}

CacheTier::Late& CacheTier::make_late(const Request& request, size_t num_pages,
                                      TierRequest& known) {
  if (!known.late) {
    known.late.emplace();
    ++num_late_;
  }
  late_may_go_ = true;  // a buffer may have got free meanwhile
  known.late->name_space = request.cache_namespace;
  num_pages = std::max(num_pages, known.late->tokens.size() / page_tokens_);
  known.late->tokens.assign(
      request.tokens.begin(),
      request.tokens.begin() + static_cast<ptrdiff_t>(num_pages * page_tokens_));
  return *known.late;
}

// Returns how many of the request's first pages are to be written.
size_t CacheTier::num_to_write(const Request& request) const {
  const auto num_pages = static_cast<size_t>(request.leased_pages);
  if (options_.writes == StorageWrites::write_through || is_awaited(request.id)) return num_pages;
  return std::min(num_pages, static_cast<size_t>(request.cached_len) / page_tokens_);
}

// A state that a second request goes on from is written with the pages before it.
void CacheTier::write_found_state(const Request& request, TierRequest& known) {
  const StateLease& found = request.states.leased;
  if (options_.writes == StorageWrites::write_through || !found || found.len() == 0 ||
      found.len() > request.cached_len)
    return;
  const size_t num_pages = static_cast<size_t>(found.len()) / page_tokens_;
  const Copied copied = write_state(num_pages, std::array{found.slot()}, known);
  if (copied != Copied::yes) leave_out({1, copied});
}

void CacheTier::on_pages_cached(const Request& request, const Scheduler& scheduler) {
  if (const auto known = requests_.find(request.id); known != requests_.end())
    release(known->second);
  if (writers_.empty()) return;
  TierRequest& known = requests_[request.id];
  hash_pages(
      request.cache_namespace,
      std::span(request.tokens).first(static_cast<size_t>(request.leased_pages) * page_tokens_),
      known);
  const std::span<const PageId> pages = std::span(request.pages).first(num_to_write(request));
  const NotCopied left = write_pages(pages, known);
  write_found_state(request, known);
  if (states_.keeps_windows()) write_windows(request, known, scheduler);
  if (left.count == 0 || late_of(request, known) != nullptr) return;
  if (left.why == Copied::no_buffer && delay_pages(request, pages.size(), known)) return;
  leave_out(left);
  known.num_written = pages.size();
}

void CacheTier::on_state_cached(const Request& request, int len, int slot) {
  if (writers_.empty() || num_to_write(request) * page_tokens_ < static_cast<size_t>(len)) return;
  TierRequest& known = requests_[request.id];
  const size_t num_pages = static_cast<size_t>(len) / page_tokens_;
  HOCKET_CHECK(num_pages > 0u);
  hash_pages(request.cache_namespace, std::span(request.tokens).first(static_cast<size_t>(len)),
             known);
  write_or_leave_state(request, known, num_pages, std::array{slot});
}

void CacheTier::write_late(const Scheduler& scheduler) {
  for (auto at = requests_.begin(); at != requests_.end();) {
    auto& [id, known] = *at;
    const bool done = known.late && write_late(id, known, scheduler);
    const bool leaves = done && known.ended;
    if (done) known.late.reset(), --num_late_;
    if (leaves) end_awaited(id, std::move(known.saved));
    at = leaves ? requests_.erase(at) : std::next(at);
  }
}

// Returns true if nothing of the request is late any more.
bool CacheTier::write_late(RequestId id, TierRequest& known, const Scheduler& scheduler) {
  Late& late = *known.late;
  const bool gives_up = late.is_awaited && (is_quiet() || (!known.saved && !is_awaited(id)));
  const LeftOut why = late.is_awaited && is_quiet() ? LeftOut::store_away : LeftOut::late;
  if (late.num_pages > known.num_written) {
    const auto tokens = std::span(late.tokens).first(late.num_pages * page_tokens_);
    const auto pages =
        gives_up ? std::vector<PageId>() : scheduler.pages_in_tree(late.name_space, tokens);
    NotCopied left;
    if (pages.size() > known.num_written) left = write_pages(pages, known);
    if (left.count > 0 && (late.is_awaited || left.why == Copied::no_buffer)) return false;
    leave_out(late.num_pages - std::min(late.num_pages, known.num_written),
              left.count > 0 ? LeftOut::store_away : why);
    known.num_written = late.num_pages;
  }
  for (; !late.states.empty(); late.states.pop_back()) {
    const size_t len = late.states.back() * page_tokens_;
    const auto places =
        gives_up ? BorderStates::Places()
                 : states_.find(scheduler, late.name_space, std::span(late.tokens).first(len));
    const Copied copied =
        places.empty() ? Copied::no_store : write_state(late.states.back(), places, known);
    const bool may_come = late.is_awaited && !places.empty();
    if (copied == Copied::no_buffer || (copied == Copied::no_store && may_come)) return false;
    leave_out(copied == Copied::no_store ? 1 : 0, places.empty() ? why : LeftOut::store_away);
  }
  return true;
}

// Says that no page of the request, or of what is saved, is to come, behind the writes of its last
// ones.
void CacheTier::end_awaited(RequestId id, std::function<void()> saved) {
  if (!saved && !is_awaited(id)) return;
  WriteTask end{.kind = Kind::end, .ended = id, .saved = std::move(saved)};
  if (writers_.empty() || !writers_.front()->orders.push(end)) end_order(end);
}

// The last pages of a session, and its states, may have been evicted from memory while files have
// them, or be gone from both. So the files are looked through when all is written.
void CacheTier::save(const SessionTokens& session, const Scheduler& scheduler,
                     std::function<void(int num_pages, bool whole)> done) {
  TierRequest& known = requests_[RequestId{next_save_--}];
  hash_pages(session.name_space, session.tokens, known);
  known.ended = true;
  const auto held = static_cast<size_t>(scheduler.in_tree_len(session.name_space, session.tokens));
  known.late = {
      .is_awaited = true,
      .name_space = session.name_space,
      .tokens = {session.tokens.begin(), session.tokens.begin() + static_cast<ptrdiff_t>(held)},
      .num_pages = held / page_tokens_};
  const bool has_states = states_.enabled();
  const size_t state =
      has_states ? static_cast<size_t>(scheduler.cached_len(session.name_space, session.tokens)) /
                       page_tokens_
                 : 0;
  if (state > 0) known.late->states.push_back(state);
  known.saved = [files = options_.files, pages = known.hashes, num_held = held / page_tokens_,
                 has_states, state, done = std::move(done)] {
    const auto there = files->exist(pages);
    auto num_pages =
        there ? static_cast<size_t>(std::ranges::find(*there, false) - there->begin()) : 0;
    bool whole = num_pages >= num_held;
    const auto has_state = [&](const PageHash& page) {
      const PageKey key = hash_of_state(page);
      const auto found = files->exist({&key, 1});
      return found && found->front();
    };
    while (has_states && num_pages > 0 && !has_state(pages[num_pages - 1])) --num_pages;
    if (has_states) whole &= num_pages >= state;
    done(static_cast<int>(num_pages), whole);
  };
  ++num_late_;
  late_may_go_ = true;
  wake_();
}

void CacheTier::run_writer(Writer& writer) {
  const size_t most = writer.store == options_.files ? 1 : kMaxAtOnce;
  std::vector<WriteTask> pages;
  const auto write_pages = [&] {
    if (!pages.empty()) write(writer, pages);
    pages.clear();
  };
  while (true) {
    auto next = pages.empty() ? writer.orders.wait_pop(kWriterWait) : writer.orders.pop();
    if (next && next->kind != Kind::end) {
      pages.push_back(*std::move(next));
      if (pages.size() == most) write_pages();
      continue;
    }
    write_pages();
    if (next)
      end_order(*next);
    else if (end_.has_begun && writer.orders.size() == 0)
      return;
  }
}

// Saves the speed of prompts beside their pages, for the next start. One that cannot be saved is
// only measured again.
void CacheTier::save_speed() {
  const TimePoint now = RealClock().now();
  if (row_seconds_ == 0 || now < next_speed_save_) return;
  next_speed_save_ = now + kSpeedSavesApart;
  static_cast<void>(options_.files->run<bool>(
      [folder = options_.files->folder(), row_seconds = row_seconds_.load()] {
        return Result<bool>(save_row_seconds(folder, row_seconds));
      }));
}

void CacheTier::end_order(const WriteTask& task) {
  return task.saved ? task.saved() : options_.prefills->end(task.ended);
}

void CacheTier::write(Writer& writer, std::span<const WriteTask> orders) {
  std::vector<PageStore::Page> pages;
  for (const WriteTask& task : orders)
    pages.push_back({task.key, write_buffers_.of(task.kind).of(task.buffer)});
  PageStore& store = *writer.store;
  const bool takes = store.takes_writes() && !end_.is_over();
  const Result<size_t> written =
      takes ? store.put(pages, [this] { return end_.is_over(); }) : Result<size_t>(0);
  const size_t num_written = written.value_or(0);
  LeftOut why = takes ? LeftOut::write_failed : LeftOut::store_away;
  if (num_written < pages.size() && end_.is_over()) {
    why = LeftOut::shutdown;
    writer.num_given_up += pages.size() - num_written;
  } else if (!written) {
    store.rest_writes();
    store.report(written.error(), fmt::format("no prefix is written there for {:.0f} s",
                                              to_seconds(PageStore::kRest)));
  } else if (num_written > 0) {
    store.note_success();
  }
  writer.num_written += num_written;
  if (writer.store == options_.files && num_written > 0) save_speed();
  left_out_.count(why, pages.size() - num_written);
  for (const WriteTask& task : orders) write_buffers_.of(task.kind).release(task.buffer);
  if (options_.prefills) options_.prefills->note_page();
  // Steps in flight end before late pages are copied, so many are copied at once, while the other
  // half is written.
  if (num_late_ > 0 &&
      (writer.orders.size() == 0 || write_buffers_.of(orders.back().kind).is_half_free())) {
    late_may_go_ = true;
    wake_();
  }
}

}  // namespace hocket
