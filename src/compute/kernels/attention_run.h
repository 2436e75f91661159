// All items of some tasks, shared among the workers. An item is a task and some heads that share
// keys (attention_item.h).
//
// Private to the operations; thread: engine.
#pragma once

#include <algorithm>
#include <span>

#include "compute/kernels/attention_item.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// Prompt tokens of a task over latents: their heads' keys and values come from products, which pay
// when many rows meet them.
inline constexpr int kExpandedTokens = 1024;
// States of kQueryRows rows that a worker's scratch has room for when workers share a task's
// segments.
inline constexpr int kSharedStates = 8;

// Segments of keys that the rows of a task see.
inline int num_segments(const AttentionPlan& plan, const AttentionPlan::Task& task) {
  return (plan.num_keys(task) - 1) / kAttentionSegment + 1;
}

// All items of some tasks.
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
  // What a worker needs for any tasks.
  static int64_t scratch_bytes(const AttentionForm<T>& form, const Sources& sources) {
    return item_bytes(form, sources) + shared_bytes(form);
  }

 private:
  using Item = ItemRun<T, Sources>;

  // One worker takes all segments of an item.
  void run_whole() {
    backend_.workers().run(num_items(), [&](int index, int worker) {
      with_item(index, worker, [](Item& item) { item.run_all_segments(); });
    });
  }

  // Long contexts with few items: workers share the segments, whose states wait in all workers'
  // scratch and are then merged in order. Returns false, having done nothing, where that would not
  // fill more workers or has no room.
  bool run_split() {
    const int num_workers = backend_.workers().size();
    if (num_workers == 1 || num_items() >= 4 * num_workers) return false;
    int num_units = 0, rows = 0;
    for (const AttentionPlan::Task& task : tasks_) {
      num_units += num_segments(plan_, task) * form_.items_per_task();
      rows = std::max(rows, task.num_rows * form_.group);
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
        const int num_keys = plan_.num_keys(task_of(index));
        for (int begin = kAttentionSegment; begin < num_keys; begin += kAttentionSegment)
          item.merge(begin, all, state_of(++unit));
        item.finish(all);
      });
    });
    return true;
  }

  // The segments of all items are units, numbered through.
  struct Segment {
    int item, begin;
  };
  int num_items() const { return static_cast<int>(tasks_.size()) * form_.items_per_task(); }
  const AttentionPlan::Task& task_of(int item) const {
    return tasks_[item / form_.items_per_task()];
  }
  int first_unit(int item) const {
    int unit = 0;
    for (int i = 0; i < item; ++i) unit += num_segments(plan_, task_of(i));
    return unit;
  }
  Segment segment_of(int unit) const {
    int item = 0;
    for (; unit >= num_segments(plan_, task_of(item)); ++item)
      unit -= num_segments(plan_, task_of(item));
    return {item, unit * kAttentionSegment};
  }

  static int64_t item_bytes(const AttentionForm<T>& form, const Sources& sources) {
    Layout layout;
    ItemScratch<T>().lay(layout, form);
    sources.source(AttentionSequence{}, 0, layout);
    return layout.bytes();
  }
  static int64_t shared_bytes(const AttentionForm<T>& form) {
    return kSharedStates * SoftmaxState::bytes(std::min(form.rows_max, kQueryRows), form.v_dim());
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
