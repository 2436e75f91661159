#include "engine/tier/page_prefetch.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hocket {
namespace {

constexpr int kStepsUnseen = 32;  // between two looks for a prompt that waits behind another one
constexpr auto kPeerTier = static_cast<size_t>(PageTier::peer);

}  // namespace

PagePrefetch::PagePrefetch(const CacheTierOptions& options, PagePool& pages,
                           const BorderStates& states, PageReader& reader, ReadFigures& figures)
    : options_(options),
      page_tokens_(static_cast<size_t>(options.page_tokens)),
      states_(states),
      reader_(reader),
      figures_(figures),
      times_({.row_seconds = options.row_seconds,
              .page_tokens = options.page_tokens,
              .page_bytes = pages.page_bytes(),
              .state_bytes = states.bytes()},
             reader),
      arrivals_(page_tokens_, pages, states, reader),
      load_(options.role) {}

void PagePrefetch::start(const Clock& clock, std::function<void(PageId)> restored) {
  clock_ = &clock;
  arrivals_.start(
      clock, std::move(restored),
      {.entered = [this](const ReadTask& task, PageTier tier, int begin,
                         int end) { note_entered(task, tier, begin, end); },
       .refused = [this](const ReadTask& task, Refusal why) { note_refusal(task, why); },
       .ended = [this](const ReadTask& task) { end_task(task); }});
}

Duration PagePrefetch::max_hold(int num_tokens, bool is_sent) const {
  if (!is_sent) return kMaxHold;
  return kMaxHold + (times_.knows_speed() ? kMaxPeerFactor * times_.to_compute(num_tokens)
                                          : num_tokens * kMaxPeerToken);
}

bool PagePrefetch::is_awaited(RequestId id) const {
  return options_.prefills && options_.prefills->is_watched(id);
}

// A prompt that is computed for a peer is sent to no other.
bool PagePrefetch::may_send(const Request& request) {
  return options_.peers && load_.sends_prompts(clock_->now()) && !is_awaited(request.id);
}

bool PagePrefetch::waits_for_room(const PrefetchedRequest& mine, const Request& request,
                                  int in_tree_len, const Scheduler& scheduler) {
  const int num_pages = num_pages_of(request);
  return turns_.waits({.id = request.id,
                       .num_pages = num_pages,
                       .num_lacking = num_pages - in_tree_len / options_.page_tokens,
                       .until = *mine.hold_until},
                      {.num_available = scheduler.num_available_pages(),
                       .has_requests = scheduler.stats().num_running > 0,
                       .takes_no_order = reader_.is_full()},
                      clock_->now());
}

// Returns true if the prompt need not be looked for in the tree now: it lacked pages, and another
// one waits for room before it. The tree may get them from others, so it is read at times: a look
// reads a whole prefix.
bool PagePrefetch::skips_look(PrefetchedRequest& mine, RequestId id) {
  const TimePoint now = clock_->now();
  if (mine.num_lacking < CacheTierOptions::kMinTokens || !turns_.is_behind(id, now) ||
      now >= *mine.hold_until)
    return false;
  return ++mine.num_unseen % kStepsUnseen != 0;
}

void PagePrefetch::release(PrefetchedRequest& request) {
  turns_.release(std::exchange(request.num_reserved, 0));
}

void PagePrefetch::give_up(PrefetchedRequest& request) {
  request.shared = nullptr;
  if (!request.task) return;
  request.task->given_up = true;
  request.task = nullptr;
}

bool PagePrefetch::ready(const Request& request, const Scheduler& scheduler) {
  PrefetchedRequest& mine = requests_[request.id];
  const bool is_new = !mine.asked;
  const bool is_held = !is_ready(mine, request, scheduler);
  const std::optional<PageWait> wait = is_held ? std::optional(wait_of(mine)) : std::nullopt;
  figures_.note_wait(std::exchange(mine.wait, wait), wait);
  if (is_held) return false;
  const int lacking = is_new ? mine.num_lacking : num_lacking(request, scheduler);
  mine.known_len = static_cast<int>(whole_pages(request).size()) - lacking;
  if (!std::exchange(mine.is_counted, true)) note_load(mine, request, scheduler);
  return true;
}

