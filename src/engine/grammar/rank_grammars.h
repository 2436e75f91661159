// The grammars of one rank's requests: which requests wait for one, and which follow one. The
// thread `masks` computes masks beside the steps, at a low priority, so that it takes little from
// the workers. If it has not begun a mask when a token is to be drawn, the worker that draws
// computes it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/mailbox.h"
#include "base/processor_time.h"
#include "base/thread.h"
#include "engine/grammar/draft_check.h"
#include "engine/grammar/grammar_compiler.h"
#include "policy/scheduler/request.h"

namespace hocket {

class RankGrammars {
 public:
  // `compiler` outlives all calls; null if no request may ask for a grammar. `wake` makes the rank
  // check whether a grammar is ready.
  RankGrammars(GrammarCompiler* compiler, std::function<void()> wake, size_t max_running);
  // Ends the thread.
  ~RankGrammars();
  RankGrammars(const RankGrammars&) = delete;
  RankGrammars& operator=(const RankGrammars&) = delete;

  // Answers SchedulerHooks::ready(). The first call for a request orders its grammar. Thread:
  // engine.
  Result<bool> ready(const Request& request);
  // Returns the request's grammar; null for free text. Precondition: ready() returned true. Thread:
  // engine.
  AnswerGrammar* find(const Request& request) const;
  // Returns true if a live request has a grammar, or waits for one. Thread: engine.
  bool any_live() const { return !following_.empty(); }
  // A step begins that may check drafts: its checks get kDraftChecksTime together. Thread: engine.
  void begin_checks() { checks_end_ = thread_processor_time() + kDraftChecksTime; }
  // Returns how many of the drafts the request's grammar would let through, one behind the other;
  // all of them if it has none, or if checking them would take too much memory or time. Thread:
  // engine.
  size_t num_allowed(const Request& request, std::span<const TokenId> drafts);
  // Writes the tokens that the request's grammar forces next; returns how many. Thread: engine.
  size_t forced(const Request& request, std::span<TokenId> out);
  // Forgets a request that has ended or was refused. A compilation that only it waits for is not
  // begun. Thread: engine.
  void forget(RequestId id);
  // Computes the mask after the token that was just accepted, before it is needed. Thread: any.
  void precompute_mask(AnswerGrammar& grammar);

 private:
  struct Following {
    std::shared_ptr<GrammarTicket> ticket;  // null once it is answered
    std::shared_ptr<AnswerGrammar> grammar;
    std::unique_ptr<DraftCheck> check;  // made for the first drafts
    size_t check_bytes = 0;
  };
  DraftCheck* check_for(Following& mine);
  void count_check(Following& mine);
  void run();

  GrammarCompiler* const compiler_;
  const std::function<void()> wake_;
  std::unordered_map<RequestId, Following> following_;
  size_t check_bytes_ = 0;  // those of all
  Duration checks_end_{};   // in processor time of the engine's thread
  Mailbox<std::shared_ptr<AnswerGrammar>> ahead_;
  Thread thread_;
};

}  // namespace hocket
