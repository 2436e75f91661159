// Sends messages over UCX: TCP and InfiniBand between hosts, shared memory within one.
//
//   create -> address() .. the caller carries all addresses .. connect(all) -> a Transport
//
// Every rank has one worker, and every pair of ranks one endpoint on each side. Over TCP messages
// are eager: they are pushed without a request, so the kernel carries what fits into its buffers
// while both sides compute; a rendezvous would wait for the receiver
// (docs/contracts/expert_parallel.md). Only the first message to a peer over TCP waits until the
// peer looks too (in progress() or wait()), because the connection is made then.
//
// A rank is lost when its connection breaks, when its process on this host ends, or when it closes
// its end. Silence is not noticed here; the control plane does that.
//
// describe() returns the settings of UCX. The user's variables UCX_* have priority and are named
// there. The first create() loads the library and sets environment variables that the user has not
// set (kUcxVariables of ucx_settings.h): then UCX neither takes our signals nor writes to standard
// output, and connecting does not block. No other thread may read or set variables during that
// call.
//
// Thread: one thread creates, connects, uses and destroys it; any thread may call wake().
// After warm-up a message allocates nothing here; UCX keeps pools of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>

#include "compute/comm/transport.h"

namespace hocket {

struct UcxOptions {
  // The ways that may be used, in the form of UCX_TLS: "tcp", "posix,self". Empty: shared memory
  // within a host; between hosts InfiniBand if there is a card, else TCP.
  std::string tls;
  std::string devices;  // in the form of UCX_NET_DEVICES: "eth0"; empty: all
  uint32_t epoch = 0;   // epoch of the membership; equal on all ranks
  // Longest wait for peers in withdraw() and in the destructor.
  Duration patience = std::chrono::milliseconds(500);
};

class UcxTransport : public Transport {
 public:
  // Creates an end, not yet connected.
  // Errors: io (this build or this machine is without UCX), bad_value (a way or device does not
  // exist; the error names those that do).
  static Result<std::unique_ptr<UcxTransport>> create(int rank, int num_ranks,
                                                      const UcxOptions& options);
  // Tells the peers and waits, at most `patience`, until they have all messages under way.
  ~UcxTransport() override = default;

  // Returns what the peers need to connect, as opaque bytes that live as long as this object.
  virtual std::span<const std::byte> address() const = 0;
  // Why there is no connection, and to which peer.
  struct UnreachableRank : Error {
    int rank = -1;
  };
  // Sets what messages to and from each rank must carry; zeros if it is not called. UCX gives a
  // receiver any message with the right tag, from whichever connection, so a proof at the start of
  // a connection would bind nothing behind it: each message has to carry one. Those without the
  // right secret are never received. A rank that has received a message from a peer knows that the
  // peer had the secret. Bytes on the way are not encrypted. To be called before connect().
  struct Secret {
    uint64_t in = 0, out = 0;  // the lower kSecretBits count
  };
  static constexpr int kSecretBits = 51;
  virtual void set_secrets(std::span<const Secret> of_ranks) = 0;
  // Connects to all ranks; to be called once, before any message. addresses[rank] are those of all
  // ranks, this one's too; an empty one is that of an absent rank, which gets no message and sends
  // none. Peers may call it later. Errors: lost_rank (an address of another epoch, version or rank,
  // or one that cannot be reached from here).
  virtual std::expected<void, UnreachableRank> connect(
      std::span<const std::span<const std::byte>> addresses) = 0;
  // Returns "ucx 1.13.1 | tcp on eth0 | eager | TCP_CONN_NB=y | TCP_RX_SEG_SIZE=256k".
  virtual std::string describe() const = 0;
};

// Returns the ways within one host, for UcxOptions::tls: shared memory, and copies from process to
// process where they are allowed.
std::string ucx_tls_of_one_host();
// Loads the library of this machine and returns its version, "1.13.1". Errors: io, with what to
// install.
Result<std::string> ucx_version();

}  // namespace hocket
