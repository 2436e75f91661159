#include "engine/cache_tier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

// SGLang's limit of a wait, until the speed of prompts is known.
constexpr Duration kWaitAtFirst = std::chrono::seconds(1);
constexpr Duration kWaitPerToken = std::chrono::microseconds(250);

}  // namespace

Result<StoragePrefetch> parse_storage_prefetch(std::string_view name) {
  if (name == "best_effort") return StoragePrefetch::best_effort;
  if (name == "wait_complete") return StoragePrefetch::wait_complete;
  if (name == "timeout") return StoragePrefetch::timeout;
  return fail(error(ErrorCode::bad_value,
                    "--hicache-storage-prefetch-policy {} is not one of best_effort, "
                    "wait_complete, timeout",
                    name)
                  .with_param("hicache-storage-prefetch-policy")
                  .with_fix("--hicache-storage-prefetch-policy timeout"));
}

Result<StorageWrites> parse_storage_writes(std::string_view name) {
  if (name == "write_through") return StorageWrites::write_through;
  if (name == "write_through_selective") return StorageWrites::write_through_selective;
  return fail(error(ErrorCode::bad_value,
                    "--hicache-write-policy {} is not one of write_through, "
                    "write_through_selective{}",
                    name,
                    name == "write_back" ? "; pages that are written when they are evicted would "
                                           "be lost with the process"
                                         : "")
                  .with_param("hicache-write-policy")
                  .with_fix("--hicache-write-policy write_through"));
}

Result<std::unique_ptr<CacheTier>> CacheTier::create(Options options, PagePool& pages,
                                                     const BorderStates& states) {
  const TierBuffers sizes{.page_bytes = pages.page_bytes(),
                          .record_bytes = states.bytes(),
                          .max_record_bytes = options.max_record_bytes};
  std::array<Buffer, 4> memory;
  for (size_t i = 0; i < memory.size(); ++i) {
    HOCKET_TRY(memory[i], Buffer::allocate(i < 2 ? sizes.of_pages() : sizes.of_records()));
  }
  return std::unique_ptr<CacheTier>(
      new CacheTier(std::move(options), pages, states, sizes, std::move(memory)));
}

CacheTier::CacheTier(Options options, PagePool& pages, const BorderStates& states,
                     const TierBuffers& sizes, std::array<Buffer, 4> memory)
    : options_(std::move(options)),
      pages_(pages),
      states_(states),
      page_tokens_(static_cast<size_t>(options_.page_tokens)),
      speed_(options_.row_seconds),
      load_(options_.role),
      read_buffers_{{std::move(memory[0]), static_cast<size_t>(sizes.num_pages())},
                    {std::move(memory[2]), static_cast<size_t>(sizes.num_records())}},
      write_buffers_{{std::move(memory[1]), static_cast<size_t>(sizes.num_pages())},
                     {std::move(memory[3]), static_cast<size_t>(sizes.num_records())}},
      reads_(kMaxReads),
      done_(static_cast<size_t>(sizes.num_pages() + sizes.num_records()) + kMaxReads) {
  const size_t max_orders =
      static_cast<size_t>(sizes.num_pages() + sizes.num_records()) + PrefillWatch::kMax + 1;
  const auto add = [&](std::shared_ptr<PageStore> store) {
    if (store == nullptr) return;
    sources_.push_back(store.get());
    writers_.push_back(std::make_unique<Writer>(std::move(store), max_orders));
  };
  add(options_.files);
  add(options_.redis);
  if (options_.peers) sources_.push_back(options_.peers.get());
}

void CacheTier::start(const Clock& clock, std::function<void()> wake,
                      std::function<void(PageId)> restored) {
  clock_ = &clock;
  wake_ = std::move(wake);
  restored_ = std::move(restored);
  for (size_t i = 0; i < (options_.peers || options_.redis ? kReaders : 1); ++i)
    readers_.push_back(Thread({.name = "kv_read"}, [this] { run_reader(); }));
  for (const auto& writer : writers_)
    writer->thread =
        Thread({.name = "kv_write"}, [this, &writer = *writer] { run_writer(writer); });
}

