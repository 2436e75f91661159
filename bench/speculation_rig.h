// An engine of `hocket bench speculation`, with the drafts that the bench imposes, and the player
// that answers prompts with it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/speculation.h"
#include "engine/engine.h"

namespace hocket {

// The right tokens of every answer, and the drafts that the bench wants. Only changed while the
// engine is idle.
struct ImposedDrafts {
  using Texts = std::unordered_map<int, std::vector<TokenId>>;  // prompt and answer, by id_of()
  int max_drafts = 0;  // drafts of an answer; 0: none are made
  int percent = 0;     // chance that a draft is accepted
  int vocab_size = 0, prompt_len = 0;
  Texts texts;
  // If an answer has a text here, an NgramDrafter looks its drafts up in this one, and a draft is
  // right where it finds the text's token. So lookup meets text that repeats, whatever the model
  // writes.
  Texts quotes;

  // The last token of a prompt identifies it: all others are equal.
  int id_of(std::span<const TokenId> tokens) const;
  // Returns the draft for a position; by the chance it is the right token, the same each time.
  TokenId draft(const std::vector<TokenId>& text, size_t position) const;
  // Returns a draft that fails there.
  TokenId wrong(const std::vector<TokenId>& text, size_t position) const;
};

// The drafts that --speculative-algorithm `algorithm` makes, num_steps for each answer where their
// number is fixed; empty: those that the bench imposes.
struct OwnDrafts {
  std::string algorithm;
  int num_steps = kMaxDrafts;
};

// An engine whose threads run. One without drafts is as a server without
// --speculative-algorithm: no drafter is loaded, and steps may overlap.
class SpeculationRig {
 public:
  enum class Drafts : uint8_t { none, fixed, gate };
  // Errors: those of Engine::create.
  static Result<std::unique_ptr<SpeculationRig>> create(ServerSettings settings, Drafts drafts,
                                                        const OwnDrafts& own = {});
  ~SpeculationRig();
  SpeculationRig(const SpeculationRig&) = delete;
  SpeculationRig& operator=(const SpeculationRig&) = delete;

  Engine& engine() { return *engine_; }
  ImposedDrafts& imposed() { return imposed_; }
  Outbox& outbox() { return outbox_; }

 private:
  SpeculationRig();
  ImposedDrafts imposed_;
  Outbox outbox_;
  std::unique_ptr<Engine> engine_;
};

// Steps of a size: the number of answers, and the tokens of their prompts.
struct SpeculationGroup {
  int answers = 1, context = 512;
};

// Drafts of a block of steps.
struct ImposedChoice {
  int max_drafts = 0;
  int percent = 0;  // chance that each is accepted
  // True if tokens count as the chance makes them expected, and not as they were sampled.
  bool counts_expected = true;
};

struct PlayedSteps {
  double seconds = 0;
  double tokens = 0;  // all answers together
  double rate() const { return tokens / seconds; }
};

// The least length of a block of steps. Where steps are long, `steps` limits a block instead:
// counting steps copies the gate's state, which would take too much time in short ones.
struct BlockLength {
  int tokens = 0;  // tokens of each answer
  double seconds = 0;
  int steps = 0;
};

// Answers the prompts of a group again and again. Thread: one.
class SpeculationPlayer {
 public:
  // `rig` outlives it.
  SpeculationPlayer(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                    SpeculationRig& rig);
  ~SpeculationPlayer();
  SpeculationPlayer(const SpeculationPlayer&) = delete;
  SpeculationPlayer& operator=(const SpeculationPlayer&) = delete;

  // Answers all prompts once, and returns prompts with answers. Errors: an answer's.
  Result<ImposedDrafts::Texts> learn_texts();
  // Sets which tokens are right from now on, and which texts n-grams are looked up in.
  void set_texts(const ImposedDrafts::Texts& texts, const ImposedDrafts::Texts& quotes);
  // Plays a block; counts only time in which all answers run. Afterwards the engine is idle.
  // Errors: an answer's.
  Result<PlayedSteps> play(const ImposedChoice& choice, const BlockLength& block);
  // Returns how many experts of a layer a step touches on average. 0: the model is dense.
  Result<double> experts_touched(const ImposedChoice& choice);
  // False if a token differed from set_texts().
  bool is_equal() const { return is_equal_; }

 private:
  Result<void> begin();
  Result<void> end();
  Result<void> take_output();
  double surplus_accepted(int percent) const;
  int64_t num_steps() const;

  const BenchSpeculationOptions& options_;
  const SpeculationGroup group_;
  SpeculationRig& rig_;
  std::unordered_map<RequestId, std::vector<TokenId>> texts_;  // those under way
  int num_begun_ = 0, num_running_ = 0;
  int64_t num_tokens_ = 0;  // that have arrived
  bool is_ending_ = false, is_equal_ = true;
};

// Returns for each text one that quotes its prompt from its beginning on, with an edit at this
// percentage of the tokens: up to three other tokens in place of up to two.
ImposedDrafts::Texts quotes_of(const ImposedDrafts::Texts& texts, int prompt_len, int percent,
                               int vocab_size);

}  // namespace hocket
