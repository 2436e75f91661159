#include "server/ranks/peer_book.h"

#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr Duration kAddressRetry = std::chrono::milliseconds(500);  // after one was not found

std::string key_of(int rank) {
  return fmt::format("http/{}", rank);
}

// Errors: bad_value; not_found; io for an unknown host name.
Result<PeerPlace> parse_entry(std::string_view text, std::string_view boot_id) {
  const size_t space = text.find(' '), last = text.rfind(' ');
  if (space == text.npos || text.substr(0, space) != boot_id)
    return fail(ErrorCode::not_found, "it has not said yet where it takes requests");
  if (space == last) return fail(ErrorCode::bad_value, "it has published no key");
  HOCKET_TRY(const HostPort place, parse_host_port(text.substr(space + 1, last - space - 1)));
  HOCKET_TRY(const auto addresses, resolve(place));
  return PeerPlace{.address = addresses.front(), .key = std::string(text.substr(last + 1))};
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
    std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<PeerPlace> PeerBook::place(const Identity& peer) const {
  std::lock_guard lock(mutex_);
  const Entry& entry = entries_[static_cast<size_t>(peer.rank)];
  return entry.boot_id == peer.boot_id ? entry.place : std::nullopt;
}

void PeerBook::forget(int rank) {
  std::lock_guard lock(mutex_);
  entries_[static_cast<size_t>(rank)].place.reset();
}

void PeerBook::run() {
  uint64_t told = 0;  // number of the change after which this rank published; 0: never
  uint64_t seen = 0;  // number of the change that `view` shows
  ClusterView view;
  for (;;) {
    const uint64_t changes = cluster_.num_changes();
    if (changes != told && publish()) told = changes;
    if (changes != seen) view = cluster_.view(), seen = changes;
    for (size_t rank = 0; rank < view.members.size(); ++rank)
      if (static_cast<int>(rank) != cluster_.self().rank &&
          view.members[rank].presence == Presence::in)
        look_up(static_cast<int>(rank), view.members[rank].identity);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kLook, [this] { return stopping_; })) return;
  }
}

bool PeerBook::publish() {
  const auto said = cluster_.set(key_of(cluster_.self().rank), own_);
  if (!said) log::debug("peers: not published why=\"{}\"", said.error().message);
  return said.has_value();
}

void PeerBook::look_up(int rank, const Identity& identity) {
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(rank)];
    if (entry.boot_id != identity.boot_id) entry = {.boot_id = identity.boot_id};
    const TimePoint now = RealClock().now();
    if (stopping_ || entry.place || now - entry.asked < kAddressRetry) return;
    entry.asked = now;
  }
  const auto said = cluster_.get(key_of(rank));
  if (!said) return;  // it has not published yet, or rank 0 is not there
  auto place = parse_entry(*said, identity.boot_id);
  if (!place) {
    if (place.error().code != ErrorCode::not_found)
      log::warning("peers: the address of {} cannot be used here: {}", name_of(identity),
                   place.error().message);
    return;
  }
  std::lock_guard lock(mutex_);
  entries_[static_cast<size_t>(rank)].place = *std::move(place);
}

}  // namespace hocket
