// Writes what the tree gets to stores (engine/pages/page_writer.h): pages, and the states that a
// model needs to continue behind them (engine/tier/border_states.h). Pages that find no buffer are
// delayed (engine/tier/delayed_writes.h). Owner: the rank's CacheTier. Thread: engine.
#pragma once

#include <functional>
#include <vector>

#include "engine/pages/page_keys.h"
#include "engine/tier/cache_tier_options.h"
#include "engine/tier/delayed_writes.h"
#include "engine/tier/page_copier.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class WriteBehind {
 public:
  // All outlive it.
  WriteBehind(const CacheTierOptions& options, PagePool& pages, const BorderStates& states,
              PageWriter& writer);
  void start(const Clock& clock, std::function<void()> wake) {
    delayed_.start(clock, std::move(wake));
  }

  // As those of CacheTier.
  void on_pages_cached(const Request& request, const Scheduler& scheduler);
  void on_state_cached(const Request& request, int len, int slot);
  bool lacks_windows(const Request& request, int border);
  void save(const SessionTokens& session, const Scheduler& scheduler,
            std::function<void(int num_pages, bool whole)> done);
  void forget(RequestId id);
  void copy_delayed(const Scheduler& scheduler, std::function<bool()> is_wanted);
  bool has_delayed() const { return delayed_.may_go_on(); }
  void note_step(Duration took) { delayed_.note_step(took); }
  // Thread: any.
  void note_free_buffers() { delayed_.note_free_buffers(); }

 private:
  size_t num_to_write(const Request& request) const;
  void write_found_state(const Request& request, StoredRequest& stored);
  void write_windows(const Request& request, StoredRequest& stored, const Scheduler& scheduler);
  std::vector<size_t> window_borders(const Request& request, size_t begin, size_t end) const;
  void write_state(const Request& request, StoredRequest& stored, size_t num_pages,
                   std::span<const int> indices);

  const CacheTierOptions& options_;
  const size_t page_tokens_;
  PageWriter& writer_;
  const BorderStates& states_;
  PageCopier copier_;
  DelayedWrites delayed_;
  const PageKeys keys_;
  StoredRequests requests_;
  uint64_t next_save_ = UINT64_MAX;  // the next id of a session's save, which has no request
};

}  // namespace hocket
