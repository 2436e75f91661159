#include "engine/pages/page_reader.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/pages/page_keys.h"

namespace hocket {
namespace {

constexpr auto kReaderWait = std::chrono::milliseconds(100);

}  // namespace

// A task as one thread at a time works on it.
class PageReader::TaskProgress {
 public:
  TaskProgress(PageReader& reader, std::shared_ptr<ReadTask> task)
      : reader_(reader), task_(*task), shared_(std::move(task)) {}
  ~TaskProgress() { return_spare(); }  // those of a task that an exception ended
  TaskProgress(const TaskProgress&) = delete;
  TaskProgress& operator=(const TaskProgress&) = delete;
  void read_stores();
  // Returns true if a peer is to compute what lacks behind that.
  bool is_for_peers() const;
  void read_peers() { read_sources(true); }
  const std::shared_ptr<ReadTask>& task() const { return shared_; }

 private:
  void read_sources(bool that_compute);
  bool is_needless(const PageSource& source) const {
    return is_complete() || source.is_away() || is_sent_for_little(source);
  }
  bool has_states() const { return reader_.options_.state_bytes > 0; }
  bool is_over() const {
    return task_.given_up || reader_.stopping_ ||
           (task_.until != TimePoint::max() && reader_.clock_->now() >= task_.until);
  }
  bool is_computed_by(const PageSource& source) const { return task_.is_sent && source.computes(); }
  // Returns how many of the pages are of use: those behind the last border have no state.
  size_t num_useful() const {
    const size_t spacing = std::max(reader_.options_.border_tokens, reader_.options_.page_tokens);
    const size_t border = keys_.size() * reader_.options_.page_tokens / spacing * spacing;
    return has_states() ? border / reader_.options_.page_tokens : keys_.size();
  }
  // Returns how many of them lack.
  size_t num_lacking() const {
    return num_useful() - std::min(num_useful(), has_states() ? state_ : end_);
  }
  bool is_complete() const { return num_lacking() == 0; }
  // Returns true if a peer would compute the whole prompt for fewer tokens than are worth a wait.
  bool is_sent_for_little(const PageSource& source) const {
    return is_computed_by(source) &&
           num_lacking() * reader_.options_.page_tokens < reader_.options_.min_sent_tokens;
  }
  bool is_slow(const PageSource& source) const {
    return reader_.is_slower_than_computing(source, task_, keys_.size() - end_);
  }
  void read_from(PageSource& source);
  bool read_pages();
  void read_last_state();
  bool read_one(ReadPage next, const PageKey& key, size_t num_pages);
  size_t last_state(size_t num_pages);
  bool wait_for_buffer(ReadPage& next);
  void take_spare(size_t num_pages);
  void return_spare();
  Result<bool> get(const PageKey& key, std::span<std::byte> bytes);
  void note_failure(const Error& why);

