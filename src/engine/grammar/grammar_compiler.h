// Compiles the grammars that requests ask for, on threads of its own, and copies them for answers.
//
//   engine threads:     enqueue() -> ticket ............................ answer() .....> grammar
//   thread grammar:                vocabulary once; the cache, or try and compile; copy; first mask
//   thread grammar-slow:           likewise, for grammars that are too slow for the first
//
// A grammar that is not in the cache is tried in a process of its own before it is compiled here
// (grammar_trials.h), so that no text takes more time or memory than its lane allows. A lane is one
// of the two threads with its queue. A ticket that its holder has dropped is not compiled; one that
// waits for longer than `patience` fails. One compiler serves all ranks of a process.
// Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "engine/grammar/answer_grammar.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/grammar/grammar_trials.h"
#include "engine/stats/grammar_stats.h"
#include "text/grammar/grammar.h"

namespace hocket {

// The wait of one answer for its grammar.
class GrammarTicket {
 public:
  // Returns null while it waits. Errors: invalid_request if the text is no grammar; timed_out;
  // queue_full; out_of_memory. Thread: any.
  Result<std::shared_ptr<AnswerGrammar>> answer() const;

 private:
  friend class GrammarCompiler;
  std::shared_ptr<const GrammarSpec> spec_;
  uint64_t client_ = 0;
  bool is_unlimited_ = false;  // the limits of lanes do not count
  std::function<void()> done_;
  TimePoint asked_{};
  Duration patience_{};
  std::atomic<bool> settled_{false};
  Result<std::shared_ptr<AnswerGrammar>> answer_;  // valid once settled_
};

class GrammarCompiler {
 public:
  struct Options {
    GrammarVocabulary::Source source;  // its tokenizer outlives the compiler
    int num_logits = 0;
    std::vector<TokenId> end_ids;
    // The command of the process for trials; empty: grammars are compiled without a trial.
    std::vector<std::string> trials;
    TrialLimits quick{.time = std::chrono::milliseconds(100), .bytes = 256 << 20};
    TrialLimits slow{.time = std::chrono::seconds(3), .bytes = 512 << 20};
    // Limits of tickets that wait for the first thread, and for the second; half as many per
    // client.
    size_t max_waiting = 4096, max_slow = 8;
    size_t max_cached = 128;
    size_t max_cached_bytes = 256 << 20;  // the newest stays whatever its size
    // Bytes of one client's matchers; above it, its answers get no further matcher.
    int64_t max_client_bytes = kMaxClientGrammarsBytes;
    Duration patience = std::chrono::seconds(30);
  };
  explicit GrammarCompiler(Options options);
  // Ends trials at once and waits for a compilation under way, which takes about as long as its
  // trial did.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `done` is called on one of the compiler's threads once the ticket is settled, unless its holder
  // has dropped it. It is not called for a ticket that is settled at once, as its lane is full.
  // Clients take turns, however many grammars one of them waits for.
  // unlimited: the limits of lanes do not count, since another rank had taken the request.
  enum class Admission : uint8_t { limited, unlimited };
  std::shared_ptr<GrammarTicket> enqueue(std::shared_ptr<const GrammarSpec> spec,
                                         std::function<void()> done, uint64_t client = 0,
                                         Admission admission = Admission::limited);
  GrammarStats stats() const { return counts_->stats(); }

 private:
  // A thread, and the tickets that wait for it.
  struct Lane {
    int index = 0;
    TrialLimits limits;
    size_t max_waiting = 0, max_of_client = 0;
    std::condition_variable arrived;
    // Queues by client; none of them is empty.
    std::map<uint64_t, std::deque<std::weak_ptr<GrammarTicket>>> waiting;
    size_t num_waiting = 0;
    uint64_t last_client = 0;  // client that had the last turn
    Thread thread;
  };

  void run(Lane& lane);
  void make_vocabulary();
  Result<void> enter(Lane& lane, const std::shared_ptr<GrammarTicket>& ticket);
  Result<void> check_room(const Lane& lane, uint64_t client) const HOCKET_REQUIRES(mutex_);
  void leave_out_expired(Lane& lane) HOCKET_REQUIRES(mutex_);
  std::shared_ptr<GrammarTicket> next(Lane& lane);
  void serve(Lane& lane, const std::shared_ptr<GrammarTicket>& ticket);
  // Returns nullopt if it takes longer than this lane's limit.
  std::optional<MadeGrammar> find_or_compile(Lane& lane, const GrammarSpec& spec);
  Result<std::shared_ptr<AnswerGrammar>> begin(const std::shared_ptr<const Grammar>& grammar,
                                               uint64_t client);
  std::shared_ptr<std::atomic<int64_t>> bytes_of(uint64_t client);
  void settle(GrammarTicket& ticket, Result<std::shared_ptr<AnswerGrammar>> answer);

  const Options options_;
  const std::shared_ptr<GrammarCounts> counts_ = std::make_shared<GrammarCounts>();
  std::unique_ptr<GrammarTrials> trials_;
  // Only the first lane's thread uses it: without trials the second lane is idle.
  bool said_untried_ = false;
  // Made by the first lane's thread; the second reads it, after a ticket was passed to it.
  std::optional<Result<GrammarVocabulary>> vocabulary_;

  Mutex mutex_;  // guards the lanes' queues, too
  GrammarCache cache_ HOCKET_GUARDED_BY(mutex_);
  // Bytes of each client's answers.
  std::map<uint64_t, std::weak_ptr<std::atomic<int64_t>>> client_bytes_ HOCKET_GUARDED_BY(mutex_);
  bool stopping_ HOCKET_GUARDED_BY(mutex_) = false;
  std::array<Lane, GrammarTrials::kLanes> lanes_;
};

}  // namespace hocket