// A request that was retracted begins its prompt again, whose pages stores got when it was
// computed. One whose pages came in vain has them in stores, too.
bool PagePrefetch::waits_again(const Request& request, const Scheduler& scheduler) {
  const auto found = requests_.find(request.id);
  if (found == requests_.end()) return false;
  PrefetchedRequest& mine = found->second;
  const auto num_whole = static_cast<int>(whole_pages(request).size());
  int known_len = mine.known_len;
  if (mine.refusal != Refusal::no)
    known_len = num_whole;
  else if (request.num_retractions > 0)
    known_len =
        std::min(num_whole, request.prompt_len / options_.page_tokens * options_.page_tokens);
  if (mine.task || mine.num_again == kMaxAgain || known_len == 0) return false;
  const int held_len = num_whole - num_lacking(request, scheduler);
  if (!times_.are_worth_reading(known_len - held_len, scheduler.stats().num_running)) return false;
  ++mine.num_again;
  if (mine.has_begun) mine.fetched.clear();
  mine.counts_found = true;
  ask_again(mine);
  mine.hold_until.reset();
  return !ready(request, scheduler);
}

void PagePrefetch::ask_again(PrefetchedRequest& mine) {
  release(mine);
  mine.asked = false;
  mine.shared = nullptr;
  mine.refusal = Refusal::no;
  mine.num_lacking = mine.num_unseen = 0;
}

PageWait PagePrefetch::wait_of(const PrefetchedRequest& held) {
  const ReadTask* const task = held.task ? held.task.get() : held.shared.get();
  if (task == nullptr) return PageWait::room;
  return task->is_sent ? PageWait::peer : PageWait::store;
}

// Pages that were read are no load, but those that a peer computed are.
void PagePrefetch::note_load(PrefetchedRequest& mine, const Request& request,
                             const Scheduler& scheduler) {
  if (!times_.knows_speed() || is_awaited(request.id)) return;
  const PerTier<int> fetched = mine.fetched.within(static_cast<int>(request.tokens.size()));
  int num_computed = mine.num_lacking;
  for (size_t tier = 0; tier < fetched.size(); ++tier)
    if (tier != kPeerTier || !mine.is_sent) num_computed -= fetched[tier];
  load_.note_prompt(times_.to_compute(std::max(num_computed, 0)), scheduler.stats().num_running,
                    clock_->now());
}

// Finds the task of another request that brings most of the tokens which the tree lacks, if that
// many are worth a wait, and its turn is not behind this prompt's own. States come last, so in
// models that have them all of the other prompt has to be a beginning of this one.
bool PagePrefetch::shares_task(PrefetchedRequest& mine, const Request& request,
                               const HeldLens& held) const {
  const auto whole = whole_pages(request);
  mine.shared_end = held.in_tree + std::min(CacheTierOptions::kMinTokens, mine.num_lacking) - 1;
  if (mine.num_shared == kMaxShared) return false;
  mine.may_take = times_.to_compute(static_cast<int>(whole.size()) - held.in_tree);
  mine.ordered = clock_->now();
  for (const auto& [id, other] : requests_) {
    const std::shared_ptr<ReadTask>& task = other.task;
    if (!task || task->given_up || task->name_space != request.cache_namespace) continue;
    if (task->begun_ns == 0 && task->due > mine.ordered + mine.may_take) continue;
    if (task->is_sent ? !mine.is_sent : options_.prefetch == StoragePrefetch::best_effort) continue;
    const auto theirs = std::span<const TokenId>(task->prompt).first(task->num_whole);
    const auto common = std::ranges::mismatch(whole, theirs).in1 - whole.begin();
    const auto end = static_cast<int>(common) / options_.page_tokens * options_.page_tokens;
    if (end <= mine.shared_end || (states_.enabled() && std::cmp_less(end, theirs.size())))
      continue;
    mine.shared = task;
    mine.shared_end = end;
  }
  if (mine.shared) ++mine.num_shared;
  return mine.shared != nullptr;
}

// Orders the pages that the tree lacks, if there are enough and no other request has. Returns false
// if the prompt has to wait for room before that.
bool PagePrefetch::ask(PrefetchedRequest& mine, const Request& request,
                       const Scheduler& scheduler) {
  mine.is_sent = may_send(request);
  if (!mine.hold_until)
    mine.hold_until =
        clock_->now() + max_hold(static_cast<int>(request.tokens.size()), mine.is_sent);
  if (mine.is_sent && skips_look(mine, request.id)) return false;
  const HeldLens held = held_lens(request, scheduler);
  mine.num_lacking = static_cast<int>(whole_pages(request).size()) - held.cached;
  const int num_running = scheduler.stats().num_running;
  const bool is_wanted = times_.are_worth_reading(mine.num_lacking, num_running);
  mine.is_sent = mine.is_sent && mine.num_lacking >= CacheTierOptions::kMinTokens;
  const bool is_shared = is_wanted && shares_task(mine, request, held);
  if (is_wanted && !is_shared && mine.is_sent &&
      waits_for_room(mine, request, held.in_tree, scheduler))
    return false;
  turns_.leave(request.id);
  mine.asked = true;
  if (!is_wanted || is_shared) return true;
  // A prompt that is held is asked for outside of any limit of memory, on the engine's thread.
  try {
    mine.task = request_pages(request, held, mine);
  } catch (const std::bad_alloc&) {
    figures_.note_not_read(UnreadReason::no_memory, PageReader::kMaxTasks);
  }
  if (mine.task && mine.is_sent) turns_.reserve(mine.num_reserved = num_pages_of(request));
  return true;
}

