#include "cluster/link_monitor.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

constexpr std::string_view kWords = "hocket link";

// A datagram: the words, three numbers in host byte order (ranks of other orders are not
// supported), the boot id of its sender, and the signature of all these.
struct Numbers {
  uint32_t from = 0, to = 0;
  uint64_t number = 0;
  std::array<char, 16> boot_id{};
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

template <class Name>
SocketAddress to_address(const Name& name) {
  SocketAddress address;
  std::memcpy(&address.storage, &name, sizeof name);
  address.length = sizeof name;
  return address;
}

Fd open_datagrams(const SocketAddress& at) {
  Fd fd(socket(at.storage.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // The one socket is for both families; where the host forbids that, its own family is left.
  const int no = 0;
  if (fd && at.storage.ss_family == AF_INET6)
    (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) != 0)
    fd = Fd();
  return fd;
}

// Opens a socket at a free port of every address, of IPv4 alone where the host has no IPv6.
Fd open_datagrams() {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  if (Fd fd = open_datagrams(to_address(any6))) return fd;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  return open_datagrams(to_address(any));
}

}  // namespace

Result<SocketAddress> datagram_address(std::string_view address, int family) {
  HOCKET_TRY(const HostPort where, parse_host_port(address));
  constexpr std::string_view kMapped = "::ffff:";
  if (family == AF_INET) {
    const bool is_mapped = where.host.starts_with(kMapped);
    const std::string host = where.host.substr(is_mapped ? kMapped.size() : 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(where.port);
    if (inet_pton(AF_INET, host.c_str(), &name.sin_addr) == 1) return to_address(name);
    return fail(error(ErrorCode::bad_value, "this host has sockets of IPv4 alone")
                    .with_fix("let this host use IPv6, or give all ranks addresses of IPv4"));
  }
  const bool is_v6 = where.host.find(':') != std::string::npos;
  const std::string host = fmt::format("{}{}", is_v6 ? "" : kMapped, where.host);
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_port = htons(where.port);
  if (inet_pton(AF_INET6, host.c_str(), &name.sin6_addr) != 1)
    return fail(error(ErrorCode::bad_value, "it is no address of IPv4 or IPv6")
                    .with_fix("run the same binary on all ranks"));
  if (IN6_IS_ADDR_LINKLOCAL(&name.sin6_addr) != 0)
    return fail(error(ErrorCode::bad_value,
                      "a link-local address needs the name of a network device beside it")
                    .with_fix("no link-local addresses for ranks"));
  return to_address(name);
}

LinkMonitor::BootId LinkMonitor::field_of(std::string_view boot_id) {
  BootId field{};
  boot_id.copy(field.data(), field.size());
  return field;
}

LinkMonitor::LinkMonitor(const ClusterOptions& options, const Identity& self)
    : options_(options),
      rank_(self.rank),
      boot_id_(field_of(self.boot_id)),
      peers_(static_cast<size_t>(self.num_ranks)) {
  // Without a store rank 0 coordinates for ever, and is heard by all.
  if ((rank_ == 0 && !options.store) || self.num_ranks <= 2) return;
  socket_ = open_datagrams();
  if (!socket_)
    log::warning(
        "cluster: cuts between two ranks that do not coordinate are noticed late, because "
        "there is no socket: {}",
        std::strerror(errno));
}

std::string LinkMonitor::port() const {
  return socket_ ? std::to_string(local_address(socket_).port()) : "";
}

void LinkMonitor::receive(TimePoint now) {
  std::array<char, 256> bytes;
  int num_strange = 0;
  for (int i = 0; i < kMaxRead; ++i) {
    const ssize_t n = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (n < 0) break;
    const auto numbers =
        read_datagram(std::string_view(bytes.data(), static_cast<size_t>(n)), options_.token);
    const bool is_for_us =
        numbers && numbers->from < peers_.size() && static_cast<int>(numbers->to) == rank_ &&
        note(peers_[numbers->from],
             {.boot_id = numbers->boot_id, .number = numbers->number, .when = now});
    if (!is_for_us) ++num_strange;
  }
  if (num_strange < kFlood) return;
  if (!last_flood_)
    log::warning(
        "cluster: strangers flood the port {} for datagrams of ranks: cuts between two ranks that "
        "do not coordinate are noticed late meanwhile. To fix it: let only ranks reach the ports "
        "of this "
        "host",
        port());
  last_flood_ = now;
}

bool LinkMonitor::note(Peer& peer, const LastDatagram& heard) {
  if (heard.boot_id != field_of(peer.boot_id)) {
    if (heard.boot_id == peer.other.boot_id && heard.number <= peer.other.number) return false;
    peer.other = heard;
    return true;
  }
  if (heard.number <= peer.number) return false;
  peer.number = heard.number;
  peer.is_heard = true;
  peer.last_heard = heard.when;
  return true;
}

// A process that was started again has another address, and so has one that has stopped or begun to
// coordinate. It is sent to at once, since a cut is noticed only between ranks that have heard each
// other. The first datagram of a process may have arrived before its identity.
void LinkMonitor::follow(const ClusterView& view, TimePoint now) {
  for (size_t r = 0; r < peers_.size() && r < view.members.size(); ++r) {
    const Member& member = view.members[r];
    Peer& peer = peers_[r];
    // The coordinator has a connection to every rank, and its own address has no host.
    if (rank_ == view.coordinator || static_cast<int>(r) == view.coordinator) peer.is_heard = false;
    const Identity& its = member.identity;
    const bool same_process = peer.boot_id == its.boot_id;
    if (same_process && peer.published_address == its.address) continue;
    if (!same_process) {
      LastDatagram heard = {.boot_id = field_of(its.boot_id)};
      if (peer.other.boot_id == heard.boot_id) heard = peer.other;
      peer.other = {field_of(peer.boot_id), peer.number, peer.last_heard};
      peer.number = heard.number;
      peer.last_heard = heard.when;
      peer.is_heard = heard.number > 0 && now - heard.when < 2 * options_.limits.heartbeat;
    }
    const auto address = datagram_address(its.address, local_address(socket_).storage.ss_family);
    peer.boot_id = its.boot_id;
    peer.published_address = its.address;
    peer.address = address ? std::optional(*address) : std::nullopt;
    next_heartbeat_ = now;
    const bool is_known = address || its.address.empty();
    if (is_known || static_cast<int>(r) == rank_ || static_cast<int>(r) == view.coordinator)
      continue;
    log::warning(
        "cluster: no datagrams can be sent to {} at {}, so a cut of the link to it is noticed "
        "late, by messages that do not come: {}. To fix it: {}",
        name_of(its), its.address, address.error().message, address.error().fix);
  }
  if (!view.serves())
    serves_since_.reset();
  else if (!serves_since_ || view.present() != judged_)
    serves_since_ = now;
  judged_ = view.present();
}

void LinkMonitor::send_to(int rank) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (rank == rank_ || !peer.address) return;
  const Datagram made = write_datagram({.from = static_cast<uint32_t>(rank_),
                                        .to = static_cast<uint32_t>(rank),
                                        .number = ++number_,
                                        .boot_id = boot_id_},
                                       options_.token);
  // One that is lost is followed by others.
  (void)!sendto(socket_.get(), made.data(), made.size(), MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&peer.address->storage), peer.address->length);
}

RankSet LinkMonitor::unreachable(TimePoint now) const {
  RankSet ranks;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    const TimePoint since = std::max(peer.last_heard, last_flood_.value_or(peer.last_heard));
    if (peer.is_heard && now - since >= options_.limits.suspect_after) ranks.add(rank);
  }
  return ranks;
}

// Ranks are judged from the return of the last on, so that they have the same time after each.
std::optional<LinkMonitor::SilentRank> LinkMonitor::tick(const ClusterView& view, TimePoint now) {
  if (!socket_) {
    next_heartbeat_ = TimePoint::max();
    return std::nullopt;
  }
  follow(view, now);
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.limits.heartbeat;
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) send_to(rank);
  }
  if (!serves_since_ || !judged_.has(rank_)) return std::nullopt;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank == rank_ || !peer.is_heard || !judged_.has(rank)) continue;
    const Duration silence =
        now - std::max({peer.last_heard, *serves_since_, last_flood_.value_or(*serves_since_)});
    if (silence >= options_.limits.lost_after) return SilentRank{rank, silence};
  }
  return std::nullopt;
}

}  // namespace hocket
