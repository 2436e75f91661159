// Messages over UCX: TCP and InfiniBand between hosts, shared memory within one.
//
//   create -> address() .. who knows all carries them .. connect(all) -> a Transport
//
// Every rank has one worker, and every pair of ranks one endpoint on each side. Over TCP messages
// are eager: pushed without asking, so that the kernel carries what fits into its buffers while
// both sides compute; a rendezvous would wait for the receiver (docs/contracts/expert_parallel.md).
// Only the first message to a peer over TCP leaves no sooner than the peer looks too (in progress()
// or wait()), for the connection is made then.
// What UCX is told is in describe(). Variables UCX_* of the user go before it and are named there.
// A rank is lost when its connection breaks, when its process on this host ends, or when it closes
// its end. A black hole is not noticed here: that is the control plane's.
// The library is loaded by the first create(), which sets variables of this process where the user
// has not (kUcxVariables of ucx_settings.h): UCX then neither takes our signals nor writes to
// standard output, and connecting waits for nobody. No other thread may read or set variables
// meanwhile.
// Thread: create, connect, use and destroy by one; wake() by any.
// After warm-up a message allocates nothing here; UCX keeps pools of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compute/comm/transport.h"

namespace hocket {

struct UcxOptions {
  // The ways that may be taken, as UCX_TLS has them: "tcp", "posix,self". Empty: shared memory
  // within a host; between hosts InfiniBand where there is a card, else TCP.
  std::string tls;
  std::string devices;                                 // as UCX_NET_DEVICES: "eth0"; empty: all
  uint32_t epoch = 0;                                  // of the membership; equal on all ranks
  Duration patience = std::chrono::milliseconds(500);  // with peers, when this is closed
};

class UcxTransport : public Transport {
 public:
  // Errors: io (this build or this machine is without UCX), bad_value (no such way or device: it
  // names those there are).
  static Result<std::unique_ptr<UcxTransport>> create(int rank, int num_ranks,
                                                      const UcxOptions& options);
  // Tells the peers, waits at most `patience` until they have what is under way.
  ~UcxTransport() override = default;

  // What the peers need to connect; opaque. While this lives.
  virtual std::span<const std::byte> address() const = 0;
  // Once, before any message. addresses[rank] of all ranks, this one's too. Peers need not have
  // called it yet. Errors: lost_rank (an address of another epoch, version or rank, or that cannot
  // be reached from here).
  virtual Result<void> connect(std::span<const std::span<const std::byte>> addresses) = 0;
  // "ucx 1.13.1 | tcp on eth0 | eager | TCP_CONN_NB=y | TCP_RX_SEG_SIZE=256k"
  virtual std::string describe() const = 0;
};

// The ways within one host: shared memory, and copies from process to process where they are
// allowed. For UcxOptions::tls.
std::string ucx_tls_of_one_host();
// "1.13.1", of the library on this machine; loads it. Errors: io, with what to install.
Result<std::string> ucx_version();

}  // namespace hocket
