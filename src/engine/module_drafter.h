// Drafts with the model's own module for multi-token prediction. Between two steps it computes the
// module's rows for the tokens that the first has settled, and chains the module for the drafts of
// the second:
//
//   plan(s)            before forward of step s: how many passes, as the gate chose; ranks agree on
//                      the most
//   settle(s)          after commit: notes the rows
//   begin(), play()    before schedule: plays the passes; where only other ranks need one, without
//                      rows
//
// While steps overlap, step s + 1 is made before step s is committed, and has no drafts. Then the
// thread that computes plays the passes between the two, when it knows the tokens:
//
//   engine thread    plan(s) launch(s)  settle_under_way(s) begin() plan(s + 1) launch(s + 1) ..
//   forward thread   .............. forward(s), sample(s) | play(), forward(s + 1), ..
//
// The rows of a request of which n tokens are known:
//
//   position            | p ...... n - 2          | n - 1      | n          ...
//   joined token        | token p + 1 .. n - 1    | draft 0    | draft 1
//   with hidden row     | p .. n - 2 of the model | the module's own row before
//   keys                | pages of the request    | the same, or spare pages
//   gives               |         draft 0         | draft 1    | draft 2
//
// MiMo-V2 has several modules instead, which all join rows of the model alone. Each has keys of its
// own and gives one draft; the tokens that it joins are one position behind those of the module
// before, so its last rows join drafts, and are computed again when the tokens are known:
//
//   position            | p ...... n - 4          | n - 3      | n - 2
//   module 0 joins      | token p + 1 .. n - 3    | n - 2      | n - 1       gives draft 0
//   module 1            | token p + 2 .. n - 2    | n - 1      | draft 0           draft 1
//   module 2            | token p + 3 .. n - 1    | draft 0    | draft 1           draft 2
//
// A module's row depends on the token after its own. So the last row of a cached page may be that
// of another continuation, and the rows of an answer's end are never computed. Rows are missing,
// too, of steps behind which the module rested. Then drafts are worse, but answers never depend on
// them. A request of which too many rows are missing is not followed any more; for that, the
// rows of the module in each page are counted, also where it is read from files or a peer: pages
// are written behind the module's pass (RankHooks).
//
// Owner: the gate of a rank.   Thread: engine, except play(). Allocates nothing after warm-up.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <vector>

#include "compute/kernels/row_stats.h"
#include "engine/flight.h"
#include "engine/module_rows.h"
#include "engine/runner/runner.h"
#include "engine/speculation.h"
#include "policy/speculation/drafter.h"

namespace hocket {

// The passes of modules between two steps: filled by the engine's thread, played by the one that
// computes.
struct ModulePasses {
  // Rows [begin, end) of a request, which are rows row_begin on of the step before. Only what never
  // changes is read of the request.
  struct Rows {
    const Request* request = nullptr;
    std::span<const TokenId> tokens;  // those that are known
    // If the request's next token is still being sampled: its index among the samples of the step
    // before; -1: all tokens are known.
    int pending_sample = -1;
    std::span<const PageId> pages;  // with spare ones
    int seat = 0;
    int row_begin = 0, begin = 0, end = 0;
    int num_kept = 0;      // rows of the model before `begin` that are kept
    int wanted = 0;        // drafts that it gets
    int32_t last_row = 0;  // its newest row in the pass before
    int num_drafts = 0;
    std::array<TokenId, kMaxDrafts> drafts{};
  };
  std::vector<Rows> rows;
  std::array<PassSpec, kMaxDrafts> passes{};
  int num_passes = 0;
  FollowedRows followed = FollowedRows::none;
  bool has_prompts = false;  // some rows are of prompts
  bool have_failed = false;  // the passes failed; the rows stay
  std::atomic<bool> are_done{true};
};

class ModuleDrafter final : public Drafter {
 public:
  // The runner has modules and outlives the drafter. An answer gets at most `num_drafts` drafts: as
  // many as there are modules, if these join rows of the model only.
  ModuleDrafter(Runner& runner, int num_seats, int num_drafts);

  void begin(int seat, int max_len) override;
  void end(int seat) override { begin(seat, 0); }
  // Returns the drafts of play(), if they continue these very tokens.
  void draft(std::span<DraftTask> tasks) override;
  bool is_free() const override { return false; }
  bool drafts_ahead() const override { return true; }
  int max_drafts() const override { return num_drafts_; }
  bool follows(int seat) const override { return follows(followed_[static_cast<size_t>(seat)]); }

