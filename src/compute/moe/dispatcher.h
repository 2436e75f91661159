// Brings rows to their experts and back. There are two implementations: local (all experts are
// here) and expert parallel (experts are spread over ranks, rows travel). Their results are
// bit-identical. With several ranks, RowExchange::choose_ranks_of_rows() (row_exchange.h) chooses
// the destination rank of each dispatched row.
//
//   dispatch_start   takes normed, peeks at routing, sets dispatched; rows leave
//   dispatch_wait    takes dispatched, sets arrived: rows of all ranks, sorted by the experts here
//   combine_start    takes computed, sets combining; results leave
//   combine_wait     takes combining, routing and shared_y, if it is set; adds to work.results
//
// If rows travel in parts, each dispatch_wait returns one part and each combine_start sends one
// back; with waves, one wave of a part. The first dispatch_wait takes `dispatched`, the last
// combine_start sets `combining`.
// Thread: engine; workers move the rows. Allocates nothing after construction.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

// The properties of a pass that all its ranks agreed on.
struct PassSpec {
  uint64_t step = 0;
  // decode: no rank has rows of prompts, nor more than ExchangeLimits::max_decode_rows.
  Phase phase = Phase::prefill;
  // Number of parts in which the rows of a half leave, and of waves in which the results of each
  // are sent back: powers of two, together at most ExchangeLimits::max_parts; 1 where nothing
  // travels. A part or wave has a portion of the half's rows, or in `decode` a portion of each
  // rank's experts. Each part is computed when it is here, in any sequence, wave by wave, and each
  // wave is sent back when it is done. Parts and waves change no bit.
  int parts = 1, waves = 1;
  // Added to the numbers of layers in the stamps of exchanges; passes of modules for multi-token
  // prediction have numbers of their own.
  int first_layer = 0;
};

// The objects that an exchange works on, borrowed for the call.
struct ExchangeContext {
  Backend& backend;
  WorkBuffers& work;
  int layer = 0;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  // Returns true if ranks wait for each other; then halves without rows take part as well.
  virtual bool exchanges() const = 0;
  // Called before the first operation of a pass. num_rows: the rows of all halves on this rank.
  virtual void begin_pass(const PassSpec& pass, int num_rows) = 0;

  virtual void dispatch_start(const ExchangeContext& context, Half& half) = 0;
  // Returns the next wave of the part in hand, if there is one. Else waits for the first part that
  // is here among those not yet returned.
  virtual void dispatch_wait(const ExchangeContext& context, Half& half) = 0;
  // Returns true if another dispatch_wait of this half is due in this layer. The combine_start of
  // the wave that was computed comes before it.
  virtual bool more_waves(const Half& half) const = 0;
  virtual void combine_start(const ExchangeContext& context, Half& half) = 0;
  // Waits for all waves of all parts.
  virtual void combine_wait(const ExchangeContext& context, Half& half) = 0;

  // Drives transfers without waiting; called between operations.
  virtual void progress() = 0;
  // The same inside an operation, between two tasks of its kernels.
  virtual void progress_inside() = 0;
  // Returns the error of the first failed exchange (lost_rank). After it nothing is exchanged,
  // waits return at once, no rows arrive, and the results of the pass are worthless.
  virtual Result<void> status() const = 0;
};

}  // namespace hocket
