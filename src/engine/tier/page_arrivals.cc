#include "engine/tier/page_arrivals.h"

#include <span>
#include <utility>

namespace hocket {

void PageArrivals::start(const Clock& clock, std::function<void(PageId)> restored, Calls calls) {
  clock_ = &clock;
  restored_ = std::move(restored);
  calls_ = std::move(calls);
}

// Takes one page or state in any case, so a request that waits for pages gets them in the end.
void PageArrivals::take(Scheduler& scheduler, EngineLoad load) {
  const int64_t max_bytes = pace_.max_bytes(load);
  int64_t num_bytes = 0;
  std::vector<ReadPage> run;  // neighbouring pages of one task
  while (num_bytes == 0 || num_bytes + pages_.page_bytes() <= max_bytes) {
    auto read = reader_.pop();
    if (!read) break;
    if (read->kind) num_bytes += std::ssize(reader_.bytes_of(*read));
    const bool follows = read->kind == PageKind::page && !run.empty() &&
                         run.back().task == read->task && run.back().tier == read->tier;
    if (!follows) restore_pages(scheduler, run);
    if (read->kind == PageKind::page) {
      run.push_back(*std::move(read));
    } else if (read->kind == PageKind::state) {
      restore_state(scheduler, *read);
    } else {
      calls_.ended(*read->task);
    }
  }
  restore_pages(scheduler, run);
}

// Empties `run`.
void PageArrivals::restore_pages(Scheduler& scheduler, std::vector<ReadPage>& run) {
  if (run.empty()) return;
  ReadTask& task = *run.front().task;
  const size_t end = (static_cast<size_t>(run.back().index) + 1) * page_tokens_;
  size_t num_new = 0;
  const bool restored = scheduler.restore(
      task.name_space, std::span<const TokenId>(task.prompt).first(end),
      static_cast<int>(run.size()), [&](std::span<const PageId> pages) {
        num_new = pages.size();
        const TimePoint begin = clock_->now();
        const auto last = std::span(run).last(pages.size());
        for (size_t i = 0; i < pages.size(); ++i) {
          pages_.load_page(reader_.bytes_of(last[i]), pages[i]);
          restored_(pages[i]);
        }
        pace_.note(std::ssize(pages) * pages_.page_bytes(), clock_->now() - begin);
      });
  if (restored)
    calls_.entered(task, run.front().tier, static_cast<int>(end - num_new * page_tokens_),
                   static_cast<int>(end));
  else
    refuse(scheduler, task, run.front().index);
  for (const ReadPage& page : run) reader_.release(page);
  run.clear();
}

// Gives up a task whose page `first` found no place. Those behind it are refused for its lack, so
// they say nothing.
void PageArrivals::refuse(const Scheduler& scheduler, ReadTask& task, int first) {
  if (task.given_up.exchange(true)) return;
  const auto before =
      std::span<const TokenId>(task.prompt).first(static_cast<size_t>(first) * page_tokens_);
  const bool has_gap = scheduler.in_tree_len(task.name_space, before) < std::ssize(before);
  calls_.refused(task, has_gap ? Refusal::gap : Refusal::no_room);
}

void PageArrivals::restore_state(Scheduler& scheduler, const ReadPage& state) {
  const ReadTask& task = *state.task;
  const auto tokens =
      std::span<const TokenId>(task.prompt).first(static_cast<size_t>(state.index) * page_tokens_);
  const TimePoint begin = clock_->now();
  const int64_t num_copied =
      states_.restore(scheduler, task.name_space, tokens, reader_.bytes_of(state));
  pace_.note(num_copied, clock_->now() - begin);
  reader_.release(state);
}

}  // namespace hocket
