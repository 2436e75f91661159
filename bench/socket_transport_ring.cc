// SocketTransport by requests of io_uring: each peer has one to receive and at most one to send.
#include <utility>

#include "bench/socket_transport.h"

namespace hocket {
namespace {

// A request of the ring is named by its peer, and what it sends or that it receives.
constexpr uint64_t kIn = 0xff;

uint64_t request_id(size_t peer, uint64_t what) {
  return uint64_t{peer} << 8 | what;
}

}  // namespace

void SocketTransport::request_in(Peer& p) {
  ring_->receive(p.fd, next_in(p), request_id(&p - peers_.data(), kIn));
}

// The kernel sends one message of a peer at a time, so that they stay in order.
void SocketTransport::request_out(Peer& p) {
  if (p.queue.empty() || p.is_sending || p.lost) return;
  p.is_sending = true;
  p.message = next_out(p);
  ring_->send(p.fd, p.message, never_copies() ? IoRing::Copy::never : IoRing::Copy::once,
              request_id(&p - peers_.data(), p.queue.front() - p.flows.data()));
}

void SocketTransport::complete(const IoRing::Completion& done) {
  Peer& p = peers_.at(done.id >> 8);
  const uint64_t what = done.id & 0xff;
  if (what != kIn && (done.has_notice || done.is_notice)) {
    Flow& f = p.flows.at(what);
    f.num_unfreed += done.is_notice ? -1 : 1;
    if (done.is_notice) {
      free_if_sent(f);
      has_events_ = true;
      return;
    }
  }
  if (what != kIn) p.is_sending = false;
  if (done.result <= 0) return lose(p);
  if (what == kIn) {
    took_in(p, static_cast<size_t>(done.result));
    request_in(p);
  } else {
    took_out(p, static_cast<size_t>(done.result));
    request_out(p);
  }
}

bool SocketTransport::progress_ring() {
  while (const auto done = ring_->next()) complete(*done);
  ring_->submit();
  return std::exchange(has_events_, false);
}

}  // namespace hocket
