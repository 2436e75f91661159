#include "server/ranks/peer_broadcast.h"

#include <utility>

#include "base/mutex.h"
#include "server/access/request_sender.h"
#include "server/http/error_map.h"

namespace hocket {
namespace {

// A rank that was lost may join again with what it knows, as long as records of streams are kept.
constexpr Duration kRemembers = std::chrono::seconds(60);

// The answers of all ranks that were asked; `done` is called when the last has answered.
struct Poll {
  Mutex mutex;
  std::vector<PeerAnswer> answers HOCKET_GUARDED_BY(mutex);
  size_t num_open HOCKET_GUARDED_BY(mutex) = 1;  // one for post_to_all() itself
  PeerBroadcast::Done done;

  void close_one() {
    MutexLock lock(mutex);
    if (--num_open > 0) return;
    std::vector<PeerAnswer> all = std::move(answers);
    lock.unlock();
    done(std::move(all));
  }
};

class PollSink final : public HttpSink {
 public:
  PollSink(std::shared_ptr<Poll> poll, size_t index, size_t max_bytes,
           std::shared_ptr<HeldBytes> held)
      : poll_(std::move(poll)), index_(index), max_bytes_(max_bytes), held_(std::move(held)) {}
  bool head(int status, HttpHeaders&&) override {
    status_ = status;
    return true;
  }
  bool body(std::string_view piece) override {
    if (auto counted = held_->grow(std::ssize(piece)); !counted) {
      memory_error_ = std::move(counted).error();
      return false;
    }
    body_ += piece;
    return body_.size() <= max_bytes_;
  }
  void end(HttpEnd how, const std::string& why) override {
    {
      MutexLock lock(poll_->mutex);
      PeerAnswer& answer = poll_->answers[index_];
      answer.was_sent = how != HttpEnd::not_connected;
      if (how == HttpEnd::whole) {
        answer.status = status_;
        answer.body = std::move(body_);
        answer.held = std::move(held_);
      } else {
        answer.why = memory_error_ ? memory_error_->message
                     : why.empty() ? "the call was cancelled"
                                   : why;
        answer.memory_error = std::move(memory_error_);
      }
    }
    poll_->close_one();
  }

 private:
  const std::shared_ptr<Poll> poll_;
  const size_t index_, max_bytes_;
  std::shared_ptr<HeldBytes> held_;
  std::optional<Error> memory_error_;
  int status_ = 0;
  std::string body_;
};

}  // namespace

std::string error_text(const PeerAnswer& peer) {
  const Json body = parse_bounded_json(peer.body);
  std::string why = peer.status == 0 ? peer.why : fmt::format("it answered {}", peer.status);
  if (peer.status != 0 && body.is_object() && body.contains("error")) {
    const Json& failure = body["error"];
    if (failure.is_object() && failure.contains("message") && failure["message"].is_string())
      why = failure["message"].get<std::string>();
  }
  return fmt::format("{}: {}", peer.name, why);
}

std::string error_texts(std::span<const PeerAnswer> peers,
                        const std::function<bool(const PeerAnswer&)>& is_failure) {
  std::string all;
  for (const PeerAnswer& peer : peers)
    if (is_failure(peer)) all += (all.empty() ? "" : "; ") + error_text(peer);
  return all;
}

void PeerBroadcast::post_to_all(const HttpRequest& asked, Done done, BroadcastLimits limits) {
  auto poll = std::make_shared<Poll>();
  poll->done = std::move(done);
  std::vector<std::optional<PeerEndpoint>> to;
  const TimePoint now = RealClock().now();
  const auto view = peers_.view();
  {
    const MutexLock of_poll(poll->mutex);
    for (const Member& member : view->members) {
      const int rank = member.identity.rank;
      if (rank == peers_.rank()) continue;
      const bool there = member.state == MemberState::member;
      const bool asked_too = limits.includes_lost && member.state == MemberState::connected;
      to.push_back(there || asked_too ? peers_.endpoint_of(member.identity) : std::nullopt);
      poll->answers.push_back({.rank = rank,
                               .name = name_of(member.identity),
                               .why = there ? "its address is not known yet" : "it is not there",
                               .is_member = there,
                               .may_know = there || now - peers_.lost_at(rank) < kRemembers});
    }
    poll->num_open += to.size();
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i]) {
      HttpCall call = peers_.call_to(*to[i], asked);
      call.headers.emplace_back("Content-Type", kJsonType);
      call.max_time = limits.patience;
      call.is_counted = limits.is_counted;
      auto sink = std::make_shared<PollSink>(poll, i, limits.max_bytes,
                                             std::make_shared<HeldBytes>(asked.memory));
      if (peers_.client().start(std::move(call), std::move(sink)) != 0) continue;
      MutexLock lock(poll->mutex);
      poll->answers[i].why = "too many requests are with other ranks";
    }
    poll->close_one();
  }
  poll->close_one();
}

void answer_everywhere(PeerBroadcast* peers, const HttpRequest& request,
                       const std::shared_ptr<HttpExchange>& exchange, Result<Json> here,
                       MergeAnswers merge) {
  if (peers == nullptr || is_from_rank(request) || !here) return respond_json(*exchange, here);
  peers->post_to_all(request, [exchange, merge, here = *std::move(here)](auto&& there) mutable {
    respond_json(*exchange, merge(std::move(here), there));
  });
}

}  // namespace hocket