// The key of a namespace's first page is derived from the form, so that a page is never found by a
// model, a layout or an arithmetic that it was not computed for.
PageHash CacheTier::root_of(const CacheNamespace& name_space) const {
  const PageHash name = root_hash(name_space);
  static_assert(sizeof(TokenId) == 4 && sizeof(PageHash) % sizeof(TokenId) == 0);
  std::array<TokenId, sizeof(PageHash) / sizeof(TokenId)> words{};
  std::memcpy(words.data(), name.data(), name.size());
  return PageHasher()(options_.form, words);
}

Duration CacheTier::time_to_compute(int num_tokens) const {
  if (!speed_.is_known()) return kWaitAtFirst + num_tokens * kWaitPerToken;
  return speed_.time_of(num_tokens);
}

// Returns the size of so many pages, with a state behind them.
int64_t CacheTier::bytes_of(int64_t num_pages) const {
  return num_pages * pages_.page_bytes() + states_.bytes();
}

// Returns true if computing promises to be faster than reading so many pages there.
bool CacheTier::is_dear(const PageSource& source, const ReadTask& task, size_t num_pages) const {
  return !(task.is_sent && source.computes()) && task.to_compute != Duration::max() &&
         source.time_to_read(bytes_of(static_cast<int64_t>(num_pages))) >= task.to_compute;
}

// Prompts that a peer computes take their turn: while the pool has no room for the pages of one
// beside those of others that are under way, it is not ordered.
bool CacheTier::has_no_room(int num_pages, const Scheduler& scheduler) const {
  return num_reserved_ > 0 && (reads_.size() == kMaxReads ||
                               scheduler.num_available_pages() < num_reserved_ + num_pages);
}

void CacheTier::release(TierRequest& known) {
  num_reserved_ -= std::exchange(known.num_reserved, 0);
}

bool CacheTier::ready(const Request& request, const Scheduler& scheduler) {
  TierRequest& known = requests_[request.id];
  if (!known.asked) {
    const int num_pages = static_cast<int>(request.tokens.size() / page_tokens_) + 1;
    const bool is_sent = may_send(request);
    if (is_sent && has_no_room(num_pages, scheduler)) return false;
    known.asked = true;
    known.task = request_pages(request, scheduler, is_sent);
    if (!known.task) return true;
    if (is_sent) num_reserved_ += known.num_reserved = num_pages;
    const auto num_tokens = static_cast<int>(known.task->num_whole) -
                            known.task->first * static_cast<int>(page_tokens_);
    known.may_take = time_to_compute(num_tokens);
  }
  if (!known.task) return true;
  if (options_.prefetch == StoragePrefetch::wait_complete || known.task->is_sent) return false;
  if (options_.prefetch == StoragePrefetch::best_effort) return true;
  // While other prompts are read, it waits for its turn; each of them has such a limit.
  const Duration begun{known.task->begun_ns.load()};
  if (begun == Duration::zero() || clock_->now() < TimePoint(begun) + known.may_take) return false;
  ++reads_done_.num_given_up;
  give_up(known);
  return true;
}

void CacheTier::give_up(TierRequest& known) {
  if (!known.task) return;
  known.task->given_up = true;
  known.task = nullptr;
}

std::shared_ptr<CacheTier::ReadTask> CacheTier::task_of(const CacheNamespace& name_space,
                                                        std::span<const TokenId> tokens,
                                                        size_t num_whole,
                                                        const Scheduler& scheduler) const {
  const auto whole = tokens.first(num_whole);
  auto task = std::make_shared<ReadTask>();
  task->name_space = name_space;
  task->prompt.assign(tokens.begin(), tokens.end());
  task->num_whole = num_whole;
  task->first = scheduler.in_tree_len(name_space, whole) / options_.page_tokens;
  task->num_cached = scheduler.cached_len(name_space, whole) / options_.page_tokens;
  return task;
}

