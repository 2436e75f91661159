// Checks that the engine computes the same as Hugging Face. Plays the reference's prompts whole, in
// chunks of 17, and batched, and compares quantity by quantity.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/check/player.h"
#include "engine/check/reference.h"
#include "engine/runner/runner.h"

namespace hocket {

// One quantity, over all prompts of one way to play them.
struct CheckLine {
  std::string dtype;              // "float32"; empty if it does not matter
  std::string way;                // "whole", "chunks of 17", "batched"
  std::string quantity;           // "logits_last"
  const char* measure = "worst";  // kind of `worst`: "worst", "mean" or "share"
  int64_t compared = 0;           // numbers, or rows
  double worst = 0;               // largest |got - want|; for exact ones, how many differ
  Tolerance tolerance;            // both 0: must be equal
  bool ok = true;
  std::string first_failure;  // "layer 2 is the first that differs: p0 position 3, got 1, want 2"
};

// Makes scripts of the prompts with their generated tokens; the token of the last step is not fed.
std::vector<Script> scripts_of(const Reference& reference);
std::vector<Script> scripts_of(const std::vector<Recorded>& recorded);

// Compares the engine with a reference. In float32 all numbers must lie within the reference's own
// tolerances and every chosen token and expert must be the same; in bf16 no logit may be off by
// more than 1.5 times the reference's own bf16 error, except in the few rows that a router decided
// otherwise. Generated tokens are the reference's: feeding them tests each step by itself. Errors:
// those of play_scripts().
Result<std::vector<CheckLine>> check_reference(Runner& runner, const Reference& reference);

// Compares the same for recorded greedy completions: the tokens (in bf16 only if the two best
// logits are a margin of 1 apart) and their log-probabilities.
Result<std::vector<CheckLine>> check_recorded(Runner& runner,
                                              const std::vector<Recorded>& recorded);

// Compares the sampler's distributions; `folder` holds reference.json and reference.safetensors of
// settings. Errors: model_not_found, bad_config, missing_tensor, unknown_isa.
Result<std::vector<CheckLine>> check_sampling(const std::filesystem::path& folder);

}  // namespace hocket
