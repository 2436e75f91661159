#include "cluster/link_watch.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "cluster/auth.h"

namespace hocket {
namespace {

constexpr std::string_view kWords = "hocket link";

// A datagram: the words, three numbers in host byte order (ranks of other orders are not
// supported), and the signature of all these.
struct Numbers {
  uint32_t from = 0, to = 0;
  uint64_t number = 0;
};
constexpr size_t kSigned = kWords.size() + sizeof(Numbers);
constexpr size_t kBytes = kSigned + sizeof(Proof);
using Datagram = std::array<char, kBytes>;

Datagram write_datagram(const Numbers& numbers, std::string_view token) {
  Datagram made;
  std::ranges::copy(kWords, made.begin());
  std::memcpy(made.data() + kWords.size(), &numbers, sizeof numbers);
  const Proof proof = sign(token, std::string_view(made.data(), kSigned));
  std::memcpy(made.data() + kSigned, proof.data(), proof.size());
  return made;
}

std::optional<Numbers> read_datagram(std::string_view bytes, std::string_view token) {
  if (bytes.size() != kBytes || !bytes.starts_with(kWords)) return std::nullopt;
  Proof proof;
  std::memcpy(proof.data(), bytes.data() + kSigned, proof.size());
  if (!same_proof(proof, sign(token, bytes.substr(0, kSigned)))) return std::nullopt;
  Numbers numbers;
  std::memcpy(&numbers, bytes.data() + kWords.size(), sizeof numbers);
  return numbers;
}

// Returns the address in an identity; nullopt if it is not one of IPv4.
std::optional<SocketAddress> address_of(const Identity& identity) {
  const auto where = parse_host_port(identity.address);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  if (!where || inet_pton(AF_INET, where->host.c_str(), &name.sin_addr) != 1) return std::nullopt;
  name.sin_port = htons(where->port);
  SocketAddress address;
  std::memcpy(&address.storage, &name, sizeof name);
  address.length = sizeof name;
  return address;
}

// Opens a socket at a free port of every address.
Fd open_datagrams() {
  Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  if (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) fd = Fd();
  return fd;
}

}  // namespace

LinkWatch::LinkWatch(const ClusterOptions& options, int rank, int num_ranks)
    : options_(options), rank_(rank), peers_(static_cast<size_t>(num_ranks)) {
  // Without a store rank 0 coordinates for ever, and is heard by all.
  if ((rank == 0 && !options.store) || num_ranks <= 2) return;
  socket_ = open_datagrams();
  if (!socket_)
    log::warning(
        "cluster: cuts between two ranks that do not coordinate are noticed late, because "
        "there is no socket: {}",
        std::strerror(errno));
}

std::string LinkWatch::port() const {
  return socket_ ? std::to_string(local_address(socket_).port()) : "";
}

void LinkWatch::receive(TimePoint now) {
  std::array<char, 256> bytes;
  int num_strange = 0;
  for (int i = 0; i < kMaxRead; ++i) {
    const ssize_t n = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (n < 0) break;
    const auto numbers =
        read_datagram(std::string_view(bytes.data(), static_cast<size_t>(n)), options_.token);
    if (!numbers || numbers->from >= peers_.size() || static_cast<int>(numbers->to) != rank_) {
      ++num_strange;
      continue;
    }
    Peer& peer = peers_[numbers->from];
    peer.is_heard = true;
    peer.last_heard = now;
  }
  if (num_strange < kFlood) return;
  if (!last_flood_)
    log::warning(
        "cluster: strangers flood the port {} for datagrams of ranks: cuts between two ranks that "
        "do not coordinate are noticed late meanwhile. To mend it: let only ranks reach the ports "
        "of this "
        "host",
        port());
  last_flood_ = now;
}

// A process that was started again has another address. It is sent to at once, since a cut is
// noticed only between ranks that have heard each other, and its first datagram may have come
// before its identity.
void LinkWatch::follow(const ClusterView& view, TimePoint now) {
  for (size_t r = 0; r < peers_.size() && r < view.members.size(); ++r) {
    const Member& member = view.members[r];
    Peer& peer = peers_[r];
    // The coordinator hears every rank by its connection, and its own address has no host.
    if (rank_ == view.coordinator || static_cast<int>(r) == view.coordinator) peer.is_heard = false;
    if (peer.boot_id == member.identity.boot_id) continue;
    const bool is_heard = peer.is_heard && now - peer.last_heard < 2 * options_.limits.heartbeat;
    peer = {.boot_id = member.identity.boot_id,
            .address = address_of(member.identity),
            .is_heard = is_heard,
            .last_heard = peer.last_heard};
    next_beat_ = now;
  }
  if (!view.serves())
    serves_since_.reset();
  else if (!serves_since_ || view.present() != judged_)
    serves_since_ = now;
  judged_ = view.present();
}

void LinkWatch::send_to(int rank) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (rank == rank_ || !peer.address) return;
  const Datagram made = write_datagram({.from = static_cast<uint32_t>(rank_),
                                        .to = static_cast<uint32_t>(rank),
                                        .number = ++number_},
                                       options_.token);
  // One that is lost is followed by others.
  (void)!sendto(socket_.get(), made.data(), made.size(), MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&peer.address->storage), peer.address->length);
}

// Ranks are judged from the return of the last on, so that they have the same time after each.
std::optional<LinkWatch::Silent> LinkWatch::tick(const ClusterView& view, TimePoint now) {
  if (!socket_) {
    next_beat_ = TimePoint::max();
    return std::nullopt;
  }
  follow(view, now);
  if (now >= next_beat_) {
    next_beat_ = now + options_.limits.heartbeat;
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) send_to(rank);
  }
  if (!serves_since_ || !judged_.has(rank_)) return std::nullopt;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank == rank_ || !peer.is_heard || !judged_.has(rank)) continue;
    const Duration silence =
        now - std::max({peer.last_heard, *serves_since_, last_flood_.value_or(*serves_since_)});
    if (silence >= options_.limits.lost_after) return Silent{rank, silence};
  }
  return std::nullopt;
}

}  // namespace hocket
