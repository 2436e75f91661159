#include "server/ranks/rank_peers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/access/access_check.h"
#include "server/access/request_sender.h"
#include "server/http/request_target.h"
#include "server/ranks/keeper_paths.h"

namespace hocket {

RankPeers::RankPeers(ControlPlane& cluster)
    : cluster_(cluster),
      view_(std::make_shared<ClusterView>()),
      lost_at_(static_cast<size_t>(cluster.self().num_ranks)) {}

void RankPeers::begin_calls(size_t max_calls, std::function<void()> on_tick) {
  client_ = std::make_unique<HttpClient>(HttpClient::Options{
      .max_calls = max_calls, .on_tick = std::move(on_tick), .tls = cluster_.tls()});
}

void RankPeers::open(const HostPort& own, std::string_view key) {
  auto directory = std::make_unique<PeerDirectory>(cluster_, own, key);
  MutexLock lock(mutex_);
  HOCKET_CHECK(directory_ == nullptr);
  directory_ = std::move(directory);
}

void RankPeers::stop() {
  client_->stop();
  MutexLock lock(mutex_);
  const auto directory = std::move(directory_);
  lock.unlock();
}

std::shared_ptr<const ClusterView> RankPeers::view() {
  MutexLock lock(mutex_);
  const uint64_t changes = cluster_.num_changes();
  if (changes == num_changes_) return view_;
  num_changes_ = changes;
  const auto before = std::exchange(view_, std::make_shared<ClusterView>(cluster_.view()));
  for (size_t r = 0; r < before->members.size(); ++r) {
    const Member &was = before->members[r], &is = view_->members[r];
    if (was.identity.boot_id != is.identity.boot_id)
      lost_at_[r] = {};
    else if (was.state == MemberState::member && is.state != MemberState::member)
      lost_at_[r] = RealClock().now();
  }
  return view_;
}

TimePoint RankPeers::lost_at(int rank) const {
  MutexLock lock(mutex_);
  return lost_at_[static_cast<size_t>(rank)];
}

std::optional<PeerEndpoint> RankPeers::endpoint_of(const Identity& peer) const {
  MutexLock lock(mutex_);
  return directory_ ? directory_->endpoint(peer) : std::nullopt;
}

void RankPeers::forget_address(int rank) {
  MutexLock lock(mutex_);
  if (directory_) directory_->forget(rank);
}

HttpCall RankPeers::call_to(const PeerEndpoint& to, const HttpRequest& asked) const {
  HttpCall call{.to = to.address, .target = encode_path(asked.path)};
  if (!asked.query.empty()) call.target += "?" + asked.query;
  call.body = asked.body;
  call.headers = {{kViaHeader, to_via(rank())}, {"Authorization", "Bearer " + to.key}};
  if (const Principal* principal = principal_of(asked); principal != nullptr)
    std::ranges::move(principal_headers(*principal), std::back_inserter(call.headers));
  return call;
}

}  // namespace hocket
