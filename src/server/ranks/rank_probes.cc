#include "server/ranks/rank_probes.h"

#include <new>
#include <utility>

namespace hocket {

class RankProbes::Sink final : public HttpSink {
 public:
  Sink(std::shared_ptr<Probed> probed, std::string boot_id)
      : probed_(std::move(probed)), boot_id_(std::move(boot_id)) {}
  bool head(int, HttpHeaders&&) override { return true; }
  bool body(std::string_view) override { return true; }
  // Any status is an answer.
  void end(HttpEnd how, const std::string&) override {
    const MutexLock lock(probed_->mutex);
    if (probed_->boot_id != boot_id_) return;
    probed_->is_under_way = false;
    if (how == HttpEnd::whole)
      probed_->num_unanswered = 0;
    else if (how != HttpEnd::cancelled)
      ++probed_->num_unanswered;
  }

 private:
  const std::shared_ptr<Probed> probed_;
  const std::string boot_id_;
};

RankProbes::RankProbes(RankPeers& peers, Duration interval) : peers_(peers), interval_(interval) {
  for (int i = 0; i < peers.num_ranks(); ++i) ranks_.push_back(std::make_shared<Probed>());
}

void RankProbes::probe(const Identity& rank, TimePoint now) {
  const std::shared_ptr<Probed>& probed = ranks_[static_cast<size_t>(rank.rank)];
  {
    const MutexLock lock(probed->mutex);
    if (probed->boot_id != rank.boot_id) {
      probed->boot_id = rank.boot_id;
      probed->num_unanswered = 0;
      probed->is_under_way = false;
      probed->next = {};
    }
    if (probed->is_under_way || now < probed->next) return;
    probed->is_under_way = true;
    probed->next = now + interval_;
  }
  const auto sink = std::make_shared<Sink>(probed, rank.boot_id);
  const auto to = peers_.endpoint_of(rank);
  // Nothing is sent, so nothing is learned of the rank.
  if (!to) return sink->end(HttpEnd::cancelled, "its address is not known");
  try {
    HttpRequest asked;
    asked.path = "/livez";
    HttpCall call = peers_.call_to(*to, asked);
    call.method = "GET";
    call.max_time = interval_;
    call.connect_timeout = interval_;  // a busy rank may take long for a handshake
    call.is_counted = false;           // it must be sent when there are as many calls as may be
    if (peers_.client().start(std::move(call), sink) == 0) sink->end(HttpEnd::cancelled, "");
  } catch (const std::bad_alloc&) {
    sink->end(HttpEnd::cancelled, "no memory");
  }
}

int RankProbes::num_unanswered(const Identity& rank) const {
  const Probed& probed = *ranks_[static_cast<size_t>(rank.rank)];
  const MutexLock lock(probed.mutex);
  return probed.boot_id == rank.boot_id ? probed.num_unanswered : 0;
}

bool RankProbes::is_silent(const Identity& rank) const {
  return num_unanswered(rank) >= kMaxUnanswered;
}

bool RankProbes::is_doubtful(const Identity& rank) const {
  return num_unanswered(rank) > 0;
}

}  // namespace hocket
