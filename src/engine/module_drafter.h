// Drafts with the model's own module for multi-token prediction. After a step's commit it computes
// the module's rows for the tokens that the step has settled, and chains the module for the drafts
// of the next step:
//
//   position            | p ...... n - 2          | n - 1      | n          ...
//   joined token        | token p + 1 .. n - 1    | draft 0    | draft 1
//   with hidden row     | p .. n - 2 of the model | the module's own row before
//   keys                | pages of the request    | the same, or spare pages
//   gives               |         draft 0         | draft 1    | draft 2
//
// A module's row depends on the token after its own. So the last row of a cached page may be that
// of another continuation, and the rows of an answer's end are never computed: then drafts are
// worse, but answers never depend on them.
//
// Owner: the gate of the only rank.   Thread: engine. Allocates nothing after warm-up.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/flight.h"
#include "engine/runner.h"
#include "engine/speculation.h"
#include "policy/speculation/drafter.h"

namespace hocket {

class ModuleDrafter final : public Drafter {
 public:
  // The runner has a module and outlives the drafter. Each answer gets `num_drafts` drafts; 1 if
  // the module joins rows of the model only, because then it has none of its own to go on from.
  ModuleDrafter(Runner& runner, int num_seats, int num_drafts);

  void begin(int seat, int most_len) override;
  void end(int seat) override { begin(seat, 0); }
  // Hands out the drafts of compute(), if they continue these very tokens.
  void draft(std::span<DraftAsk> asks) override;
  bool is_free() const override { return false; }

  // Notes the rows that a committed step settled, of requests with a seat. `flight` is not read
  // later, nor are requests that have ended.
  void settle(const Flight& flight, const Speculation& seats);
  // Computes the rows that settle() noted, before the next step is scheduled or computed.
  void compute();

 private:
  // The drafts of a seat.
  struct Followed {
    size_t num_tokens = 0;  // those of the request that the drafts continue
    int num_drafts = 0;
    std::array<TokenId, kMostDrafts> drafts{};
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

  void add_row(const Settled& of, TokenId token, int position);
  void compute_settled();
  void chain();
  int pages_needed(const Settled& one) const;
  void find_pages(Settled& one, int index);
  void play(const Model& of);
  void take_drafts();

  Runner& runner_;
  const int num_drafts_, page_tokens_;
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
