// The interface of every object that proposes drafts. A seat is the number by which drafters and
// gate know a running request, from 0 up to a limit. Owner: a rank. Thread: engine.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// Kinds of drafts, whose acceptance is counted apart: seven of an NgramDrafter, one of a module.
inline constexpr int kDraftKinds = 8;
inline constexpr int kModuleDrafts = 7;

// The rows that a drafter computed to follow requests, before a step: of answers alone, or of
// prompts, also if only another rank computed some and this one waited.
enum class FollowedRows : uint8_t { none, answers, prompts };

// The caller sets the first three, the drafter the others.
struct DraftTask {
  int seat = 0;
  std::span<const TokenId> tokens;  // the prompt and all generated tokens
  int max_drafts = 0;               // 0..kMaxDrafts
  // The tokens that may follow; valid until the next draft() or end() of this seat.
  std::span<const TokenId> drafts;
  int kind = 0;  // 0..kDraftKinds - 1
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Gives the seat to a request, which will have at most `max_len` tokens. May allocate.
  virtual void begin(int seat, int max_len) = 0;
  virtual void end(int seat) = 0;
  // Makes drafts for each task. Between two calls a seat's tokens only grow. Allocates nothing.
  virtual void draft(std::span<DraftTask> tasks) = 0;
  // True if drafts cost next to no time: then they are made in every step, whether they are
  // verified or not, and their acceptance is known without a trial.
  virtual bool is_free() const = 0;
  // True if drafts are made between two steps, as SpeculationGate::ahead() says, and draft() only
  // returns them. Such a drafter follows requests: it computes rows of all their tokens, which
  // cost time in each step, whether drafts are made of them or not.
  virtual bool drafts_ahead() const { return false; }
  // Returns how many drafts of an answer it can make for a step.
  virtual int max_drafts() const { return kMaxDrafts; }
  // Returns whether drafts can be made for the seat; false if too many of its rows are missing.
  virtual bool follows(int /*seat*/) const { return true; }

 protected:
  Drafter() = default;
  Drafter(const Drafter&) = default;
  Drafter& operator=(const Drafter&) = default;
};

}  // namespace hocket