bool PagePrefetch::is_ready(PrefetchedRequest& mine, const Request& request,
                            const Scheduler& scheduler) {
  const bool may_wait = !mine.hold_until || clock_->now() < *mine.hold_until;
  // The pool has room for the pages behind a gap, so they are read again at once.
  if (!mine.task && mine.refusal == Refusal::gap && mine.num_again < kMaxAgain && may_wait) {
    ++mine.num_again;
    ask_again(mine);
  }
  if (mine.shared && mine.shared->given_up) ask_again(mine);
  if (!mine.asked && !ask(mine, request, scheduler)) return false;
  const ReadTask* const awaited = mine.task ? mine.task.get() : mine.shared.get();
  if (awaited == nullptr) return true;
  if (!may_wait) {
    figures_.note_held_too_long(kMaxHold, awaited->is_sent);
  } else {
    if (options_.prefetch == StoragePrefetch::best_effort && !awaited->is_sent) return true;
    if (is_worth_waiting(mine, *awaited, scheduler)) return false;
  }
  ++figures_.num_given_up;
  give_up(mine);
  release(mine);
  return true;
}

// Returns true while reading takes no longer than computing would, or must be awaited in any case.
bool PagePrefetch::is_worth_waiting(const PrefetchedRequest& request, const ReadTask& task,
                                    const Scheduler& scheduler) const {
  if (options_.prefetch == StoragePrefetch::wait_complete || task.is_sent) return true;
  const Duration begun{task.begun_ns.load()};
  const TimePoint now = clock_->now();
  if (begun != Duration::zero())
    return now < std::max(TimePoint(begun), request.ordered) + request.may_take;
  // While others are read, each within such a limit, it waits for its turn. If nothing else is
  // computed, it is computed at last: one prompt, since the next one finds the engine busy.
  if (now < request.ordered + kMaxTurn * request.may_take) return true;
  const SchedulerStats stats = scheduler.stats();
  return stats.num_running + stats.num_waiting > 0;
}

std::shared_ptr<ReadTask> PagePrefetch::task_of(const CacheNamespace& name_space,
                                                std::span<const TokenId> tokens, size_t num_whole,
                                                const HeldLens& held) const {
  auto task = std::make_shared<ReadTask>();
  task->name_space = name_space;
  task->prompt.assign(tokens.begin(), tokens.end());
  task->num_whole = num_whole;
  task->first = held.in_tree / options_.page_tokens;
  task->num_cached = held.cached / options_.page_tokens;
  return task;
}

int PagePrefetch::num_pages_of(const Request& request) const {
  return static_cast<int>(request.tokens.size()) / options_.page_tokens + 1;
}

std::span<const TokenId> PagePrefetch::whole_pages(const Request& request) const {
  const auto reusable = request.reusable_tokens();
  return reusable.first(reusable.size() - reusable.size() % page_tokens_);
}

// Returns how many tokens of whole pages the cache lacks.
int PagePrefetch::num_lacking(const Request& request, const Scheduler& scheduler) const {
  const auto whole = whole_pages(request);
  return static_cast<int>(whole.size()) - scheduler.cached_len(request.cache_namespace, whole);
}

PagePrefetch::HeldLens PagePrefetch::held_lens(const Request& request,
                                               const Scheduler& scheduler) const {
  const auto whole = whole_pages(request);
  return {.cached = scheduler.cached_len(request.cache_namespace, whole),
          .in_tree = scheduler.in_tree_len(request.cache_namespace, whole)};
}

std::shared_ptr<ReadTask> PagePrefetch::request_pages(const Request& request, const HeldLens& held,
                                                      PrefetchedRequest& mine) {
  const auto whole = whole_pages(request);
  const int num_absent = static_cast<int>(whole.size()) - held.in_tree;
  const auto num_pages = static_cast<size_t>(num_absent / options_.page_tokens);
  std::shared_ptr<ReadTask> task =
      task_of(request.cache_namespace, request.tokens, whole.size(), held);
  task->request = request.id;
  task->peer = request.prefill_peer;
  task->is_sent = mine.is_sent;
  if (options_.prefetch != StoragePrefetch::wait_complete && times_.knows_speed())
    task->to_compute = times_.to_compute(mine.num_lacking);
  mine.may_take = times_.to_compute(num_absent);
  mine.ordered = clock_->now();
  task->due = mine.ordered + mine.may_take;
  std::optional<UnreadReason> why = times_.why_not_read(*task, num_pages);
  if (std::shared_ptr<ReadTask> ordered = task; !why && !reader_.add(ordered))
    why = UnreadReason::queue_full;
  if (why) figures_.note_not_read(*why, PageReader::kMaxTasks);
  return why ? nullptr : task;
}

