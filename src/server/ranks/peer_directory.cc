#include "server/ranks/peer_directory.h"

#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kLookUpInterval = std::chrono::milliseconds(100);
constexpr Duration kMissingInterval = std::chrono::milliseconds(20);  // while an address is missing
constexpr Duration kAddressRetry = std::chrono::seconds(1);  // after one that cannot be used

std::string key_of(int rank) {
  return fmt::format("http/{}", rank);
}

// Errors: bad_value; not_found; io for an unknown host name.
Result<PeerEndpoint> parse_entry(std::string_view text, std::string_view boot_id) {
  const size_t space = text.find(' '), last = text.rfind(' ');
  if (space == text.npos || text.substr(0, space) != boot_id)
    return fail(ErrorCode::not_found, "its address is not known yet");
  if (space == last) return fail(ErrorCode::bad_value, "the rank has not published its key");
  HOCKET_TRY(const HostPort endpoint, parse_host_port(text.substr(space + 1, last - space - 1)));
  HOCKET_TRY(const auto addresses, resolve(endpoint));
  return PeerEndpoint{.address = addresses.front(), .key = std::string(text.substr(last + 1))};
}

}  // namespace

PeerDirectory::PeerDirectory(ControlPlane& cluster, const HostPort& own, std::string_view key)
    : cluster_(cluster),
      own_(fmt::format("{} {} {}", cluster.self().boot_id, to_text(own), key)),
      entries_(static_cast<size_t>(cluster.self().num_ranks)) {
  publish();
  thread_ = Thread({.name = "peers"}, [this] { run(); });
}

PeerDirectory::~PeerDirectory() {
  stop();
}

void PeerDirectory::stop() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<PeerEndpoint> PeerDirectory::endpoint(const Identity& peer) const {
  MutexLock lock(mutex_);
  const Entry& entry = entries_[static_cast<size_t>(peer.rank)];
  return entry.boot_id == peer.boot_id ? entry.endpoint : std::nullopt;
}

void PeerDirectory::forget(int rank) {
  MutexLock lock(mutex_);
  entries_[static_cast<size_t>(rank)].endpoint.reset();
}

void PeerDirectory::run() {
  uint64_t seen = 0;  // number of the change that `view` shows
  ClusterView view;
  for (;;) {
    publish();
    const uint64_t changes = cluster_.num_changes();
    if (changes != seen) view = cluster_.view(), seen = changes;
    const Duration pause = look_up_all(view) ? kLookUpInterval : kMissingInterval;
    MutexLock lock(mutex_);
    if (changed_.wait_for(lock, pause, [this]() HOCKET_REQUIRES(mutex_) { return stopping_; }))
      return;
  }
}

void PeerDirectory::publish() {
  const uint64_t changes = cluster_.num_changes();
  if (changes == published_) return;
  const auto stored = cluster_.set(key_of(cluster_.self().rank), own_);
  if (stored)
    published_ = changes;
  else
    log::debug(
        "peers: the store did not take this rank's address, which is published again why=\"{}\"",
        stored.error().message);
}

// Looks up ranks whose address is not known, up to the first that has not published it; the next
// time begins behind that one. So ranks that load for minutes cost the store one question each
// time. Returns false if one was missing.
bool PeerDirectory::look_up_all(const ClusterView& view) {
  const size_t num_ranks = view.members.size();
  for (size_t i = 0; i < num_ranks; ++i) {
    const size_t rank = (first_ + i) % num_ranks;
    const Member& member = view.members[rank];
    if (static_cast<int>(rank) == cluster_.self().rank || member.state != MemberState::member ||
        look_up(static_cast<int>(rank), member.identity))
      continue;
    first_ = (rank + 1) % num_ranks;
    return false;
  }
  return true;
}

// Returns false if the rank has not published its address yet.
bool PeerDirectory::look_up(int rank, const Identity& identity) {
  {
    MutexLock lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(rank)];
    if (entry.boot_id != identity.boot_id) entry = {.boot_id = identity.boot_id};
    if (stopping_ || entry.endpoint || RealClock().now() < entry.not_before) return true;
  }
  const auto stored = cluster_.get(key_of(rank));
  if (!stored) return false;  // or the coordinator is not there
  auto endpoint = parse_entry(*stored, identity.boot_id);
  if (!endpoint && endpoint.error().code == ErrorCode::not_found) return false;
  MutexLock lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(rank)];
  if (endpoint) {
    entry.endpoint = *std::move(endpoint);
    return true;
  }
  entry.not_before = RealClock().now() + kAddressRetry;
  if (!std::exchange(entry.is_reported, true))
    log::warning("peers: the address of {} cannot be used here: {}; it is tried again each second",
                 name_of(identity), endpoint.error().message);
  return true;
}

}  // namespace hocket
