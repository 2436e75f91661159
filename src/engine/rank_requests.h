// Takes the requests of one rank through the actions of its steps. Besides the scheduler it has all
// that a request needs: its grammar, its drafts, its pages in the second tier and its answer.
// LostRanks keeps or ends them when other ranks are lost.
//
//   handle()   schedule: note_begun()   commit()   reply()   .. note_idle()
//   handle_lost_ranks() if ranks were lost, then handle() .. wait_for_ranks() until they are back
//
// Owner: RankStep. Thread: engine; other threads may use what Speculation, KvEventChannel and
// CacheTier allow them.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <variant>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/lost_ranks.h"
#include "engine/rank_answers.h"
#include "engine/rank_drafts.h"
#include "engine/rank_epochs.h"
#include "engine/rank_hooks.h"
#include "engine/rank_parts.h"
#include "engine/rank_report.h"
#include "engine/rank_sessions.h"
#include "engine/tier/cache_tier.h"
#include "policy/scheduler/scheduler.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

struct AbortRequest {
  RequestId id{};
  FinishReason reason = FinishReason::abort;
  Error why;
};
struct AbortAll {
  Error why;
};
struct FlushCache {
  std::promise<bool> answer;
};
using Command = std::variant<RequestInput, AbortRequest, AbortAll, FlushCache, SessionCommand>;

class RankRequests {
 public:
  // The objects around the requests, which outlive them.
  struct Context {
    const Clock& clock;
    Runner& runner;
    RankEpochs& epochs;
    RankReport& report;
    std::function<void()> wake;           // as RankStep::Context::wake
    std::function<bool()> steps_overlap;  // says whether steps overlap now
  };
  RankRequests(RankParts& parts, const Context& around);

  Scheduler& scheduler() { return scheduler_; }
  RankGrammars& grammars() { return grammars_; }
  RankAnswers& answers() { return answers_; }
  LostRanks& lost_ranks() { return lost_ranks_; }
  RankDrafts& drafts() { return drafts_; }
  const RankDrafts& drafts() const { return drafts_; }
  // Return null if there is none.
  CacheTier* tier() { return tier_.get(); }
  const CacheTier* tier() const { return tier_.get(); }
  KvEventChannel* kv_events() const { return kv_events_.get(); }

  // Takes in a command. Before a flush, finish the steps under way if no request is live: rows of
  // ended requests may be in them, and keep pages of the cache.
  void handle(Command& command);
  // True if a request waits or runs, or pages can be taken in or copied.
  bool has_work() const { return !scheduler_.idle() || has_pages_to_copy(); }
  // True if pages that were read can be taken in, or delayed ones be copied.
  bool has_pages_to_copy() const;
  // Adds the pages that waited for the model's own module.
  void write_pages() { hooks_.write_pages(); }

  // Returns true if no step should overlap. In steps that do not overlap, answers with grammars
  // take forced tokens, which saves whole steps and so more than overlap could. Steps with drafts
  // cannot overlap.
  bool vetoes_overlap();
  // Proposes this rank's part of the next step, which has at most `max_rows` rows.
  StepProposal propose(int max_rows);
  // Notes a step that was scheduled and has rows.
  void note_begun(const Batch& batch);
  // Commits a step that was computed. overlapped_share: as RankDrafts::commit().
  void commit(Flight& flight, TimePoint now, std::optional<double> overlapped_share);
  // Sends the tokens of a step that was committed, and all summaries that are due.
  void reply(Flight& flight);
  // Sends summaries that are due, and publishes that there is nothing to run.
  void note_idle();
  // Ends all requests with `why`.
  void end_all(const Error& why);

  // As LostRanks::handle().
  void handle_lost_ranks(std::span<const Batch* const> uncommitted);
  // Takes in pages while ranks are lost, and ends the requests that have waited for these too long.
  // is_wanted: as in CacheTier::copy_delayed().
  void wait_for_ranks(const std::function<bool()>& is_wanted);

 private:
  NgramDrafter::Sources draft_sources(std::function<bool()> steps_overlap);
  void take_in(RequestInput& input);
  void take_in(AbortRequest& abort);
  void take_in(AbortAll& abort);
  void take_in(FlushCache& flush);
  void take_in(SessionCommand& order) { sessions_.carry_out(order); }
  void send_finished();

  RankEpochs& epochs_;
  RankReport& report_;
  const std::unique_ptr<KvEventChannel> kv_events_;
  RankGrammars grammars_;
  RankDrafts drafts_;
  RankHooks hooks_;
  const bool mixes_;                  // prompts and decode rows may share a step
  bool integrity_unchecked_ = false;  // a request arrived since the last check
  Scheduler scheduler_;
  const std::unique_ptr<CacheTier> tier_;  // null: the prefix cache is in memory alone
  RankSessions sessions_;
  RankAnswers answers_;
  LostRanks lost_ranks_;
};

}  // namespace hocket
