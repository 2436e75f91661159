#include "server/ranks/role_sender.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/log.h"
#include "server/access/access_check.h"
#include "server/http/json_body.h"
#include "server/ranks/peer_broadcast.h"

namespace hocket {
namespace {

constexpr size_t kMaxRoleAnswer = 64 << 10;

}  // namespace

bool is_role_sender(int rank, int receiver, const RankSet& present) {
  for (int lower = 0; lower < std::min(rank, receiver); ++lower)
    if (present.has(lower)) return false;
  return true;
}

std::string role_change_body(const RoleChange& change) {
  return to_text(Json{{"mode", disaggregation_name(change.mode)}, {"change", change.number}});
}

class RoleSender::Sink final : public HttpSink {
 public:
  Sink(std::shared_ptr<Receiver> receiver, Identity rank, const RoleChange& change)
      : receiver_(std::move(receiver)), rank_(std::move(rank)), change_(change) {
    answer_.name = name_of(rank_);
  }
  bool head(int status, HttpHeaders&&) override {
    answer_.status = status;
    return true;
  }
  bool body(std::string_view piece) override {
    answer_.body += piece;
    return answer_.body.size() <= kMaxRoleAnswer;
  }
  void end(HttpEnd how, const std::string&) override {
    const bool is_whole = how == HttpEnd::whole;
    const bool has_it = is_whole && answer_.status == 200;
    bool refuses_first = false;
    {
      const MutexLock lock(receiver_->mutex);
      receiver_->is_under_way = false;
      if (has_it) {
        receiver_->boot_id = rank_.boot_id;
        receiver_->told = change_;
      } else if (is_whole) {
        refuses_first = std::exchange(receiver_->refuser, rank_.boot_id) != rank_.boot_id;
      }
    }
    if (has_it)
      log::info("{} has got the --disaggregation-mode {} of this rank", answer_.name,
                disaggregation_name(change_.mode));
    if (refuses_first)
      log::warning("--disaggregation-mode {} is not taken, and is sent again each second: {}",
                   disaggregation_name(change_.mode), error_text(answer_));
  }

 private:
  const std::shared_ptr<Receiver> receiver_;
  const Identity rank_;
  const RoleChange change_;
  PeerAnswer answer_;
};

RoleSender::RoleSender(RankPeers& peers, const PrefillRole* role) : peers_(peers), role_(role) {
  for (int i = 0; i < peers.num_ranks(); ++i) ranks_.push_back(std::make_shared<Receiver>());
}

void RoleSender::check(const ClusterView& view) {
  if (role_ == nullptr) return;
  const RoleChange change = role_->last_change();
  const RankSet present = view.present();
  if (change.number == 0 || !present.has(peers_.rank())) return;
  for (const Member& member : view.members) {
    const int rank = member.identity.rank;
    if (rank != peers_.rank() && present.has(rank) && is_role_sender(peers_.rank(), rank, present))
      tell(member.identity, change);
  }
}

void RoleSender::tell(const Identity& rank, const RoleChange& change) {
  const std::shared_ptr<Receiver>& receiver = ranks_[static_cast<size_t>(rank.rank)];
  const TimePoint now = RealClock().now();
  std::optional<PeerEndpoint> to;  // a copy, which is made only for a rank that lacks the change
  {
    const MutexLock lock(receiver->mutex);
    const bool has_it = receiver->boot_id == rank.boot_id && !receiver->told.is_before(change);
    if (has_it || receiver->is_under_way || now < receiver->next) return;
    to = peers_.endpoint_of(rank);
    if (!to) return;
    receiver->is_under_way = true;
    receiver->next = now + kRetry;
  }
  const auto sink = std::make_shared<Sink>(receiver, rank, change);
  try {
    HttpRequest asked;
    asked.path = "/disaggregation_mode";
    asked.body = role_change_body(change);
    HttpCall call = peers_.call_to(*to, asked);
    for (auto& header : principal_headers({.name = "rank", .role = Role::admin}))
      call.headers.push_back(std::move(header));
    call.max_time = call.connect_timeout = kRetry;
    call.is_counted = false;
    if (peers_.client().start(std::move(call), sink) == 0) sink->end(HttpEnd::cancelled, "");
  } catch (const std::bad_alloc&) {
    sink->end(HttpEnd::cancelled, "no memory");
  }
}

}  // namespace hocket