std::shared_ptr<CacheTier::ReadTask> CacheTier::request_pages(const Request& request,
                                                              const Scheduler& scheduler,
                                                              bool is_sent) {
  const auto reusable = request.reusable_tokens();
  const auto whole = reusable.first(reusable.size() - reusable.size() % page_tokens_);
  const int num_cached = scheduler.cached_len(request.cache_namespace, whole);
  const int num_held = scheduler.in_tree_len(request.cache_namespace, whole);
  const int num_lacking = static_cast<int>(whole.size()) - num_cached;
  if (speed_.is_known() && !is_awaited(request.id))
    load_.note_prompt(speed_.time_of(num_lacking), scheduler.stats().num_running, clock_->now());
  if (num_lacking < kFewestTokens) return nullptr;
  const size_t num_pages = (whole.size() - static_cast<size_t>(num_held)) / page_tokens_;
  std::shared_ptr<ReadTask> task =
      task_of(request.cache_namespace, request.tokens, whole.size(), scheduler);
  task->request = request.id;
  task->peer = request.prefill_peer;
  task->is_sent = is_sent;
  if (options_.prefetch != StoragePrefetch::wait_complete && speed_.is_known())
    task->to_compute = speed_.time_of(num_lacking);
  const auto is_away = [](const PageSource* source) { return source->is_away(); };
  const auto is_needless = [&](const PageSource* source) {
    return source->is_away() || is_dear(*source, *task, num_pages);
  };
  std::optional<NotRead> why;
  if (std::ranges::all_of(sources_, is_away))
    why = NotRead::store_away;
  else if (std::ranges::all_of(sources_, is_needless))
    why = NotRead::expected_slower;
  else if (std::shared_ptr<ReadTask> handed = task; !reads_.push(handed))
    why = NotRead::queue_full;
  if (why) note_not_read(*why);
  return why ? nullptr : task;
}

// Counts a prompt whose pages are not read, and says so the first time.
void CacheTier::note_not_read(NotRead why) {
  if (reads_done_.num_not_read[static_cast<size_t>(why)]++ > 0) return;
  if (why == NotRead::expected_slower)
    log::info(
        "stored prefixes: a prompt is computed, because reading its pages is expected to take "
        "longer; kv_file_not_read_prompts_total counts these prompts");
  if (why == NotRead::queue_full)
    log::warning(
        "stored prefixes: {} prompts wait for their pages, so further ones are computed; "
        "kv_file_not_read_prompts_total counts them. To mend it: a faster disk or network",
        kMaxReads);
}

bool CacheTier::restore(const SessionTokens& session, const Scheduler& scheduler,
                        std::function<void()> done) {
  std::shared_ptr<ReadTask> task =
      task_of(session.name_space, session.tokens,
              session.tokens.size() / page_tokens_ * page_tokens_, scheduler);
  task->at_end = std::move(done);
  return reads_.push(task);
}

void CacheTier::process_io(Scheduler& scheduler) {
  if (late_may_go_.exchange(false)) write_late(scheduler);
  std::vector<Read> run;  // neighbouring pages of one task
  while (auto read = done_.pop()) {
    const bool follows = read->kind == Kind::page && !run.empty() &&
                         run.back().task == read->task && run.back().tier == read->tier;
    if (!follows) restore_pages(scheduler, run);
    if (read->kind == Kind::page) {
      run.push_back(*std::move(read));
    } else if (read->kind == Kind::state) {
      restore_state(scheduler, *read);
    } else {
      for (auto& [id, known] : requests_)
        if (known.task == read->task) known.task = nullptr;
      if (read->task->at_end) read->task->at_end();
    }
  }
  restore_pages(scheduler, run);
}

// Empties `run`. If there is no room, or the tree has changed, the rest of the task is given up.
void CacheTier::restore_pages(Scheduler& scheduler, std::vector<Read>& run) {
  if (run.empty()) return;
  ReadTask& task = *run.front().task;
  const size_t end = (static_cast<size_t>(run.back().index) + 1) * page_tokens_;
  size_t num_new = 0;
  const bool restored =
      scheduler.restore(task.name_space, std::span<const TokenId>(task.prompt).first(end),
                        static_cast<int>(run.size()), [&](std::span<const PageId> pages) {
                          num_new = pages.size();
                          const auto last = std::span(run).last(pages.size());
                          for (size_t i = 0; i < pages.size(); ++i) {
                            pages_.load_page(read_buffers_.pages.of(last[i].buffer), pages[i]);
                            restored_(pages[i]);
                          }
                        });
  if (!restored) task.given_up = true;
  const auto tier = static_cast<size_t>(run.front().tier);
  reads_done_.num_tokens[tier] += num_new * page_tokens_;
  if (speed_.is_known())
    reads_done_.saved_ns[tier] += speed_.time_of(static_cast<int>(num_new * page_tokens_)).count();
  if (const auto known = requests_.find(task.request); known != requests_.end())
    known->second.fetched[tier] += static_cast<int>(num_new * page_tokens_);
  for (const Read& page : run) HOCKET_CHECK(read_buffers_.pages.free.push(BufferId{page.buffer}));
  run.clear();
}

