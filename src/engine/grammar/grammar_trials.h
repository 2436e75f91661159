// Tries to compile grammars in a process of its own, since a compilation that takes too much time,
// memory or stack can be stopped only by ending its process.
//
//   GrammarCompiler              `hocket grammar-trials`
//   lane 0 ────── socket ──────> vocabulary; lane 0 ── fork ──> one trial, with limits: compile,
//   lane 1 ────── socket ──────>             lane 1 ── fork ──> the first forced tokens and mask
//
// A grammar that passes is compiled once more by the caller. All trials share the memory of one
// vocabulary. If the process has ended, the next trial starts it again.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/grammar.h"

namespace hocket {

// A command of the program `hocket` that only hocket itself calls.
inline constexpr std::string_view kGrammarTrialsCommand = "grammar-trials";

enum class TrialVerdict : uint8_t { fits, too_slow, too_large, crashed };

struct TrialLimits {
  Duration time{};   // processor time of the trial
  size_t bytes = 0;  // beside the vocabulary and the stack
};

class GrammarTrials {
 public:
  static constexpr int kLanes = 2;
  struct Options {
    std::vector<std::string> command;  // of a program that calls serve_grammar_trials()
    std::filesystem::path folder;      // of tokenizer.json
    int num_logits = 0;
    std::vector<TokenId> end_ids;
  };
  explicit GrammarTrials(Options options);
  ~GrammarTrials();
  GrammarTrials(const GrammarTrials&) = delete;
  GrammarTrials& operator=(const GrammarTrials&) = delete;

  // `fits` also if the compilation fails within the limits: the caller then gets that error.
  // Errors: internal where the process cannot be started or asked.   Thread: one a lane.
  Result<TrialVerdict> attempt(int lane, const GrammarSpec& spec, TrialLimits limits);
  // All attempts fail from now on, those under way at once.   Thread: any.
  void stop();

 private:
  class Process;
  Result<std::shared_ptr<Process>> running();

  const Options options_;
  std::mutex mutex_;  // of the next two
  std::shared_ptr<Process> process_;
  bool stopped_ = false;
};

// The main function of that process; file descriptors 3 and 4 are the sockets of the two lanes.
// Returns the exit status once they are closed.   Thread: the only one.
int serve_grammar_trials();

}  // namespace hocket
