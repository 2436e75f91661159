#include "server/ranks/peer_book.h"

#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kLookUpInterval = std::chrono::milliseconds(100);
constexpr Duration kAddressRetry = std::chrono::milliseconds(500);  // after one was not found

std::string key_of(int rank) {
  return fmt::format("http/{}", rank);
}

// Errors: bad_value; not_found; io for an unknown host name.
Result<PeerEndpoint> parse_entry(std::string_view text, std::string_view boot_id) {
  const size_t space = text.find(' '), last = text.rfind(' ');
  if (space == text.npos || text.substr(0, space) != boot_id)
    return fail(ErrorCode::not_found, "its address is not known yet");
  if (space == last) return fail(ErrorCode::bad_value, "it has published no key");
  HOCKET_TRY(const HostPort endpoint, parse_host_port(text.substr(space + 1, last - space - 1)));
  HOCKET_TRY(const auto addresses, resolve(endpoint));
  return PeerEndpoint{.address = addresses.front(), .key = std::string(text.substr(last + 1))};
}

}  // namespace

PeerBook::PeerBook(ControlPlane& cluster, const HostPort& own, std::string_view key)
    : cluster_(cluster),
      own_(fmt::format("{} {} {}", cluster.self().boot_id, to_text(own), key)),
      entries_(static_cast<size_t>(cluster.self().num_ranks)) {
  thread_ = Thread({.name = "peers"}, [this] { run(); });
}

PeerBook::~PeerBook() {
  stop();
}

void PeerBook::stop() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<PeerEndpoint> PeerBook::endpoint(const Identity& peer) const {
  MutexLock lock(mutex_);
  const Entry& entry = entries_[static_cast<size_t>(peer.rank)];
  return entry.boot_id == peer.boot_id ? entry.endpoint : std::nullopt;
}

void PeerBook::forget(int rank) {
  MutexLock lock(mutex_);
  entries_[static_cast<size_t>(rank)].endpoint.reset();
}

void PeerBook::run() {
  uint64_t published = 0;  // number of the change after which this rank published; 0: never
  uint64_t seen = 0;       // number of the change that `view` shows
  ClusterView view;
  for (;;) {
    const uint64_t changes = cluster_.num_changes();
    if (changes != published && publish()) published = changes;
    if (changes != seen) view = cluster_.view(), seen = changes;
    for (size_t rank = 0; rank < view.members.size(); ++rank)
      if (static_cast<int>(rank) != cluster_.self().rank &&
          view.members[rank].presence == Presence::member)
        look_up(static_cast<int>(rank), view.members[rank].identity);
    MutexLock lock(mutex_);
    if (changed_.wait_for(lock, kLookUpInterval,
                          [this]() HOCKET_REQUIRES(mutex_) { return stopping_; }))
      return;
  }
}

bool PeerBook::publish() {
  const auto stored = cluster_.set(key_of(cluster_.self().rank), own_);
  if (!stored) log::debug("peers: not published why=\"{}\"", stored.error().message);
  return stored.has_value();
}

void PeerBook::look_up(int rank, const Identity& identity) {
  {
    MutexLock lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(rank)];
    if (entry.boot_id != identity.boot_id) entry = {.boot_id = identity.boot_id};
    const TimePoint now = RealClock().now();
    if (stopping_ || entry.endpoint || now - entry.asked < kAddressRetry) return;
    entry.asked = now;
  }
  const auto stored = cluster_.get(key_of(rank));
  if (!stored) return;  // it has not published yet, or rank 0 is not there
  auto endpoint = parse_entry(*stored, identity.boot_id);
  if (!endpoint) {
    if (endpoint.error().code != ErrorCode::not_found)
      log::warning("peers: the address of {} cannot be used here: {}", name_of(identity),
                   endpoint.error().message);
    return;
  }
  MutexLock lock(mutex_);
  entries_[static_cast<size_t>(rank)].endpoint = *std::move(endpoint);
}

}  // namespace hocket