  // Plans the passes behind a step that was scheduled: what the gate chose, none if no request of
  // the step is followed.
  void plan(const Batch& batch, const Speculation& seats);
  // Returns how many passes this rank needs before the next step.
  int num_passes() const { return num_passes_; }
  // Notes the rows that a committed step settled, of requests with a seat. `flight` is not read
  // later. Does nothing if settle_under_way() has noted them.
  void settle(const Flight& flight, const Speculation& seats);
  // Notes them for a step without drafts that is under way, before the next one is planned. Its
  // rows and tokens are read when the passes are played. Prompts get their seats.
  void settle_under_way(const Flight& flight, Speculation& seats);
  // Returns the passes before the next step, with the rows that were noted. Requests that have
  // ended since are left out; none was destroyed. passes[i] is what the ranks agreed on for pass i:
  // num_passes() or more, or none. The result stays valid until begin() was called again and a
  // further step is settled.
  ModulePasses& begin(std::span<const PassSpec> passes);
  // Plays passes: computes the rows, and drafts from them. `sampled` are the tokens of the step
  // before, if it was settled ahead. Thread: that of worker 0; if drafts are wanted the engine's
  // thread waits. Errors: those of Runner::forward_module().
  Result<void> play(ModulePasses& passes, std::span<const SampledToken> sampled);
  // True if there are several modules: their passes compute a few rows of the steps before again.
  bool has_several_modules() const { return num_modules_ > 1; }
  // Waits until the passes that began last are played.
  void await_passes() const;
  // Counts the module's rows in a page that was read into memory.
  void note_restored(PageId page);
  // Call it when ranks were lost: rows whose pass has failed no longer count as computed.
  // Precondition: all passes that began are played, and the pages of their requests were not given
  // back.
  void take_back_failed();
  // Forgets the rows that were noted and the passes that were planned, because no step follows.
  void drop();

 private:
  using Rows = ModulePasses::Rows;
  // A seat's request: rows [0, end) of the module should be there, `missing` of them are not.
  struct Followed {
    int end = 0, missing = 0;
    size_t num_tokens = 0;  // those of the request that the drafts continue
    int num_drafts = 0;
    std::array<TokenId, kMaxDrafts> drafts{};
    // Rows [kept_end - num_kept, kept_end) of the model are kept (WorkBuffers::model_rows).
    int kept_end = 0, num_kept = 0;
  };
  // A slice as settle() and settle_under_way() know it.
  struct SliceEnd {
    int seat = 0;
    int pending_sample = -1;        // as in Rows
    std::span<const PageId> pages;  // those of its tokens
    int num_wanted = 0;             // drafts
  };

  // Some rows are always missing: those of steps that measured the time without the module.
  static bool follows(const Followed& followed) {
    return followed.missing <= kMaxMissing + followed.end / 4;
  }
  static constexpr int kMaxMissing = 32;

  ModulePasses& begin_settling(const Flight& flight);
  void settle_slice(const Flight& flight, size_t index, const SliceEnd& end);
  void note_pages(const ForwardBatch& forward);

  void begin_pass(ForwardMode mode);
  void add_row(const Rows& of, TokenId token, int position);
  Result<void> compute_settled(ModulePasses& passes, int module, int num_again);
  int add_settled(Rows& one, int module, int num_again);
  TokenId token_at(const Rows& one, int index) const;
  void copy_model_rows(const ModulePasses& passes);
  void keep_last_rows(const ModulePasses& passes);
  int kept_row(int seat, int from_end) const;
  void find_pages();
  Result<void> chain(int step, const PassSpec& pass);
  int pages_needed(const Rows& one) const;
  void find_pages(Rows& one, int index);
  Result<void> play_module(int module, const Model::HiddenRows& hidden, const PassSpec& pass);
  void take_drafts();

  Runner& runner_;
  const int num_drafts_, num_modules_, page_tokens_;
  int num_passes_ = 0, num_wanted_ = 0;  // passes, and drafts of an answer, that were planned
  ModuleRows rows_;
  std::vector<Followed> followed_;  // by seat
  // Passes that are filled, and those that may be playing.
  std::array<ModulePasses, 2> passes_;
  size_t filled_ = 0;
  const Flight* settled_under_way_ = nullptr;  // not committed yet
  // These belong to the thread that plays.
  std::span<const SampledToken> sampled_;
  std::vector<Rows*> drafting_;  // those that get a draft from batch_, in sequence of its outputs
  std::vector<PageId> drafting_pages_;  // lists with spare pages
  ForwardBatch batch_;
  std::vector<int32_t> hidden_rows_;
  std::vector<RowStats> stats_;
};

}  // namespace hocket
