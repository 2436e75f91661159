// How rows get to their experts and back. Two implementations: local (all experts are here) and
// expert parallel (experts are spread over ranks, rows travel). The results differ in no bit.
//
//   dispatch_start   takes normed, peeks at routing, sets dispatched; rows leave
//   dispatch_wait    takes dispatched, sets arrived: rows of all ranks, sorted by the experts here
//   combine_start    takes computed, sets combining; results leave
//   combine_wait     takes combining, routing and shared_y; adds to the residual
//
// Of rows in parts, dispatch_wait hands out one after the other and combine_start sends each back;
// dispatched is taken with the first, combining is set with the last.
// Thread: engine; workers move the rows. Allocates nothing after construction.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/forward/half.h"
#include "compute/kernels/backend.h"

namespace hocket {

// What travels. counted: each row once to every rank that holds one of its experts, and one partial
// sum for each of its combine groups back; for prefill. slotted: each row once for every expert,
// and every expert's row back; for decode, where no rank has more than max_slotted_rows. Equal on
// all ranks in a pass.
enum class ExchangeMode : uint8_t { counted, slotted };

// A pass as its ranks agreed on it.
struct PassId {
  uint64_t step = 0;
  ExchangeMode mode = ExchangeMode::counted;
  // Messages that the rows of a half travel in: 1, 2 or 4; no more than ExchangeLimits::max_parts.
  // counted: parts of the half's rows; slotted: parts of the experts of each rank. Each is computed
  // when it is here, whichever comes first, and sent back when it is done. Changes no bit. One
  // where nothing travels.
  int parts = 1;
};

// What an exchange is given. Borrowed for the call.
struct ExchangeSite {
  Backend& backend;
  WorkBuffers& work;
  int layer = 0;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  // Whether ranks wait for each other: then halves without rows take part as well.
  virtual bool exchanges() const = 0;
  // Before the first operation of a pass. num_rows: those of all halves here.
  virtual void begin_pass(const PassId& pass, int num_rows) = 0;

  virtual void dispatch_start(const ExchangeSite& site, Half& half) = 0;
  // Of rows in parts: the part that is here first, of those not yet handed out.
  virtual void dispatch_wait(const ExchangeSite& site, Half& half) = 0;
  // Whether a dispatch_wait is still due for this half in this layer: then combine_start of the
  // part that was computed comes first.
  virtual bool more_parts(const Half& half) const = 0;
  virtual void combine_start(const ExchangeSite& site, Half& half) = 0;
  // All parts.
  virtual void combine_wait(const ExchangeSite& site, Half& half) = 0;

  // Moves what can move; for borders between operations.
  virtual void progress() = 0;
  // The first failed exchange (lost_rank). From then on nothing is exchanged, waits return at once,
  // no rows arrive, and what a pass computes is worthless.
  virtual Result<void> status() const = 0;
};

}  // namespace hocket
