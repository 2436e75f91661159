// Tries to compile grammars in a process of its own, since a compilation that takes too much time,
// memory or stack can be stopped only by ending its process.
//
//   GrammarCompiler              `hocket grammar-trials`
//   lane 0 ────── socket ──────> vocabulary; lane 0 ── fork ──> one trial, with limits: compile,
//   lane 1 ────── socket ──────>             lane 1 ── fork ──> the first forced tokens and mask
//
// A trial is one such compilation. If a grammar passes, the caller compiles it once more. All
// trials share the memory of one vocabulary. If the process has ended, the next trial starts it
// again.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "core/grammar_spec.h"

namespace hocket {

// A command of the program `hocket` that only hocket itself calls.
inline constexpr std::string_view kGrammarTrialsCommand = "grammar-trials";

// fits: it kept the limits. too_slow: it took too much time. too_large: it took too much memory.
// crashed: it ended in another way.
enum class TrialVerdict : uint8_t { fits, too_slow, too_large, crashed };

struct TrialLimits {
  Duration time{};   // processor time of the trial
  size_t bytes = 0;  // memory besides the vocabulary and the stack
};

class GrammarTrials {
 public:
  static constexpr int kLanes = 2;
  struct Options {
    std::vector<std::string> command;  // runs a program that calls serve_grammar_trials()
    std::filesystem::path folder;      // holds tokenizer.json
    int num_logits = 0;
    std::vector<TokenId> end_ids;
  };
  explicit GrammarTrials(Options options);
  ~GrammarTrials();
  GrammarTrials(const GrammarTrials&) = delete;
  GrammarTrials& operator=(const GrammarTrials&) = delete;

  // Tries `spec` and waits for the verdict, 20 s at most. The verdict is `fits` also if the
  // compilation fails within the limits: the caller gets that error when it compiles. Errors:
  // internal if the process cannot be started or asked; shutting_down after stop(). Thread: one for
  // each lane.
  Result<TrialVerdict> attempt(int lane, const GrammarSpec& spec, TrialLimits limits);
  // Makes the attempts under way fail at once, and all later ones.   Thread: any.
  void stop();

 private:
  class Process;
  Result<std::shared_ptr<Process>> running();

  const Options options_;
  Mutex mutex_;
  std::shared_ptr<Process> process_ HOCKET_GUARDED_BY(mutex_);
  bool stopped_ HOCKET_GUARDED_BY(mutex_) = false;
};

// The main function of that process; file descriptors 3 and 4 are the sockets of the two lanes.
// Returns the exit status once they are closed.   Thread: the only one.
int serve_grammar_trials();

}  // namespace hocket
