// Appends the sampled tokens of a committed step to their requests, and ends answers: no usable
// token, length, end of the grammar, stop token. Lives for one commit. Thread: engine.
#pragma once

#include <optional>
#include <span>

#include "base/clock.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

class TokenAcceptor {
 public:
  // Both outlive it. now: time of the commit.
  TokenAcceptor(const SchedulerOptions& options, SchedulerCounters& counters, TimePoint now)
      : options_(options), counters_(counters), now_(now) {}

  // Appends what was sampled for the slice, row by row, up to the end: the row of a draft counts if
  // the token before it is the draft. Rows of other drafts are computed again by the next step.
  void take(Slice& slice, std::span<const SampledToken> sampled);

 private:
  int accept_forced(Request& request, const SampledToken& sampled);
  void accept(Request& request, const SampledToken& sampled);
  // Returns nullopt if the token can be taken.
  std::optional<Error> why_unusable(const Request& request, const SampledToken& sampled) const;
  void count_drafts(const Slice& slice);

  const SchedulerOptions& options_;
  SchedulerCounters& counters_;
  const TimePoint now_;
};

}  // namespace hocket
