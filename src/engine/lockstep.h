// How ranks that share the experts keep step: before each step every rank says what it would run,
// and all know then who computes and how rows travel. While it samples, the words of the next step
// are already on their way:
//
//   rank 0   forward 6 | open: 3 answers | sample 6, commit, reply | settle -.- schedule 7, slotted
//   rank 1   forward 6 | open: nothing   |                         | settle -+- 7, no rows of its
//   own rank 2   forward 6 | open: nothing   |                         | settle -'- 7, no rows of
//   its own
//
// What was agreed binds. Who comes after open() waits for the step after, unless somebody begins
// prompts anyway; who ends after it leaves a step without rows. Nobody has rows: nobody runs,
// nothing is opened, and each sleeps until it has work or another begins an agreement. So nobody
// waits for a message that another decided not to send.
// Source: docs/contracts/expert_parallel.md, "Lockstep".
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/pulse.h"
#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/outside.h"
#include "policy/scheduler/prefill_delayer.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// What a rank says of a step to come.
struct StepWish {
  Prospect work;
  RankLoad load;
};

// One rank's part. Thread: engine, but for heard(). After construction nothing allocates.
class Lockstep final : public Outside {
 public:
  struct Options {
    Pulse* pulse = nullptr;      // told of steps that begin and end; outlives it; may be null
    int max_delayed_passes = 0;  // of prompts, PrefillDelayer; equal on all ranks
    double low_usage = 0;        // a rank that uses less of its KV pages need not delay; 0: none
  };
  Lockstep(int num_ranks, const Options& options);
  // A new epoch: steps count from 0, over these. Both outlive all calls until the next rebind().
  void rebind(Transport& transport, AllToAll& exchange);

  int rank() const { return exchange_->rank(); }

  // Between forward and sample: begins the agreement on the next step, waiting for nobody. Nothing
  // after an error, or when this step is the last.
  void open(const StepWish& wish);
  // Before schedule(): hears the others, which takes as long as the slowest of them needs to get
  // here. What open() said counts; where nothing is under way, or nobody had rows then and this
  // rank has by now, an agreement is made with `now`. False: a rank was lost, see lost().
  bool settle(const StepWish& now);

  // As was settled.
  bool may_begin() override { return may_begin_; }
  bool agree(const Batch& mine) override;
  // How the step is to be played, and whether this rank stops after it: all have asked to, or it
  // alone, the others know that, and nobody has rows any more.
  const PassId& pass() const { return pass_; }
  bool ends() const { return ends_; }
  // Another rank that asks to stop, so that nothing new should begin; -1: none.   Thread: any.
  int leaver() const { return leaver_.load(std::memory_order_relaxed); }
  // What a rank said of itself when it was last heard.   Thread: any.
  RankLoad heard(int rank) const;

  // The first failed exchange; nothing is agreed from then on.
  const std::optional<Error>& lost() const { return error_; }
  // Whom it blames; -1: nobody in particular.
  int lost_peer() const { return liar_ >= 0 ? liar_ : exchange_->lost_peer(); }
  void fail_with(Error why);

  // From the next agreement on, this rank asks to stop.
  void ask_to_end() { asks_to_end_ = true; }
  // Whether there is something to settle: an agreement is under way here or begun by another, or
  // none can be made any more.
  bool called();
  // Until called(), Transport::wake() or for `most`.
  void wait(Duration most);

 private:
  // In host order: ranks of other byte orders have no arithmetic in common anyway.
  struct Word {
    uint32_t rows = 0;      // of answers
    uint8_t begins = 0;     // a prompt may begin
    uint8_t continues = 0;  // one in chunks goes on
    uint8_t ends = 0;       // asks to stop after this step
    uint8_t plan = 0;       // for later: all play the serial order
    uint8_t votes = 0;      // bit 0: PrefillVote::starves
    uint8_t takes_requests = 0;
    uint16_t zero = 0;  // for later
    int32_t load_requests = 0;
    int64_t load_tokens = 0;
  };
  struct Load {
    std::atomic<bool> takes_requests{true};
    std::atomic<int> num_requests{0};
    std::atomic<int64_t> num_tokens{0};
  };

  Result<void> start(const StepWish& wish);
  Result<void> hear(const StepWish& now);
  Result<Word> word_of(int rank);
  void conclude();
  void forget_loads();
  void note_took();
  Duration expected() const;
  static bool has_rows(const Prospect& work) {
    return work.num_decoding > 0 || work.begins || work.continues;
  }

  const Options options_;
  Transport* transport_ = nullptr;
  AllToAll* exchange_ = nullptr;
  PassId pass_;  // settled
  bool under_way_ = false, computes_ = false, may_begin_ = false, extends_ = false;
  bool asks_to_end_ = false, has_asked_ = false, ends_ = false;
  std::atomic<int> leaver_{-1};
  std::optional<Error> error_;
  int liar_ = -1;  // whose word could not be used
  Word mine_;      // of the agreement under way
  PrefillDelayer delayer_;
  std::vector<PrefillVote> votes_;               // [ranks]
  std::vector<Load> loads_;                      // [ranks]
  std::vector<AllToAll::Parts> parts_;           // [ranks]
  std::optional<TimePoint> begun_;               // the step with rows that runs
  std::array<std::optional<Duration>, 2> took_;  // the last step, by mode
};

}  // namespace hocket