bool PagePrefetch::restore(const SessionTokens& session, const Scheduler& scheduler,
                           TimePoint until, std::function<void()> done) {
  const size_t num_whole = session.tokens.size() / page_tokens_ * page_tokens_;
  const auto whole = std::span<const TokenId>(session.tokens).first(num_whole);
  std::shared_ptr<ReadTask> task =
      task_of(session.name_space, session.tokens, num_whole,
              {.cached = scheduler.cached_len(session.name_space, whole),
               .in_tree = scheduler.in_tree_len(session.name_space, whole)});
  task->at_end = std::move(done);
  task->until = until;
  const auto held_len = static_cast<size_t>(task->first) * page_tokens_;
  task->due = clock_->now() + times_.to_compute(static_cast<int>(task->num_whole - held_len));
  return reader_.add(task);
}

void PagePrefetch::end_task(const ReadTask& task) {
  for (auto& [id, request] : requests_) {
    if (request.task.get() == &task) request.task = nullptr;
    if (request.shared.get() == &task) ask_again(request);
  }
  if (task.at_end) task.at_end();
}

void PagePrefetch::note_entered(const ReadTask& task, PageTier tier, int begin, int end) {
  const auto request = requests_.find(task.request);
  if (begin < end && request != requests_.end()) request->second.fetched.add(tier, begin, end);
  if (states_.enabled()) return;
  for (auto& [id, other] : requests_)
    if (other.shared.get() == &task && other.shared_end <= end) ask_again(other);
}

void PagePrefetch::note_refusal(const ReadTask& task, Refusal why) {
  for (auto& [id, request] : requests_)
    if (request.task.get() == &task) request.refusal = why;
}

std::optional<double> PagePrefetch::note_step(const Batch& batch, Duration took) {
  arrivals_.note_step(took);
  const bool has_prompts = batch.num_answers() < std::ssize(batch.slices);
  times_.note_step(batch.num_rows, took, has_prompts);
  if (batch.num_answers() > 0)
    has_prompts ? load_.note_mixed_step(clock_->now()) : load_.note_answers(took, clock_->now());
  return has_prompts ? std::optional(to_seconds(times_.to_compute(1))) : std::nullopt;
}

void PagePrefetch::note_cached(RequestId id) {
  if (const auto request = requests_.find(id); request != requests_.end()) release(request->second);
}

// A page that was read counts once a request begins with it. One that was retracted counts what was
// read for it since then.
PerTier<int> PagePrefetch::note_begun(const Batch& batch) {
  PerTier<int> sum{};
  for (const Slice& slice : batch.slices) {
    const auto at = requests_.find(slice.request->id);
    if (at == requests_.end() || !std::exchange(at->second.counts_found, false)) continue;
    PrefetchedRequest& request = at->second;
    const PerTier<int> found =
        request.fetched.within(std::min(slice.begin, slice.request->prompt_len));
    count_found(request, found);
    if (std::exchange(request.has_begun, true)) continue;
    request.found = found;
    for (size_t tier = 0; tier < found.size(); ++tier) sum[tier] += found[tier];
  }
  return sum;
}

// Tokens that a peer computed for this request were computed all the same, so they save no time.
void PagePrefetch::count_found(const PrefetchedRequest& request, const PerTier<int>& found) {
  for (size_t tier = 0; tier < found.size(); ++tier) {
    if (found[tier] == 0) continue;
    AtomicCounts<PageTierCounters>& counts = figures_.tiers[tier];
    counts.add(&PageTierCounters::tokens_total, static_cast<uint64_t>(found[tier]));
    if (times_.knows_speed() && !(request.is_sent && tier == kPeerTier))
      counts.add(&PageTierCounters::saved_seconds_total,
                 to_seconds(times_.to_compute(found[tier])));
  }
}

PerTier<int> PagePrefetch::fetched(RequestId id) const {
  const auto request = requests_.find(id);
  return request != requests_.end() ? request->second.found : PerTier<int>{};
}

void PagePrefetch::forget(RequestId id) {
  const auto request = requests_.find(id);
  if (request == requests_.end()) return;
  give_up(request->second);
  release(request->second);
  figures_.note_wait(request->second.wait, std::nullopt);
  turns_.leave(id);
  requests_.erase(request);
}

}  // namespace hocket
