#include "engine/tier/delayed_writes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"

namespace hocket {
namespace {

using CopyOutcome = PageWriter::CopyOutcome;

// Pages that are looked for in stores before they are copied. All of a long prompt would take much
// of the time for one step.
constexpr size_t kPagesAtOnce = 16;

}  // namespace

void DelayedWrites::start(const Clock& clock, std::function<void()> wake) {
  clock_ = &clock;
  wake_ = std::move(wake);
}

DelayedWrites::~DelayedWrites() {
  if (num_requests_ > 0)
    log::warning(
        "stored prefixes: at shutdown, pages or states of {} requests still waited for a buffer "
        "and were not stored. To fix it: a faster disk or network",
        num_requests_.load());
}

// Pages behind one that is not written are not read, so all of them wait.
bool DelayedWrites::delay_pages(const Request& request, size_t num_pages, StoredRequest& stored) {
  if (!stored.delayed && num_requests_ >= kMaxRequests) return false;
  add(request, num_pages, stored).num_pages = num_pages;
  return true;
}

// A prompt that comes again continues behind one of its last states, so the first ones are left
// out.
bool DelayedWrites::delay_state(const Request& request, size_t num_pages, StoredRequest& stored) {
  if (!stored.delayed && num_requests_ >= kMaxRequests) return false;
  DelayedPages& delayed = add(request, num_pages, stored);
  delayed.states.push_back(num_pages);
  if (delayed.is_awaited || delayed.states.size() <= kMaxStates) return true;
  delayed.states.erase(delayed.states.begin());
  copier_.writer().leave_out(1, UnwrittenReason::no_buffer);
  return true;
}

DelayedPages* DelayedWrites::delay_awaited(const Request& request, StoredRequest& stored) {
  const PageWriter& writer = copier_.writer();
  if (!writer.files_take_writes() || !writer.is_awaited(request.id)) return nullptr;
  const auto num_pages = static_cast<size_t>(request.leased_pages);
  DelayedPages& delayed = add(request, num_pages, stored);
  delayed.is_awaited = true;
  delayed.num_pages = num_pages;
  return &delayed;
}

void DelayedWrites::delay_saved(RequestId id, DelayedPages pages, StoredRequest& stored) {
  turns_.push_back(id);
  stored.delayed = std::move(pages);
  ++num_requests_;
  may_go_on_ = true;
  wake_();
}

DelayedPages& DelayedWrites::add(const Request& request, size_t num_pages, StoredRequest& stored) {
  if (!stored.delayed) {
    turns_.push_back(request.id);  // it may throw, and a request without a turn would never end
    stored.delayed.emplace();
    ++num_requests_;
  }
  may_go_on_ = true;  // a buffer may have got free meanwhile
  DelayedPages& delayed = *stored.delayed;
  delayed.name_space = request.cache_namespace;
  num_pages = std::max(num_pages, delayed.tokens.size() / page_tokens_);
  delayed.tokens.assign(request.tokens.begin(),
                        request.tokens.begin() + static_cast<ptrdiff_t>(num_pages * page_tokens_));
  return delayed;
}

void DelayedWrites::note_free_buffers() {
  if (num_requests_ == 0) return;
  may_go_on_ = true;
  wake_();
}

std::vector<RequestId> DelayedWrites::copy(StoredRequests& requests, const Scheduler& scheduler,
                                           std::function<bool()> is_wanted) {
  may_go_on_ = false;
  const TimePoint begin = clock_->now();
  CopyLimit limit{.clock = *clock_, .until = begin, .is_wanted = std::move(is_wanted)};
  const auto is_awaited = [&](RequestId id) { return requests.at(id).delayed->is_awaited; };
  std::ranges::stable_partition(turns_, is_awaited);
  std::vector<RequestId> done, again;
  size_t next = 0;
  for (; next < turns_.size(); ++next) {
    const RequestId id = turns_[next];
    const double share = is_awaited(id) ? kMaxAwaitedShare : kMaxShare;
    limit.until =
        begin + (limit.is_wanted ? kIdleTime : from_seconds(share * to_seconds(last_step_)));
    if (!limit.allows_request()) break;
    (copy_one(id, requests.at(id), scheduler, limit) ? done : again).push_back(id);
    if (limit.was_reached) {
      ++next;
      break;
    }
  }
  if (limit.was_reached) may_go_on_ = true;
  turns_.erase(turns_.begin(), turns_.begin() + static_cast<ptrdiff_t>(next));
  turns_.insert(turns_.end(), again.begin(), again.end());
  return done;
}

bool DelayedWrites::copy_one(RequestId id, StoredRequest& stored, const Scheduler& scheduler,
                             CopyLimit& limit) {
  DelayedPages& delayed = *stored.delayed;
  PageWriter& writer = copier_.writer();
  std::optional<UnwrittenReason> gives_up;
  if (delayed.is_awaited && !writer.files_take_writes()) {
    gives_up = UnwrittenReason::store_away;
    writer.end_waiting(id);
  } else if (delayed.is_awaited && !stored.saved && !writer.is_awaited(id)) {
    gives_up = UnwrittenReason::late;
  }
  if (!copy_pages(delayed, stored, scheduler, limit, gives_up) ||
      !copy_states(delayed, stored, scheduler, limit, gives_up))
    return false;
  stored.delayed.reset();
  --num_requests_;
  return true;
}

bool DelayedWrites::copy_pages(const DelayedPages& delayed, StoredRequest& stored,
                               const Scheduler& scheduler, CopyLimit& limit,
                               std::optional<UnwrittenReason> gives_up) {
  if (delayed.num_pages <= stored.num_written) return true;
  std::vector<PageId> pages;
  if (!gives_up)
    pages = scheduler.pages_in_tree(
        delayed.name_space, std::span(delayed.tokens).first(delayed.num_pages * page_tokens_));
  auto copied = CopyOutcome::yes;
  while (copied == CopyOutcome::yes && stored.num_written < pages.size()) {
    if (!limit.allows_look()) return false;
    const size_t end = std::min(pages.size(), stored.num_written + kPagesAtOnce);
    copied = copier_.copy_pages(std::span(pages).first(end), stored, &limit).why;
  }
  if (copied != CopyOutcome::yes && copied != CopyOutcome::no_store) return false;
  copier_.writer().leave_out(delayed.num_pages - std::min(delayed.num_pages, stored.num_written),
                             copied == CopyOutcome::no_store
                                 ? UnwrittenReason::store_away
                                 : gives_up.value_or(UnwrittenReason::late));
  stored.num_written = delayed.num_pages;
  return true;
}

bool DelayedWrites::copy_states(DelayedPages& delayed, StoredRequest& stored,
                                const Scheduler& scheduler, CopyLimit& limit,
                                std::optional<UnwrittenReason> gives_up) {
  for (; !delayed.states.empty(); delayed.states.pop_back()) {
    BorderStates::Indices indices;
    if (!gives_up)
      indices = copier_.states().find(
          scheduler, delayed.name_space,
          std::span(delayed.tokens).first(delayed.states.back() * page_tokens_));
    if (indices.empty()) {
      copier_.writer().leave_out(1, gives_up.value_or(UnwrittenReason::late));
      continue;
    }
    const CopyOutcome copied = copier_.copy_state(delayed.states.back(), indices, stored, &limit);
    if (copied != CopyOutcome::yes && copied != CopyOutcome::no_store) return false;
    copier_.writer().leave_out(copied == CopyOutcome::no_store ? 1 : 0,
                               UnwrittenReason::store_away);
  }
  return true;
}

}  // namespace hocket
