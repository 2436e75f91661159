// Drafts with the model's own module for multi-token prediction. Between two steps it computes the
// module's rows for the tokens that the first has settled, and chains the module for the drafts of
// the second:
//
//   plan(n)            after forward: how many passes, as the gate chose; ranks agree on the most
//   settle(n)          after commit: notes the rows
//   compute(n + 1)     before schedule: plays the passes, those of other ranks without rows
//
//   position            | p ...... n - 2          | n - 1      | n          ...
//   joined token        | token p + 1 .. n - 1    | draft 0    | draft 1
//   with hidden row     | p .. n - 2 of the model | the module's own row before
//   keys                | pages of the request    | the same, or spare pages
//   gives               |         draft 0         | draft 1    | draft 2
//
// A module's row depends on the token after its own. So the last row of a cached page may be that
// of another continuation, and the rows of an answer's end are never computed. Rows are missing,
// too, where the gate let the module rest. Then drafts are worse, but answers never depend on them.
// A request of which too many rows are missing is not followed any more; for that, a page is known
// to have rows of the module or none, also one that comes back from files or a peer: pages are
// written behind the module's pass (PageWrites).
//
// Owner: the gate of a rank.   Thread: engine. Allocates nothing after warm-up.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "compute/kernels/row_stats.h"
#include "engine/flight.h"
#include "engine/runner/runner.h"
#include "engine/speculation.h"
#include "policy/speculation/drafter.h"

namespace hocket {

class ModuleDrafter final : public Drafter {
 public:
  // The runner has a module and outlives the drafter. An answer gets at most `num_drafts` drafts; 1
  // if the module joins rows of the model only.
  ModuleDrafter(Runner& runner, int num_seats, int num_drafts);

  void begin(int seat, int max_len) override;
  void end(int seat) override { begin(seat, 0); }
  // Hands out the drafts of compute(), if they continue these very tokens.
  void draft(std::span<DraftTask> tasks) override;
  bool is_free() const override { return false; }
  bool is_ahead() const override { return true; }
  int max_drafts() const override { return num_drafts_; }
  bool follows(int seat) const override { return follows(followed_[static_cast<size_t>(seat)]); }

  // Plans the passes behind a step that computes: what the gate chose, none if no request of the
  // step is followed.
  void plan(const Batch& batch, const Speculation& seats);
  // Returns how many passes this rank needs before the next step.
  int num_passes() const { return num_passes_; }
  // Notes the rows that a committed step settled, of requests with a seat. `flight` is not read
  // later.
  void settle(const Flight& flight, const Speculation& seats);
  // Computes the rows that settle() noted, and drafts from them, before the next step is scheduled.
  // Requests that have ended since are left out; none was destroyed. passes[i] is what the ranks
  // agreed on for pass i: num_passes() or more, or none. Errors: those of Runner::forward_module().
  Result<void> compute(std::span<const PassSpec> passes);
  // Sees whether a page that came back to memory has rows of the module.
  void note_restored(PageId page);
  // Forgets the rows that were noted and the passes that were planned, because no step follows.
  void drop();
  // Returns the rows that the last compute() had.
  FollowedRows computed() const { return computed_; }

 private:
  // A seat's request: rows [0, end) of the module should be there, `missing` of them are not.
  struct Followed {
    int end = 0, missing = 0;
    size_t num_tokens = 0;  // those of the request that the drafts continue
    int num_drafts = 0;
    std::array<TokenId, kMaxDrafts> drafts{};
  };
  // Rows [begin, end) of a request, which are rows row_begin on of the step.
  struct Settled {
    const Request* request = nullptr;
    Followed* followed = nullptr;
    int row_begin = 0, begin = 0, end = 0;
    int wanted = 0;
    int32_t last_row = 0;             // its newest row in the pass before
    std::span<const PageId> pages{};  // with spare ones
  };

  // Some rows are always missing: those of steps that measured the time without the module.
  static bool follows(const Followed& followed) {
    return followed.missing <= kMaxMissing + followed.end / 4;
  }
  static constexpr int kMaxMissing = 32;

  void note_pages(const ForwardBatch& forward);
  int rows_missing_before(const Request& request, int position) const;
  void begin_pass(ForwardMode mode);
  void add_row(const Settled& of, TokenId token, int position);
  Result<void> compute_settled(const PassSpec& pass);
  void find_pages();
  Result<void> chain(int step, const PassSpec& pass);
  int pages_needed(const Settled& one) const;
  void find_pages(Settled& one, int index);
  Result<void> play(const Model& of, const PassSpec& pass);
  void take_drafts();

  Runner& runner_;
  const int num_drafts_, page_tokens_;
  int num_passes_ = 0, num_wanted_ = 0;  // passes, and drafts of an answer, that were planned
  FollowedRows computed_ = FollowedRows::none;
  bool has_prompts_ = false;        // rows that settle() noted are of prompts
  std::vector<uint8_t> has_rows_;   // by page: it has rows of the module
  std::vector<Followed> followed_;  // by seat
  std::vector<Settled> settled_;
  std::vector<Settled*>
      drafting_;               // those that get a draft from batch_, in sequence of its outputs
  std::vector<PageId> pages_;  // lists with spare pages
  ForwardBatch batch_;
  std::vector<int32_t> hidden_rows_;
  std::vector<RowStats> stats_;
};

}  // namespace hocket
