#include "server/ranks/rank_router.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/http/error_map.h"
#include "server/http/request_target.h"
#include "server/ranks/relayed_request.h"

namespace hocket {
namespace {

constexpr Duration kAvoid = std::chrono::seconds(1);            // after a refusal
constexpr Duration kLoadDelay = std::chrono::milliseconds(20);  // no load counts a request earlier
constexpr Duration kAskAllPatience = std::chrono::seconds(5);
constexpr size_t kPeerAnswerMax = 64 << 10;
// This is Engine's block size too: a prompt that is sent again finds the rank that has it cached.
constexpr int kRoutingBlockTokens = 16;

RankLoad load_of(const Answer& answer) {
  RankLoad load{.num_requests = 0, .num_tokens = 0};
  for (size_t i = 0; i < answer.prompts.size(); ++i) {
    const int n = answer.request.prompts[i].n;
    load.num_requests += n;
    load.num_tokens += static_cast<int64_t>(n) * std::ssize(answer.prompts[i]);
  }
  return load;
}

bool same(const RankLoad& a, const RankLoad& b) {
  return a.takes_requests == b.takes_requests && a.num_requests == b.num_requests &&
         a.num_tokens == b.num_tokens;
}

// Returns the error for requests of an epoch that has ended.
Error epoch_ended(const ClusterView& view) {
  const std::string why = view.whole() ? view.why : missing(view);
  return error(ErrorCode::lost_rank, "{}", why.empty() ? "the ranks began anew" : why)
      .with_fix("ask again after the time in Retry-After");
}

// The answers of all ranks that were asked; `done` is called when the last has answered.
struct Poll {
  Mutex mutex;
  std::vector<PeerAnswer> answers HOCKET_GUARDED_BY(mutex);
  size_t num_open HOCKET_GUARDED_BY(mutex) = 1;  // one for ask_all() itself
  std::function<void(std::vector<PeerAnswer>&&)> done;

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
  PollSink(std::shared_ptr<Poll> poll, size_t index) : poll_(std::move(poll)), index_(index) {}
  bool head(int status, HttpHeaders&&) override {
    status_ = status;
    return true;
  }
  bool body(std::string_view piece) override {
    body_ += piece;
    return body_.size() <= kPeerAnswerMax;
  }
  void end(HttpEnd how, const std::string& why) override {
    {
      MutexLock lock(poll_->mutex);
      PeerAnswer& answer = poll_->answers[index_];
      if (how == HttpEnd::whole) {
        answer.status = status_;
        answer.body = std::move(body_);
      } else {
        answer.why = why.empty() ? "the call was cancelled" : why;
      }
    }
    poll_->close_one();
  }

 private:
  const std::shared_ptr<Poll> poll_;
  const size_t index_;
  int status_ = 0;
  std::string body_;
};

}  // namespace

std::string complaint_of(const PeerAnswer& peer) {
  const Json body = parse_bounded_json(peer.body);
  std::string why = peer.status == 0 ? peer.why : fmt::format("it answered {}", peer.status);
  if (peer.status != 0 && body.is_object() && body.contains("error") && body["error"].is_object())
    why = body["error"].value("message", why);
  return fmt::format("{}: {}", peer.name, why);
}

RankRouter::RankRouter(const Options& options)
    : options_(options),
      router_(options_.cluster->self().num_ranks,
              {.policy = options_.routing, .block_tokens = kRoutingBlockTokens}),
      last_loads_(static_cast<size_t>(options_.cluster->self().num_ranks)),
      avoid_until_(last_loads_.size()),
      counts_{.up = std::vector<bool>(last_loads_.size()),
              .forwarded = std::vector<uint64_t>(last_loads_.size()),
              .failed = std::vector<uint64_t>(last_loads_.size())} {
  refresh();
  client_ = std::make_unique<HttpClient>(HttpClient::Options{
      .max_calls = options_.max_forwards, .on_tick = [this] { check_cluster(); }});
}

RankRouter::~RankRouter() {
  stop();
}

void RankRouter::open(const HostPort& own, std::string_view key) {
  auto book = std::make_unique<PeerBook>(*options_.cluster, own, key);
  MutexLock lock(mutex_);
  HOCKET_CHECK(book_ == nullptr);
  book_ = std::move(book);
}

void RankRouter::begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                       Answer answer) {
  {
    MutexLock lock(mutex_);
    refresh();
    const auto rank = choose(answer);
    const auto recorder = answer.recorder;
    if (!rank) {
      lock.unlock();
      if (recorder) recorder->failed(rank.error());
      respond_error(*exchange, rank.error());
      return;
    }
    if (*rank != this->rank()) {
      if (send(*rank, request, exchange, std::move(answer))) return;
      lock.unlock();
      if (recorder) recorder->failed(error(ErrorCode::queue_full, "too many are with other ranks"));
      refuse_more(*exchange);
      return;
    }
  }
  options_.reply->begin(exchange, std::move(answer));
}

