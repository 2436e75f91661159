// Runs all items of some tasks, shared among the workers. An item is a task and some heads that
// share keys (attention_item.h).
//
// Private to the operations; thread: engine.
#pragma once

#include <algorithm>
#include <span>

#include "compute/kernels/attention_item.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// Prompt tokens of one task over latents. Keys and values come from products for each head, which
// these rows share.
inline constexpr int kExpandedTokens = 1024;
// Scratch for split runs: states of kQueryRows rows that each worker's scratch can hold while
// workers share the segments of a task.
inline constexpr int kSharedStates = 8;

// Returns the number of the first key segment that the rows of a task see.
inline int first_segment(const AttentionPlan& plan, const AttentionPlan::Task& task,
                         const VisibleKeys& visible) {
  return plan.first_key(task, visible) / kAttentionSegment;
}
// Returns how many key segments the rows of a task see.
inline int num_segments(const AttentionPlan& plan, const AttentionPlan::Task& task,
                        const VisibleKeys& visible = {}) {
  const int end = (plan.num_keys(task) - 1) / kAttentionSegment + 1;
  return end - first_segment(plan, task, visible);
}

// One run of all items of some tasks.
template <class T, class Sources>
class BatchRun {
 public:
  BatchRun(Backend& backend, const AttentionPlan& plan, std::span<const AttentionPlan::Task> tasks,
           const AttentionForm<T>& form, const Sources& sources)
      : backend_(backend),
        plan_(plan),
        tasks_(tasks),
        form_(form),
        sources_(sources),
        item_bytes_(item_bytes(form, sources)) {}

  void run() {
    if (!run_split()) run_whole();
  }
  // Returns the scratch bytes that one worker needs for any tasks.
  static int64_t scratch_bytes(const AttentionForm<T>& form, const Sources& sources) {
    return item_bytes(form, sources) + shared_bytes(form);
  }

 private:
  using Item = ItemRun<T, Sources>;

  // Each item runs on one worker, with all its segments.
  void run_whole() {
    backend_.workers().run(num_items(), [&](int index, int worker) {
      with_item(index, worker, [](Item& item) { item.run_all_segments(); });
    });
  }

  // Splits long contexts with few items: workers share the segments, keep the states in the scratch
  // of all workers, then merge them in order. Returns false and does nothing if that would not
  // occupy more workers or the scratch is too small.
  //   unit   0 1 2 | 3 4 | 5 ...      item 0 has 3 segments, item 1 has 2, ...
  //   state  in the scratch of worker unit % num_workers
  bool run_split() {
    const int num_workers = backend_.workers().size();
    if (num_workers == 1 || num_items() >= 4 * num_workers) return false;
    int num_units = 0, rows = 0;
    for (const AttentionPlan::Task& task : tasks_) {
      num_units += segments(task) * form_.items_per_task();
      rows = std::max(rows, task.num_rows * form_.heads_per_item);
    }
    const int64_t state_bytes = SoftmaxState::bytes(rows, form_.v_dim());
    const int64_t room = shared_bytes(form_);
    if (num_units == num_items() || num_units > room / state_bytes * num_workers) return false;
    const auto state_of = [&](int unit) {
      std::byte* const shared =
          backend_.scratch<std::byte>(unit % num_workers, item_bytes_ + room) + item_bytes_;
      Layout layout(shared + unit / num_workers * state_bytes);
      SoftmaxState state;
      state.lay(layout, rows, form_.v_dim());
      return state;
    };
    backend_.workers().run(num_units, [&](int unit, int worker) {
      const Segment segment = segment_of(unit);
      with_item(segment.item, worker,
                [&](Item& item) { item.run_segment(segment.begin, state_of(unit)); });
    });
    backend_.workers().run(num_items(), [&](int index, int worker) {
      int unit = first_unit(index);
      with_item(index, worker, [&](Item& item) {
        const SoftmaxState all = state_of(unit);
        const int first = first_segment(plan_, task_of(index), form_.visible);
        for (int i = 1; i < segments(task_of(index)); ++i)
          item.merge((first + i) * kAttentionSegment, all, state_of(++unit));
        item.finish(all);
      });
    });
    return true;
  }

  // The segments of all items are numbered in sequence; such a number is a unit.
  struct Segment {
    int item, begin;
  };
  int num_items() const { return static_cast<int>(tasks_.size()) * form_.items_per_task(); }
  const AttentionPlan::Task& task_of(int item) const {
    return tasks_[item / form_.items_per_task()];
  }
  int segments(const AttentionPlan::Task& task) const {
    return num_segments(plan_, task, form_.visible);
  }
  int first_unit(int item) const {
    int unit = 0;
    for (int i = 0; i < item; ++i) unit += segments(task_of(i));
    return unit;
  }
  Segment segment_of(int unit) const {
    int item = 0;
    for (; unit >= segments(task_of(item)); ++item) unit -= segments(task_of(item));
    return {item, (first_segment(plan_, task_of(item), form_.visible) + unit) * kAttentionSegment};
  }

  static int64_t item_bytes(const AttentionForm<T>& form, const Sources& sources) {
    Layout layout;
    ItemScratch<T>().lay(layout, form);
    sources.source(AttentionSequence{}, 0, layout);
    return layout.bytes();
  }
  static int64_t shared_bytes(const AttentionForm<T>& form) {
    return kSharedStates * SoftmaxState::bytes(std::min(form.max_rows, kQueryRows), form.v_dim());
  }

  template <class Body>
  void with_item(int index, int worker, Body&& body) {
    Layout layout(backend_.scratch<std::byte>(worker, item_bytes_));
    ItemScratch<T> scratch;
    scratch.lay(layout, form_);
    Item item(backend_, form_, scratch, sources_,
              {plan_, task_of(index), index % form_.items_per_task(), layout});
    body(item);
  }

  Backend& backend_;
  const AttentionPlan& plan_;
  const std::span<const AttentionPlan::Task> tasks_;
  const AttentionForm<T> form_;
  const Sources& sources_;
  const int64_t item_bytes_;
};

}  // namespace hocket