void CacheTier::restore_state(Scheduler& scheduler, const Read& state) {
  const ReadTask& task = *state.task;
  const auto tokens =
      std::span<const TokenId>(task.prompt).first(static_cast<size_t>(state.index) * page_tokens_);
  states_.restore(scheduler, task.name_space, tokens, read_buffers_.states.of(state.buffer));
  HOCKET_CHECK(read_buffers_.states.free.push(BufferId{state.buffer}));
}

void CacheTier::note_step(const Batch& batch, Duration took) {
  const bool has_prompts = batch.num_answers() < std::ssize(batch.slices);
  if (has_prompts) {
    speed_.note(batch.num_rows, took);
    row_seconds_ = to_seconds(speed_.time_of(1));
  }
  if (batch.num_answers() > 0)
    has_prompts ? load_.note_mixed_step(clock_->now()) : load_.note_answers(took, clock_->now());
}

void CacheTier::end_prefills() {
  if (options_.prefills) options_.prefills->end_all();
}

// Finds the keys of the whole pages of `tokens` that are not known yet.
void CacheTier::hash_pages(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                           TierRequest& known) const {
  const size_t num_pages = tokens.size() / page_tokens_;
  known.hashes.reserve(num_pages);
  while (known.hashes.size() < num_pages) {
    const PageHash before = known.hashes.empty() ? root_of(name_space) : known.hashes.back();
    const size_t begin = known.hashes.size() * page_tokens_;
    known.hashes.push_back(hash_page_(before, tokens.subspan(begin, page_tokens_)));
  }
}

ByTier<int> CacheTier::fetched(RequestId id) const {
  const auto known = requests_.find(id);
  return known != requests_.end() ? known->second.fetched : ByTier<int>{};
}

void CacheTier::forget(RequestId id) {
  const auto known = requests_.find(id);
  if (known == requests_.end()) return end_awaited(id);
  give_up(known->second);
  release(known->second);
  known->second.ended = true;
  if (known->second.late) return;
  end_awaited(id);
  requests_.erase(known);
}

CacheTierStats CacheTier::stats() const {
  CacheTierStats stats{.left_out_total = left_out_.counts(),
                       .reads_given_up_total = reads_done_.num_given_up};
  for (size_t i = 0; i < stats.not_read_total.size(); ++i)
    stats.not_read_total[i] = reads_done_.num_not_read[i];
  for (const PageSource* source : sources_) {
    const auto at = static_cast<size_t>(source->tier());
    PageTierStats& tier = stats.tiers[at];
    tier = {.away = source->is_away(),
            .pages_read_total = reads_done_.num_pages[at],
            .tokens_total = reads_done_.num_tokens[at],
            .read_seconds_total = 1e-9 * static_cast<double>(reads_done_.read_ns[at]),
            .saved_seconds_total = 1e-9 * static_cast<double>(reads_done_.saved_ns[at])};
    stats.pages_read_total += tier.pages_read_total;
    stats.read_seconds_total += tier.read_seconds_total;
  }
  for (const auto& writer : writers_) {
    const PageStore::Figures figures = writer->store->figures();
    PageTierStats& tier = stats.tiers[static_cast<size_t>(writer->store->tier())];
    tier.pages_written_total = writer->num_written;
    tier.damaged_total = figures.damaged_total;
    tier.failures_total = figures.failures_total;
    stats.pages_written_total += tier.pages_written_total;
    stats.damaged_total += figures.damaged_total;
    if (writer->store != options_.files) continue;
    stats.files = figures.pages;
    stats.bytes = figures.bytes;
    stats.evicted_total = figures.evicted_total;
  }
  if (options_.peers) {
    const PeerCounts& peers = options_.peers->counts();
    stats.tiers[static_cast<size_t>(PageTier::peer)].failures_total = peers.failures;
    stats.peer_pages_total = peers.pages;
    stats.peer_prefills_total = peers.prefills;
    stats.peer_failures_total = peers.failures;
  }
  if (options_.served) {
    stats.served_pages_total = options_.served->pages;
    stats.served_prefills_total = options_.served->prefills;
    stats.served_refused_total = options_.served->refused;
  }
  return stats;
}

}  // namespace hocket
