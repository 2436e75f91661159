#include "server/ranks/role_sender.h"

#include <new>
#include <utility>

#include "base/log.h"
#include "server/access/access_check.h"
#include "server/http/json_body.h"

namespace hocket {

class RoleSender::Sink final : public HttpSink {
 public:
  Sink(std::shared_ptr<Receiver> receiver, Identity rank)
      : receiver_(std::move(receiver)), rank_(std::move(rank)) {}
  bool head(int status, HttpHeaders&&) override {
    status_ = status;
    return true;
  }
  bool body(std::string_view) override { return true; }
  void end(HttpEnd how, const std::string&) override {
    const bool has_it = how == HttpEnd::whole && status_ == 200;
    {
      const MutexLock lock(receiver_->mutex);
      receiver_->is_under_way = false;
      if (has_it) receiver_->boot_id = rank_.boot_id;
    }
    if (has_it)
      log::info("{} has joined, and got the --disaggregation-mode of this rank", name_of(rank_));
  }

 private:
  const std::shared_ptr<Receiver> receiver_;
  const Identity rank_;
  int status_ = 0;
};

RoleSender::RoleSender(RankPeers& peers, const PrefillRole* role) : peers_(peers), role_(role) {
  for (int i = 0; i < peers.num_ranks(); ++i) ranks_.push_back(std::make_shared<Receiver>());
}

void RoleSender::check(const ClusterView& view) {
  if (role_ == nullptr || !view.present().has(peers_.rank())) return;
  for (const Member& member : view.members) {
    const Identity& rank = member.identity;
    if (member.state != MemberState::member || rank.rank == peers_.rank()) continue;
    if (has_begun_ && role_->mode() != role_->mode_at_start()) {
      tell(rank);
      continue;
    }
    Receiver& receiver = *ranks_[static_cast<size_t>(rank.rank)];
    const MutexLock lock(receiver.mutex);
    receiver.boot_id = rank.boot_id;
  }
  has_begun_ = true;
}

void RoleSender::tell(const Identity& rank) {
  const std::shared_ptr<Receiver>& receiver = ranks_[static_cast<size_t>(rank.rank)];
  const auto to = peers_.endpoint_of(rank);
  if (!to) return;
  const TimePoint now = RealClock().now();
  {
    const MutexLock lock(receiver->mutex);
    if (receiver->boot_id == rank.boot_id || receiver->is_under_way || now < receiver->next) return;
    receiver->is_under_way = true;
    receiver->next = now + kRetry;
  }
  const auto sink = std::make_shared<Sink>(receiver, rank);
  try {
    HttpRequest asked;
    asked.path = "/disaggregation_mode";
    asked.body = to_text(Json{{"mode", disaggregation_name(role_->mode())}});
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
