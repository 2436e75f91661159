// Adds the rows of running requests to a batch: one for each, rows of forced tokens while there is
// room, and drafts in what is left (SchedulerHooks::offer_drafts). If not all rows of forced tokens
// have room, the others are computed in later steps, and the request samples only after the last of
// them.
// Owner: the scheduler. Thread: engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/scheduler/batch.h"
#include "policy/scheduler/kv_memory.h"
#include "policy/scheduler/scheduler_hooks.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

class DecodeRows {
 public:
  using Requests = std::span<const std::unique_ptr<Request>>;

  // `options` outlives it.
  explicit DecodeRows(const SchedulerOptions& options);

  // Returns how many rows add() will add, without drafts.
  int num_rows(Requests requests) const;
  // Adds the rows behind those of prompts. The requests that decode have pages for their next rows.
  // may_draft: no step is in flight.
  void add(Requests requests, bool may_draft, Batch& batch, KvMemory& memory);

 private:
  void list(Requests requests, bool may_draft, const KvMemory& memory);
  int max_drafts(const Request& request, const KvMemory& memory) const;
  void add_multirow_slices(Requests requests, Batch& batch, KvMemory& memory);

  const SchedulerOptions& options_;
  std::vector<AnswerDrafts> answers_;  // those in the batch
};

}  // namespace hocket