void RankRouter::refuse_more(HttpExchange& exchange) const {
  respond_error(exchange, error(ErrorCode::queue_full, "{} requests are with other ranks",
                                client_->num_calls())
                              .with_fix("try again after the time in Retry-After"));
}

bool RankRouter::forward_to(int rank, const HttpRequest& request,
                            const std::shared_ptr<HttpExchange>& exchange) {
  MutexLock lock(mutex_);
  refresh();
  if (rank < 0 || rank >= std::ssize(last_loads_) || rank == this->rank()) return false;
  if (!view_.whole() || !endpoint_of(rank)) {
    const Error why = epoch_ended(view_);
    lock.unlock();
    respond_error(*exchange, why);
    return true;
  }
  const bool sent = send(rank, request, exchange, std::nullopt);
  lock.unlock();
  if (!sent) refuse_more(*exchange);
  return true;
}

Result<int> RankRouter::choose(const Answer& answer) {
  if (!view_.whole()) return fail(epoch_ended(view_));
  return router_.choose(cache_namespace_of(answer.request), answer.prompts.front(), loads());
}

// Returns the loads of all ranks. A forwarded request is added here until its rank's load includes
// it: until another load came at least kLoadDelay after the request.
std::vector<RankLoad> RankRouter::loads() {
  std::vector<RankLoad> loads = options_.generator->loads();
  loads.resize(last_loads_.size());
  const TimePoint now = RealClock().now();
  std::vector<bool> changed(loads.size());
  for (size_t r = 0; r < loads.size(); ++r) {
    changed[r] = !same(loads[r], last_loads_[r]);
    last_loads_[r] = loads[r];
    if (static_cast<int>(r) == rank()) continue;
    if (!endpoint_of(static_cast<int>(r)) || now < avoid_until_[r]) loads[r].takes_requests = false;
  }
  for (auto& [ticket, forward] : forwards_) {
    const auto r = static_cast<size_t>(forward.rank);
    if (changed[r] && now - forward.since >= kLoadDelay) forward.in_load = true;
    if (forward.in_load) continue;
    loads[r].num_requests += forward.load.num_requests;
    loads[r].num_tokens += forward.load.num_tokens;
  }
  return loads;
}

std::optional<PeerEndpoint> RankRouter::endpoint_of(int rank) const {
  return book_ ? book_->endpoint(view_.members[static_cast<size_t>(rank)].identity) : std::nullopt;
}

HttpCall RankRouter::call_to(const PeerEndpoint& to, const HttpRequest& asked) const {
  HttpCall call{.to = to.address, .target = encode_path(asked.path)};
  if (!asked.query.empty()) call.target += "?" + asked.query;
  call.body = asked.body;
  call.headers = {{"X-Hocket-Via", fmt::format("rank {}", rank())},
                  {"Authorization", "Bearer " + to.key}};
  if (asked.principal != nullptr)
    std::ranges::move(principal_headers(*asked.principal), std::back_inserter(call.headers));
  return call;
}

bool RankRouter::send(int rank, const HttpRequest& request,
                      const std::shared_ptr<HttpExchange>& exchange, std::optional<Answer> answer) {
  const auto to = endpoint_of(rank);
  HOCKET_CHECK(to.has_value());
  HttpCall call = call_to(*to, request);
  call.method = request.method;
  call.headers.emplace_back("Content-Type", kJsonType);
  call.headers.emplace_back(
      kClientHeader, std::to_string(answer ? answer->request.client : client_key(request, "")));
  for (const char* name : {"X-Request-Id", "X-SMG-Routing-Key"})
    if (const auto value = request.header(name); !value.empty())
      call.headers.emplace_back(name, value);

  const auto recorder = answer ? answer->recorder : nullptr;
  add_trace(request, recorder.get(), call.headers);
  const RankLoad load = answer ? load_of(*answer) : RankLoad{.num_requests = 0, .num_tokens = 0};
  const uint64_t ticket = ++last_ticket_;
  auto relay = std::make_shared<Relay>(
      exchange, name_of(view_.members[static_cast<size_t>(rank)].identity),
      Relay::Memory{.of_request = request.memory, .body = request.held_body},
      [this, ticket](RelayEnd how, const std::string& why) { ended(ticket, how, why); });
  const uint64_t id = client_->start(std::move(call), relay);
  if (id == 0) return false;
  if (recorder) recorder->forwarded_to(name_of(view_.members[static_cast<size_t>(rank)].identity));
  forwards_.emplace(ticket, Forward{.rank = rank,
                                    .epoch = view_.epoch,
                                    .call = id,
                                    .relay = std::move(relay),
                                    .answer = std::move(answer),
                                    .load = load,
                                    .since = RealClock().now()});
  ++counts_.forwarded[static_cast<size_t>(rank)];
  exchange->on_close([this, id] { client_->cancel(id); });
  return true;
}