  PageReader& reader_;
  ReadTask& task_;
  const std::shared_ptr<ReadTask> shared_;  // task_
  std::vector<PageKey> keys_;
  size_t end_ = 0;    // the first page that is not delivered yet
  size_t state_ = 0;  // pages of the longest beginning whose state is there
  PageKey state_key_{};
  PageSource* source_ = nullptr;
  PromptPages* pages_ = nullptr;        // those of the source
  std::vector<PageBuffers::Id> spare_;  // for pages that a peer may send behind the next one
  bool failed_ = false;
};

bool PageReader::TaskProgress::wait_for_buffer(ReadPage& next) {
  if (next.kind == PageKind::page && !spare_.empty() && !is_over()) {
    next.buffer = spare_.back();
    spare_.pop_back();
    return true;
  }
  while (!is_over()) {
    if (const auto free = reader_.buffers_.of(*next.kind).free.wait_pop(kReaderWait)) {
      next.buffer = *free;
      return true;
    }
  }
  return false;
}

// Takes free buffers for the next pages, so that a peer may send them at once; half of all stay for
// other tasks. A peer that computes takes long, so its pages come one by one.
void PageReader::TaskProgress::take_spare(size_t num_pages) {
  if (source_->tier() != PageTier::peer || is_computed_by(*source_) || !spare_.empty()) return;
  PageBuffers& buffers = reader_.buffers_.pages;
  spare_.reserve(buffers.count());
  while (spare_.size() < num_pages && buffers.is_half_free()) {
    const auto free = buffers.free.pop();
    if (!free) return;
    spare_.push_back(*free);
  }
}

void PageReader::TaskProgress::return_spare() {
  for (const PageBuffers::Id id : spare_)
    HOCKET_CHECK(reader_.buffers_.pages.free.push(PageBuffers::Id{id}));
  spare_.clear();
}

// If no request waits for the pages any more, reading ends with an error, too.
void PageReader::TaskProgress::note_failure(const Error& why) {
  if (is_over()) return;
  source_->report(why, "prefixes are computed again");
  failed_ = true;
}

// An exception is an error here, so that the page's buffer is returned.
Result<bool> PageReader::TaskProgress::get(const PageKey& key, std::span<std::byte> bytes) {
  try {
    return pages_->get(key, bytes);
  } catch (const std::exception& e) {
    return fail(error(ErrorCode::out_of_memory, "a page cannot be read: {}", e.what())
                    .with_fix("give the process more memory, or lower what it may use"));
  }
}

// Reads one page or state and delivers it. Returns false if it is not there, or the task ends.
// num_pages: those that the source was asked for from this one on; of a state 0.
bool PageReader::TaskProgress::read_one(ReadPage next, const PageKey& key, size_t num_pages) {
  take_spare(num_pages);
  if (!wait_for_buffer(next)) return false;
  if (num_pages > 0) pages_->note_room(1 + spare_.size());
  PageBuffers& buffers = reader_.buffers_.of(*next.kind);
  const std::span<std::byte> bytes = buffers.of(next.buffer);
  const TimePoint begin = reader_.clock_->now();
  const Result<bool> found = get(key, bytes);
  if (!found) note_failure(found.error());
  if (!found || !*found) {
    HOCKET_CHECK(buffers.free.push(PageBuffers::Id{next.buffer}));
    return false;
  }
  const Duration took = std::max(reader_.clock_->now() - begin, pages_->time_ahead());
  next.tier = source_->tier();
  AtomicCounts<PageTierCounters>& counts = reader_.figures_.tiers[static_cast<size_t>(next.tier)];
  if (next.kind == PageKind::page) counts.add(&PageTierCounters::pages_read_total);
  counts.add(&PageTierCounters::read_bytes_total, bytes.size());
  // The time of a page that is computed meanwhile says nothing of the speed of reading.
  if (!is_computed_by(*source_)) {
    counts.add(&PageTierCounters::read_seconds_total, to_seconds(took));
    source_->note_read(std::ssize(bytes), took);
  }
  source_->note_success();
  reader_.deliver(std::move(next));
  return true;
}

// Returns the pages of the longest beginning, of at most `num_pages`, whose state is there; the one
// that is there already if none is longer.
size_t PageReader::TaskProgress::last_state(size_t num_pages) {
  if (num_pages <= state_) return state_;
  std::vector<PageKey> keys;
  for (size_t i = state_; i < num_pages; ++i) keys.push_back(PageKeys::of_state(keys_[i]));
  const auto held = pages_->last_held(keys);
  if (held) return state_ + *held;
  note_failure(held.error());
  return state_;
}

// Returns false if the task's pages are all there, need not be looked for, or the source can be
// asked for no state any more.
bool PageReader::TaskProgress::read_pages() {
  size_t num_wanted = num_useful();
  if (has_states() && !is_computed_by(*source_)) num_wanted = last_state(num_wanted);
  if (num_wanted <= end_) return has_states() && num_wanted > state_;
  const auto wanted = std::span<const PageKey>(keys_).first(num_wanted);
  if (auto asked = pages_->expect(wanted.subspan(end_), PageKind::page); !asked) {
    note_failure(asked.error());
    return false;
  }
  for (; end_ < wanted.size(); ++end_) {
    // Pages that a peer was asked for come before its answer to any other question.
    if (reader_.is_slower_than_computing(*source_, task_, wanted.size() - end_))
      return source_->tier() != PageTier::peer;
    if (!read_one({.task = shared_, .kind = PageKind::page, .index = static_cast<int>(end_)},
                  wanted[end_], wanted.size() - end_))
      break;
  }
  return true;
}

void PageReader::TaskProgress::read_last_state() {
  const size_t state = last_state(end_);
  if (state <= state_) return;
  state_key_ = PageKeys::of_state(keys_[state - 1]);
  if (pages_->expect({&state_key_, 1}, PageKind::state) &&
      read_one({.task = shared_, .kind = PageKind::state, .index = static_cast<int>(state)},
               state_key_, 0))
    state_ = state;
}

void PageReader::TaskProgress::read_from(PageSource& source) {
  source_ = &source;
  uint64_t tried = 0;
  for (int i = 0; i < source.num_tries() && !is_over(); ++i) {
    auto pages = source.open({.name_space = task_.name_space,
                              .prompt = task_.prompt,
                              .keys = keys_,
                              .peer = i == 0 ? task_.peer : -1,
                              .computes = task_.is_sent,
                              .tried = &tried,
                              .is_over = [this] { return is_over(); }});
    if (!pages) return note_failure(pages.error());
    if (*pages == nullptr) return;
    pages_ = pages->get();
    failed_ = false;
    const bool may_ask = read_pages();
    return_spare();
    if (may_ask && !failed_ && has_states()) read_last_state();
    // Another peer may have the pages that this one lacks; one that computes prompts has brought
    // all that it can.
    const bool is_all = is_complete() || is_computed_by(source);
    if (!failed_ && (is_all || is_slow(source))) return;
  }
}

void PageReader::TaskProgress::read_stores() {
  end_ = static_cast<size_t>(task_.first);
  state_ = static_cast<size_t>(task_.num_cached);
  PageKeys(reader_.options_.form, reader_.options_.page_tokens)
      .append_to(task_.name_space, std::span(task_.prompt).first(task_.num_whole), keys_);
  task_.begun_ns = reader_.clock_->now().time_since_epoch().count();
  read_sources(false);
}

bool PageReader::TaskProgress::is_for_peers() const {
  return !is_over() &&
         std::ranges::any_of(reader_.options_.sources, [this](const PageSource* source) {
           return is_computed_by(*source) && !is_needless(*source);
         });
}

void PageReader::TaskProgress::read_sources(bool that_compute) {
  bool slow = false;  // a source promises to take longer than computing
  for (PageSource* source : reader_.options_.sources) {
    if (is_computed_by(*source) != that_compute || is_needless(*source)) continue;
    if (!is_slow(*source)) read_from(*source);
    slow |= !is_complete() && is_slow(*source);
  }
  if (slow && !task_.given_up)
    reader_.figures_.note_not_read(UnreadReason::expected_slower, kMaxTasks);
}

PageReader::PageReader(Options options, TransferBuffers::Memory memory, ReadFigures& figures)
    : options_(std::move(options)),
      figures_(figures),
      buffers_(std::move(memory)),
      tasks_(kMaxTasks),
      sent_(kMaxTasks + kThreads),  // each of these may have one when the others wait there
      read_(buffers_.count() + kMaxTasks) {}

void PageReader::start(const Clock& clock, std::function<void()> wake) {
  clock_ = &clock;
  wake_ = std::move(wake);
  for (size_t i = 0; i < (options_.waits_for_networks ? kThreads : 1); ++i)
    threads_.push_back(Thread({.name = "kv_read"}, [this] { run(); }));
  for (size_t i = 0; i < options_.num_senders; ++i)
    threads_.push_back(Thread({.name = "kv_await"}, [this] { run_sent(); }));
}

void PageReader::stop() {
  stopping_ = true;
  tasks_.close();
  sent_.close();
  for (Thread& thread : threads_) thread.join();
}

void PageReader::release(const ReadPage& page) {
  HOCKET_CHECK(buffers_.of(*page.kind).free.push(PageBuffers::Id{page.buffer}));
}

bool PageReader::is_slower_than_computing(const PageSource& source, const ReadTask& task,
                                          size_t num_pages) const {
  if ((task.is_sent && source.computes()) || task.to_compute == Duration::max()) return false;
  const int64_t bytes =
      static_cast<int64_t>(num_pages) * options_.page_bytes + options_.state_bytes;
  return source.time_to_read(bytes) >= task.to_compute;
}

// The mailbox is full only while the engine's thread is busy with a long step.
void PageReader::deliver(ReadPage page) {
  while (!stopping_ && !read_.push(page)) std::this_thread::sleep_for(kReaderWait);
  wake_();
}

void PageReader::run() {
  while (!stopping_) {
    auto task = tasks_.wait_pop(kReaderWait);
    if (!task) continue;
    HOCKET_CHECK((!task->is_sent || options_.num_senders > 0));
    if (std::shared_ptr<TaskProgress> rest = read(task)) {
      // It is refused at the end alone, when nobody waits for it.
      static_cast<void>(sent_.push(std::move(rest)));
    } else {
      deliver({.task = std::move(task)});
    }
  }
}

void PageReader::run_sent() {
  while (!stopping_) {
    const auto progress = sent_.wait_pop(kReaderWait);
    if (!progress) continue;
    guard([&] { (*progress)->read_peers(); });
    deliver({.task = (*progress)->task()});
  }
}

// Reads from all sources but peers that compute. Returns what remains for these; null: nothing.
std::shared_ptr<PageReader::TaskProgress> PageReader::read(const std::shared_ptr<ReadTask>& task) {
  std::shared_ptr<TaskProgress> rest;
  guard([&] {
    const auto progress = std::make_shared<TaskProgress>(*this, task);
    progress->read_stores();
    if (progress->is_for_peers()) rest = progress;
  });
  return rest;
}

// The caller hands the task over also after an exception, since a rank waits for its end.
void PageReader::guard(const std::function<void()>& reading) {
  try {
    reading();
  } catch (const std::exception& e) {
    if (const auto num_more = exceptions_.admit(RealClock().now()))
      log::warning(
          "stored prefixes: the pages of a prompt cannot be read ({}), so it is computed again ({} "
          "more since the last such line). To fix it: give the process more memory, or lower "
          "what it may use",
          e.what(), *num_more);
  }
}

}  // namespace hocket
