#include "server/ranks/rank_chooser.h"

#include <algorithm>

namespace hocket {
namespace {

constexpr Duration kAvoid = std::chrono::seconds(1);            // after a refusal
constexpr Duration kLoadDelay = std::chrono::milliseconds(20);  // no load counts a request earlier

}  // namespace

RankChooser::RankChooser(const RankPeers& peers, const Engine& engine, RoutingPolicy routing)
    : peers_(peers),
      engine_(engine),
      router_(peers.num_ranks(), {.policy = routing}),
      last_loads_(static_cast<size_t>(peers.num_ranks())),
      avoid_until_(last_loads_.size()) {}

Result<int> RankChooser::choose(const PreparedRequest& prepared, const ClusterView& view) {
  return router_.choose(cache_namespace_of(prepared.request), prepared.prompts.front(),
                        loads(view));
}

// Returns the loads of all ranks. A forwarded request is added here until its rank's load includes
// it: until another load arrived at least kLoadDelay after the request.
std::vector<RankLoad> RankChooser::loads(const ClusterView& view) {
  std::vector<RankLoad> loads = engine_.loads();
  loads.resize(last_loads_.size());
  const TimePoint now = RealClock().now();
  const RankSet present = view.present();
  std::vector<bool> changed(loads.size());
  for (size_t r = 0; r < loads.size(); ++r) {
    changed[r] = loads[r] != last_loads_[r];
    last_loads_[r] = loads[r];
    const bool is_in = present.has(static_cast<int>(r));
    const bool is_own = static_cast<int>(r) == peers_.rank();
    if (!is_in ||
        (!is_own && (!peers_.endpoint_of(view.members[r].identity) || now < avoid_until_[r])))
      loads[r].takes_requests = false;
  }
  for (auto& [ticket, forwarded] : forwarded_) {
    const auto r = static_cast<size_t>(forwarded.rank);
    if (changed[r] && now - forwarded.since >= kLoadDelay) forwarded.in_load = true;
    if (forwarded.in_load) continue;
    loads[r].num_requests += forwarded.load.num_requests;
    loads[r].num_tokens += forwarded.load.num_tokens;
  }
  return loads;
}

void RankChooser::add(uint64_t ticket, int rank, const RankLoad& load) {
  forwarded_.emplace(ticket, Forwarded{.rank = rank, .load = load, .since = RealClock().now()});
}

void RankChooser::avoid(int rank) {
  avoid_until_[static_cast<size_t>(rank)] = RealClock().now() + kAvoid;
}

void RankChooser::stop_avoiding() {
  std::ranges::fill(avoid_until_, TimePoint{});
}

void RankChooser::forget_all() {
  for (size_t r = 0; r < last_loads_.size(); ++r) router_.forget(static_cast<int>(r));
}

}  // namespace hocket