void RankRouter::ended(uint64_t ticket, RelayEnd how, const std::string& why) {
  MutexLock lock(mutex_);
  const auto found = forwards_.find(ticket);
  HOCKET_CHECK(found != forwards_.end());
  const int rank = found->second.rank;
  const auto index = static_cast<size_t>(rank);
  if (how == RelayEnd::failed || how == RelayEnd::refused) {
    ++counts_.failed[index];
    log::debug("forward: rank {} {}{}{}", rank,
               how == RelayEnd::failed ? "broke off an answer" : "took no request, this one does",
               why.empty() ? "" : ": ", why);
  }
  if (found->second.answer) record_relayed(how, *found->second.relay, *found->second.answer);
  if (how == RelayEnd::refused) {
    avoid_until_[index] = RealClock().now() + kAvoid;
    if (!why.empty() && book_) book_->forget(rank);
    const auto exchange = found->second.relay->exchange();
    std::optional<Answer> answer = std::move(found->second.answer);
    lock.unlock();
    try {
      if (answer)
        options_.reply->begin(exchange, *std::move(answer));
      else
        respond_error(*exchange,
                      error(ErrorCode::lost_rank, "rank {} takes no requests now", rank));
    } catch (...) {
      fail_by_exception(*exchange, "a request that came back");
    }
    lock.lock();
  }
  forwards_.erase(ticket);
}

// Reads the cluster's view if it has changed. Requests of an older epoch are ended.
void RankRouter::refresh() {
  const uint64_t changes = options_.cluster->num_changes();
  if (changes == num_changes_) return;
  num_changes_ = changes;
  const uint32_t epoch = view_.epoch;
  view_ = options_.cluster->view();
  counts_.epoch = view_.epoch;
  for (size_t r = 0; r < view_.members.size(); ++r) {
    const bool up = view_.members[r].presence == Presence::in;
    if (counts_.up[r] && !up) ++counts_.num_lost;
    counts_.up[r] = up;
  }
  if (view_.epoch != epoch) {  // ranks begin an epoch with empty caches
    for (size_t r = 0; r < last_loads_.size(); ++r) router_.forget(static_cast<int>(r));
    std::ranges::fill(avoid_until_, TimePoint{});
  }
  if (forwards_.empty() || (view_.whole() && view_.epoch == epoch)) return;
  const Error why = epoch_ended(view_);
  log::warning("forward: {} requests that other ranks had are over: {}", forwards_.size(),
               why.message);
  end_forwards(why);
}

void RankRouter::end_forwards(const Error& why) {
  for (const auto& [ticket, forward] : forwards_) {
    forward.relay->give_up(why);
    client_->cancel(forward.call);
  }
}

void RankRouter::check_cluster() {
  MutexLock lock(mutex_);
  refresh();
}

void RankRouter::ask_all(const HttpRequest& asked,
                         std::function<void(std::vector<PeerAnswer>&&)> done) {
  auto poll = std::make_shared<Poll>();
  poll->done = std::move(done);
  std::vector<std::optional<PeerEndpoint>> to;
  {
    const MutexLock lock(mutex_), of_poll(poll->mutex);
    for (const Member& member : view_.members) {
      if (member.identity.rank == rank()) continue;
      const bool there = member.presence == Presence::in;
      to.push_back(there ? endpoint_of(member.identity.rank) : std::nullopt);
      poll->answers.push_back({.name = name_of(member.identity),
                               .why = there ? "its address is not known yet" : "it is not there"});
    }
    poll->num_open += to.size();
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i]) {
      HttpCall call = call_to(*to[i], asked);
      call.headers.emplace_back("Content-Type", kJsonType);
      call.most = kAskAllPatience;
      if (client_->start(std::move(call), std::make_shared<PollSink>(poll, i)) != 0) continue;
      MutexLock lock(poll->mutex);
      poll->answers[i].why = "too many requests are with other ranks";
    }
    poll->close_one();
  }
  poll->close_one();
}

void RankRouter::forget_prefixes() {
  MutexLock lock(mutex_);
  for (size_t r = 0; r < last_loads_.size(); ++r) router_.forget(static_cast<int>(r));
}

size_t RankRouter::num_forwards() const {
  MutexLock lock(mutex_);
  return forwards_.size();
}

ClusterCounts RankRouter::counts() const {
  MutexLock lock(mutex_);
  ClusterCounts counts = counts_;
  counts.rank = rank();
  counts.num_forwards = forwards_.size();
  return counts;
}

Json RankRouter::describe() const {
  MutexLock lock(mutex_);
  Json peers = Json::array();
  for (const Member& member : view_.members) {
    const auto to = endpoint_of(member.identity.rank);
    peers.push_back({{"rank", member.identity.rank},
                     {"host", member.identity.host},
                     {"there", member.presence == Presence::in},
                     {"address", to ? Json(to->address.text()) : Json()}});
  }
  return {{"rank", rank()}, {"epoch", view_.epoch}, {"peers", std::move(peers)}};
}

void RankRouter::cut_off() {
  MutexLock lock(mutex_);
  end_forwards(error(ErrorCode::shutting_down, "the server is shutting down"));
}

void RankRouter::stop() {
  cut_off();
  client_->stop();
  MutexLock lock(mutex_);
  const auto book = std::move(book_);
  lock.unlock();
}

}  // namespace hocket
