// Makes grammars of what requests ask for, on a thread of its own, and copies them for answers.
//
//   engine threads: order() -> ticket ...... state() ......> answer
//   thread grammar:            vocabulary once; compile, or the cache; copy; the first mask
//
// A ticket that nobody holds any more is not compiled. What a compilation may cost is bounded
// (rust/src/grammar.rs), so what waits gets its turn; a ticket that waits for too long fails.
// One for all ranks of a process.   Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/grammar/answer_grammar.h"
#include "engine/grammar/grammar_stats.h"
#include "text/grammar/grammar.h"

namespace hocket {

// One answer's wait for its grammar.
class GrammarTicket {
 public:
  // Null while it waits. Errors: invalid_request, where nothing can be made of the text; timed_out;
  // queue_full; bad_tokenizer.   Thread: any.
  Result<std::shared_ptr<AnswerGrammar>> answer() const;

 private:
  friend class GrammarCompiler;
  std::shared_ptr<const GrammarSpec> spec_;
  std::function<void()> done_;
  TimePoint asked_{};
  Duration patience_{};
  std::atomic<bool> settled_{false};
  Result<std::shared_ptr<AnswerGrammar>> answer_;  // once settled
};

class GrammarCompiler {
 public:
  struct Options {
    GrammarVocabulary::Source source;  // its tokenizer outlives the compiler
    int num_logits = 0;
    std::vector<TokenId> end_ids;
    size_t max_waiting = 4096;
    size_t max_cached = 128;
    size_t max_cached_bytes = 4 << 20;  // of texts; the newest stays whatever its size
    Duration patience = std::chrono::seconds(30);
  };
  explicit GrammarCompiler(Options options);
  // After the compilation under way.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `done` is called on the compiler's thread once the ticket is settled, if it is still held then.
  std::shared_ptr<GrammarTicket> order(std::shared_ptr<const GrammarSpec> spec,
                                       std::function<void()> done);
  GrammarStats stats() const { return counts_->read(); }

 private:
  using Made = Result<std::shared_ptr<const Grammar>>;
  struct Cached {
    std::string key;
    Made made;
  };

  void run();
  void make_vocabulary();
  std::shared_ptr<GrammarTicket> next();
  Result<std::shared_ptr<AnswerGrammar>> serve(const GrammarTicket& ticket);
  Made find_or_compile(const GrammarSpec& spec);
  void settle(GrammarTicket& ticket, Result<std::shared_ptr<AnswerGrammar>> answer);

  const Options options_;
  const std::shared_ptr<GrammarCounts> counts_ = std::make_shared<GrammarCounts>();

  std::mutex mutex_;  // of the next three
  std::condition_variable arrived_;
  std::deque<std::weak_ptr<GrammarTicket>> waiting_;
  bool stopping_ = false;

  // The thread's own.
  std::optional<Result<GrammarVocabulary>> vocabulary_;
  std::list<Cached> cache_;  // the newest use first
  std::unordered_map<std::string_view, std::list<Cached>::iterator> by_key_;
  size_t cached_bytes_ = 0;
  Thread thread_;
};

}  // namespace hocket
