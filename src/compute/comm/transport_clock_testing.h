// The clock of a transport: real time, or the virtual time of its hub.
#pragma once

#include "base/clock.h"
#include "compute/comm/transport.h"

namespace hocket {

// Borrows the transport.   Thread: the transport's.
class TransportClock final : public Clock {
 public:
  explicit TransportClock(const Transport& transport) : transport_(transport) {}
  TimePoint now() const override { return transport_.now(); }

 private:
  const Transport& transport_;
};

}  // namespace hocket
