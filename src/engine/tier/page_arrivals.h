// Hands pages and states that were read to the tree, between two steps, as many as TakePace allows.
// Owner: PagePrefetch. Thread: engine.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "compute/kv/page_pool.h"
#include "engine/pages/page_reader.h"
#include "engine/tier/border_states.h"
#include "engine/tier/take_pace.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class PageArrivals {
 public:
  // Says why pages that were read could not enter the tree.
  enum class Refusal : uint8_t {
    no,       // they could
    gap,      // one before them had been evicted
    no_room,  // running requests had the pool
  };
  struct Calls {
    // The tree has the first `end` tokens of the task; those from `begin` on were read.
    std::function<void(const ReadTask& task, PageTier tier, int begin, int end)> entered;
    // A page found no place, and the rest of the task is given up. Called once for a task.
    std::function<void(const ReadTask& task, Refusal why)> refused;
    // All of the task was read that will be.
    std::function<void(const ReadTask& task)> ended;
  };

  // All outlive it.
  PageArrivals(size_t page_tokens, PagePool& pages, const BorderStates& states, PageReader& reader)
      : page_tokens_(page_tokens), pages_(pages), states_(states), reader_(reader) {}
  // `restored` is called for each page that the tree gets.
  void start(const Clock& clock, std::function<void(PageId)> restored, Calls calls);

  // As CacheTier::take_read_pages().
  void take(Scheduler& scheduler, EngineLoad load);
  void note_step(Duration took) { pace_.note_step(took); }

 private:
  void restore_pages(Scheduler& scheduler, std::vector<ReadPage>& run);
  void restore_state(Scheduler& scheduler, const ReadPage& state);
  void refuse(const Scheduler& scheduler, ReadTask& task, int first);

  const size_t page_tokens_;
  PagePool& pages_;
  const BorderStates& states_;
  PageReader& reader_;
  const Clock* clock_ = nullptr;
  std::function<void(PageId)> restored_;
  Calls calls_;
  TakePace pace_;
};

}  // namespace hocket
