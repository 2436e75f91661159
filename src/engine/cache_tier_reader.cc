// The reading of pages for requests that wait: from stores, then from peers.
#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/cache_tier.h"

namespace hocket {
namespace {

constexpr auto kReaderWait = std::chrono::milliseconds(100);

}  // namespace

PageHash CacheTier::hash_of_state(const PageHash& page) {
  static constexpr std::array<TokenId, 1> kMark = {TokenId{-1}};  // no page has such a token
  return PageHasher()(page, kMark);
}

bool CacheTier::wait_for_buffer(const Read& next, BufferId& buffer) {
  while (!end_.has_begun && !next.task->given_up) {
    if (const auto free = read_buffers_.of(next.kind).free.wait_pop(kReaderWait)) {
      buffer = *free;
      return true;
    }
  }
  return false;
}

// A request that nobody waits for any more ends its reading with an error, too.
void CacheTier::fail_reading(Reading& reading, const Error& why) {
  if (reading.task->given_up || end_.has_begun) return;
  reading.source->report(why, "prefixes are computed anew");
  reading.failed = true;
}

// Reads one page or state and hands it over. Returns false if it is not there, or the task ends.
bool CacheTier::read_one(Reading& reading, Read next, const PageHash& key) {
  if (!wait_for_buffer(next, next.buffer)) return false;
  PageBuffers& buffers = read_buffers_.of(next.kind);
  const std::span<std::byte> bytes = buffers.of(next.buffer);
  const TimePoint begin = clock_->now();
  const Result<bool> found = reading.from->get(key, bytes);
  if (!found) fail_reading(reading, found.error());
  if (!found || !*found) {
    HOCKET_CHECK(buffers.free.push(BufferId{next.buffer}));
    return false;
  }
  const Duration took = clock_->now() - begin;
  next.tier = reading.source->tier();
  const auto tier = static_cast<size_t>(next.tier);
  reads_done_.read_ns[tier] += took.count();
  reads_done_.num_pages[tier] += next.kind == Kind::page ? 1 : 0;
  reading.source->note_read(std::ssize(bytes), took);
  reading.source->note_success();
  hand_over(std::move(next));
  return true;
}

// The mailbox is full only while the engine's thread is busy with a long step.
void CacheTier::hand_over(Read read) {
  while (!end_.has_begun && !done_.push(read)) std::this_thread::sleep_for(kReaderWait);
  wake_();
}

// Returns the pages of the longest beginning, of at most `num_pages`, whose state is there; the one
// that is there already if none is longer.
size_t CacheTier::last_state(Reading& reading, size_t num_pages) {
  if (num_pages <= reading.state) return reading.state;
  std::vector<PageHash> keys;
  for (size_t i = reading.state; i < num_pages; ++i) keys.push_back(hash_of_state(reading.keys[i]));
  const auto held = reading.from->last_held(keys);
  if (held) return reading.state + *held;
  fail_reading(reading, held.error());
  return reading.state;
}

// Returns false if the task's pages are all there, or need not be looked for.
bool CacheTier::read_pages(Reading& reading) {
  size_t num_wanted = reading.keys.size();
  if (states_.enabled() && !(reading.task->is_sent && reading.source->computes()))
    num_wanted = last_state(reading, num_wanted);
  if (num_wanted <= reading.end) return states_.enabled() && num_wanted > reading.state;
  const auto wanted = std::span<const PageHash>(reading.keys).first(num_wanted);
  if (auto asked = reading.from->expect(wanted.subspan(reading.end), PageKind::page); !asked) {
    fail_reading(reading, asked.error());
    return false;
  }
  while (
      reading.end < wanted.size() &&
      !is_dear(*reading.source, *reading.task, wanted.size() - reading.end) &&
      read_one(reading,
               {.task = reading.task, .kind = Kind::page, .index = static_cast<int>(reading.end)},
               wanted[reading.end]))
    ++reading.end;
  return true;
}

void CacheTier::read_from(PageSource& source, Reading& reading) {
  ReadTask& task = *reading.task;
  const auto is_over = [&] { return task.given_up || end_.has_begun.load(); };
  reading.source = &source;
  uint64_t tried = 0;
  for (int i = 0; i < source.num_tries() && !is_over(); ++i) {
    auto from = source.open({.name_space = task.name_space,
                             .prompt = task.prompt,
                             .peer = i == 0 ? task.peer : -1,
                             .computes = task.is_sent,
                             .tried = &tried,
                             .is_over = is_over});
    if (!from) return fail_reading(reading, from.error());
    if (*from == nullptr) return;
    reading.from = from->get();
    reading.failed = false;
    if (read_pages(reading) && !reading.failed && states_.enabled()) {
      const size_t state = last_state(reading, reading.end);
      if (state > reading.state &&
          reading.from->expect({&(reading.state_key = hash_of_state(reading.keys[state - 1])), 1},
                               PageKind::state) &&
          read_one(reading,
                   {.task = reading.task, .kind = Kind::state, .index = static_cast<int>(state)},
                   reading.state_key))
        reading.state = state;
    }
    // Another peer may have what this one lacks; one that computes prompts has brought all that it
    // can.
    const bool is_all = is_done(reading) || (task.is_sent && source.computes());
    if (!reading.failed && (is_all || is_dear(source, task, reading.keys.size() - reading.end)))
      return;
  }
}

bool CacheTier::is_done(const Reading& reading) const {
  return (states_.enabled() ? reading.state : reading.end) == reading.keys.size();
}

void CacheTier::read_all(const std::shared_ptr<ReadTask>& task) {
  Reading reading{.task = task,
                  .keys = std::vector<PageHash>(task->num_whole / page_tokens_),
                  .end = static_cast<size_t>(task->first),
                  .state = static_cast<size_t>(task->num_cached)};
  const PageHasher hash_page;
  for (size_t i = 0; i < reading.keys.size(); ++i)
    reading.keys[i] =
        hash_page(i == 0 ? root_of(task->name_space) : reading.keys[i - 1],
                  std::span<const TokenId>(task->prompt).subspan(i * page_tokens_, page_tokens_));
  const auto is_slow = [&](const PageSource& source) {
    return is_dear(source, *task, reading.keys.size() - reading.end);
  };
  task->begun_ns = clock_->now().time_since_epoch().count();
  bool slow = false;  // a source promises to take longer than computing
  for (PageSource* source : sources_) {
    if (is_done(reading) || source->is_away()) continue;
    if (!is_slow(*source)) read_from(*source, reading);
    slow |= !is_done(reading) && is_slow(*source);
  }
  if (slow && !task->given_up) note_not_read(NotRead::expected_slower);
}

void CacheTier::run_reader() {
  while (!end_.has_begun) {
    auto task = reads_.wait_pop(kReaderWait);
    if (!task) continue;
    read_all(*task);
    hand_over({.task = *task});
  }
}

}  // namespace hocket
