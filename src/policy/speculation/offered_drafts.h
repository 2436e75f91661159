// The drafts that the answers of a step could have. This class makes them, or takes those that were
// made ahead; it notes which of the earlier ones were accepted, and lists the new ones by the
// chance that they will be, so that the gate can choose.
//
//   make(answers) -> list() -> candidates() -> share_out(a number of them) -> the answers' drafts
//
// Where there are two drafters, each answer has the drafts of which more are expected to be
// accepted.
// Owner: a gate. Thread: engine. After construction only begin() allocates.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policy/speculation/acceptance.h"
#include "policy/speculation/drafter.h"

namespace hocket {

// An answer of the next step. The caller sets all but `drafts` and `kind`.
struct GateAnswer {
  int seat = -1;                    // -1: without a seat it gets no drafts
  std::span<const TokenId> tokens;  // the prompt and all generated tokens
  int max_drafts = 0;               // number for which there is room
  std::span<const TokenId> drafts;  // valid until the next offer() or the end of the seat
  int kind = 0;                     // that of the drafts
};

class OfferedDrafts {
 public:
  struct Options {
    std::unique_ptr<Drafter> drafter;  // not null
    std::unique_ptr<Drafter> free;     // is_free(), beside one that drafts_ahead(); null: none
    int num_seats = 1;
    int max_drafts = kMaxDrafts;  // drafts of one answer; 1..kMaxDrafts
    std::optional<int> fixed;     // number of drafts, if there are as many; null: the gate chooses
  };
  explicit OfferedDrafts(Options options);

  std::optional<int> fixed() const { return options_.fixed; }
  bool drafts_ahead() const { return options_.drafter->drafts_ahead(); }
  bool has_free() const { return options_.free != nullptr; }
  const Acceptance& acceptance() const { return acceptance_; }

  // A request of at most `max_len` tokens takes the seat.
  void begin(int seat, int max_len);
  void end(int seat);

  // Lists the answers that may have drafts, and makes those that need no choice: a free drafter's
  // are made now, others were made ahead. Earlier ones are compared with the tokens that have
  // arrived since. `answers` has at most num_seats elements.
  void make(std::span<GateAnswer> answers);
  // The drafts that a choice is made from: those that were made, or that can be made at once; only
  // those of the free drafter, where the other one drafts_ahead(); or those that can be made for
  // the next step.
  enum class DraftSet : uint8_t { made, free, next_step };
  // Lists the drafts that each answer could have, `max_rows` together at most.
  void list(DraftSet set, std::span<const GateAnswer> answers, int max_rows);
  // A number of drafts of all answers together, and the expectation of it.
  struct Candidate {
    int num_drafts = 0;
    double accepted = 0, best_case = 0;  // drafts expected to be accepted; at best
  };
  // Returns the numbers worth comparing, ascending: of the likeliest drafts that were listed.
  std::span<const Candidate> candidates() const { return candidates_; }
  void drop_candidates() { candidates_.clear(); }

  // Sets for each answer how many of the likeliest drafts are its own.
  void assign(int num_drafts);
  // Returns the most drafts of an answer that are to be made ahead; 0: none.
  int max_drafts_ahead() const;
  // Assigns the likeliest drafts and gives them to their answers. Returns how many are expected to
  // be accepted.
  double share_out(int num_drafts, std::span<GateAnswer> answers);
  // Notes that the first `num_accepted` of this seat's drafts were accepted in the last step. Where
  // drafts exist before the choice it does nothing, since make() counts them. Precondition: the
  // answer continues; its end says nothing about the drafts behind.
  void note_answer(int seat, int num_drafts, int num_accepted);

 private:
  // Drafts that are made in any case; the tokens that follow show whether they are right.
  struct WatchedDrafts {
    std::array<TokenId, kMaxDrafts> tokens{};
    int num = 0, kind = 0;
    size_t at = 0;  // length of the request when they were made
  };
  // Drafts that an answer could have in the step that is being chosen.
  struct PossibleDrafts {
    size_t answer = 0;                // index among the caller's
    const DraftTask* task = nullptr;  // the drafter's whose drafts they are
    bool drafts_ahead = false;        // it makes them ahead
    int num = 0;
    // By position: the chance that this draft and all before it are accepted, in 127ths.
    std::array<uint8_t, kMaxDrafts> levels{};
  };
  static constexpr int kLevels = 128;
  struct Level {
    int num = 0;
    double accepted = 0, best_case = 0;
  };

  // True if drafts exist before any is chosen, so that it also becomes known whether those that
  // were not chosen are right.
  bool exist_before_choice() const { return options_.drafter->is_free() || drafts_ahead(); }
  int max_drafts() const { return options_.fixed.value_or(options_.max_drafts); }
  void compare(WatchedDrafts& watched, const DraftTask& task);
  double expected_of(const DraftTask& task, int num) const;
  void assign_evenly(int num_drafts);
  void list_candidates(int max_rows);

  const Options options_;
  Acceptance acceptance_;
  // tasks_[i] and free_tasks_[i] belong to possible_[i].
  std::vector<DraftTask> tasks_, free_tasks_;
  std::vector<PossibleDrafts> possible_;
  std::array<Level, kLevels> levels_{};  // drafts by the chance that they are accepted
  std::vector<Candidate> candidates_;
  std::vector<WatchedDrafts> watched_, free_watched_;  // by seat
  std::vector<int> kinds_;                             // by seat, of its last drafts
};

}  // namespace hocket
