// Tries to compile grammars in a process of its own, since nothing ends a compilation from outside
// but the end of its process: not too much time, nor memory, nor depth.
//
//   GrammarCompiler              `hocket grammar-trials`
//   lane 0 ────── socket ──────> vocabulary; lane 0 ── fork ──> one trial, with limits: compile,
//   lane 1 ────── socket ──────>             lane 1 ── fork ──> the first forced tokens and mask
//
// What comes through is compiled once more by whoever asked. All trials share the memory of one
// vocabulary. A process that is gone is started again by the next trial.
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

// Of the program `hocket`, for its own use.
inline constexpr std::string_view kGrammarTrialsCommand = "grammar-trials";

enum class TrialVerdict : uint8_t { fits, too_slow, too_large, crashed };

struct TrialLimits {
  Duration time{};   // of computing, whoever else computes
  size_t bytes = 0;  // beside the vocabulary and the stack
};

class GrammarTrials {
 public:
  static constexpr int kLanes = 2;
  struct Options {
    std::vector<std::string> command;  // which calls serve_grammar_trials()
    std::filesystem::path folder;      // of tokenizer.json
    int num_logits = 0;
    std::vector<TokenId> end_ids;
  };
  explicit GrammarTrials(Options options);
  ~GrammarTrials();
  GrammarTrials(const GrammarTrials&) = delete;
  GrammarTrials& operator=(const GrammarTrials&) = delete;

  // A grammar that cannot be made one, and says so within the limits, fits.
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

// The other end, for whoever started this process with a lane's socket as each of its file
// descriptors 3 and 4. The exit status, once they are closed.   Thread: the only one.
int serve_grammar_trials();

}  // namespace hocket
