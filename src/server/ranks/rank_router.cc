#include "server/ranks/rank_router.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/queue_limits.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/generation/api.h"
#include "server/http/error_map.h"
#include "server/http/request_target.h"
#include "server/ranks/relayed_request.h"

namespace hocket {
namespace {

constexpr Duration kAvoid = std::chrono::seconds(1);            // after a refusal
constexpr Duration kLoadDelay = std::chrono::milliseconds(20);  // no load counts a request earlier

RankLoad load_of(const PreparedRequest& prepared) {
  RankLoad load{.num_requests = 0, .num_tokens = 0};
  for (size_t i = 0; i < prepared.prompts.size(); ++i) {
    const int n = prepared.request.prompts[i].n;
    load.num_requests += n;
    load.num_tokens += static_cast<int64_t>(n) * std::ssize(prepared.prompts[i]);
  }
  return load;
}

// Puts the rank that keeps the answer into its id, if the API's ids name one.
void name_rank(PreparedRequest& prepared, int rank, StreamRecords& stream_records) {
  const auto id_at = prepared.request.api->id_at;
  if (id_at == nullptr) return;
  std::string id = id_at(prepared.id, rank);
  for (Prompt& prompt : prepared.request.prompts)
    if (prompt.rid == prepared.id) prompt.rid = id;
  prepared.id = std::move(id);
  if (prepared.stream_record) stream_records.rename(*prepared.stream_record, prepared.id);
}

// Returns the error for requests of an epoch that has ended.
Error epoch_ended(const ClusterView& view) {
  const std::string why = view.whole() ? view.why : missing(view);
  return error(ErrorCode::lost_rank, "{}", why.empty() ? "the ranks began a new epoch" : why)
      .with_fix("ask again after the time in Retry-After");
}

}  // namespace

RankRouter::RankRouter(const Options& options)
    : options_(options),
      router_(options_.cluster->self().num_ranks, {.policy = options_.routing}),
      last_loads_(static_cast<size_t>(options_.cluster->self().num_ranks)),
      avoid_until_(last_loads_.size()),
      leaving_(last_loads_.size()),
      offered_at_(last_loads_.size()),
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
                       PreparedRequest prepared, std::shared_ptr<RequestRecorder> recorder) {
  {
    MutexLock lock(mutex_);
    refresh();
    const auto rank = choose(prepared);
    if (!rank) {
      lock.unlock();
      if (recorder) recorder->failed(rank.error());
      respond_error(*exchange, rank.error());
      return;
    }
    name_rank(prepared, *rank, *options_.stream_records);
    prepared.stream_record = options_.stream_records->add(request, prepared);
    if (*rank != this->rank()) {
      if (send(*rank, request, exchange, std::move(prepared), recorder)) return;
      lock.unlock();
      const Error full = too_many();
      if (recorder) recorder->failed(full);
      respond_error(*exchange, full);
      return;
    }
  }
  begin_here(exchange, std::move(prepared), std::move(recorder));
}

Error RankRouter::too_many() const {
  return queue_full(queue_limits::kForwarded, client_->num_calls());
}

bool RankRouter::forward_to(int rank, const HttpRequest& request,
                            const std::shared_ptr<HttpExchange>& exchange) {
  MutexLock lock(mutex_);
  refresh();
  if (rank < 0 || rank >= std::ssize(last_loads_) || rank == this->rank()) return false;
  if (!takes_part() || !endpoint_of(rank)) {
    const Error why = epoch_ended(view_);
    lock.unlock();
    respond_error(*exchange, why);
    return true;
  }
  const bool sent = send(rank, request, exchange, std::nullopt, nullptr);
  lock.unlock();
  if (!sent) respond_error(*exchange, too_many());
  return true;
}

Result<int> RankRouter::choose(const PreparedRequest& prepared) {
  if (!takes_part()) return fail(epoch_ended(view_));
  return router_.choose(cache_namespace_of(prepared.request), prepared.prompts.front(), loads());
}

// Returns the loads of all ranks. A forwarded request is added here until its rank's load includes
// it: until another load came at least kLoadDelay after the request.
std::vector<RankLoad> RankRouter::loads() {
  std::vector<RankLoad> loads = options_.engine->loads();
  loads.resize(last_loads_.size());
  const TimePoint now = RealClock().now();
  const RankSet present = view_.present();
  std::vector<bool> changed(loads.size());
  for (size_t r = 0; r < loads.size(); ++r) {
    changed[r] = loads[r] != last_loads_[r];
    last_loads_[r] = loads[r];
    if (static_cast<int>(r) == rank()) continue;
    const bool is_there = present.has(static_cast<int>(r)) && endpoint_of(static_cast<int>(r));
    if (!is_there || now < avoid_until_[r]) loads[r].takes_requests = false;
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

bool RankRouter::takes_part() const {
  return view_.serves() && view_.present().has(rank());
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
                      const std::shared_ptr<HttpExchange>& exchange,
                      std::optional<PreparedRequest> prepared,
                      std::shared_ptr<RequestRecorder> recorder) {
  const auto to = endpoint_of(rank);
  HOCKET_CHECK(to.has_value());
  HttpCall call = call_to(*to, request);
  call.method = request.method;
  call.headers.emplace_back("Content-Type", kJsonType);
  call.headers.emplace_back(
      kClientHeader, std::to_string(prepared ? prepared->request.client : client_key(request, "")));
  for (const char* name : {"X-Request-Id", "X-SMG-Routing-Key", kEventIdsHeader})
    if (const auto value = request.header(name); !value.empty())
      call.headers.emplace_back(name, value);

  add_trace(request, recorder.get(), call.headers);
  const RankLoad load =
      prepared ? load_of(*prepared) : RankLoad{.num_requests = 0, .num_tokens = 0};
  const uint64_t ticket = ++last_ticket_;
  const bool resumes = prepared.has_value();
  if (resumes) call.headers.emplace_back(kAnswerHeader, to_header(identity_of(*prepared)));
  const Identity& other = view_.members[static_cast<size_t>(rank)].identity;
  auto relay = std::make_shared<Relay>(
      exchange, name_of(other),
      Relay::Options{.memory = request.memory, .body = request.held_body, .resumes = resumes},
      [this, ticket](RelayEnd how, const std::string& why) { ended(ticket, how, why); });
  const uint64_t id = client_->start(std::move(call), relay);
  if (id == 0) {
    if (prepared && prepared->stream_record)
      options_.stream_records->erase(*prepared->stream_record);
    return false;
  }
  if (recorder) recorder->forwarded_to(name_of(other));
  forwards_.emplace(ticket, Forward{.rank = rank,
                                    .boot_id = other.boot_id,
                                    .call = id,
                                    .relay = std::move(relay),
                                    .prepared = std::move(prepared),
                                    .recorder = std::move(recorder),
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
  if (how == RelayEnd::failed || how == RelayEnd::refused || how == RelayEnd::lost) {
    ++counts_.failed[index];
    log::debug("forward: rank {} {}{}{}", rank,
               how == RelayEnd::refused ? "took no request, this one does" : "broke off an answer",
               why.empty() ? "" : ": ", why);
  }
  if (const auto& prepared = found->second.prepared; prepared && prepared->stream_record) {
    if (how == RelayEnd::left)
      options_.stream_records->set_state(*prepared->stream_record, StreamState::left);
    if (how == RelayEnd::answered || how == RelayEnd::failed)
      options_.stream_records->erase(*prepared->stream_record);
  }
  if (found->second.recorder) record_relayed(how, *found->second.relay, *found->second.recorder);
  if (how == RelayEnd::refused || how == RelayEnd::lost) {
    if (how == RelayEnd::refused) avoid_until_[index] = RealClock().now() + kAvoid;
    if (how == RelayEnd::lost) ++counts_.num_resumed;
    if (!why.empty() && book_) book_->forget(rank);
    const auto relay = found->second.relay;
    auto prepared = std::move(found->second.prepared);
    auto recorder = std::move(found->second.recorder);
    if (prepared && how == RelayEnd::refused)
      name_rank(*prepared, this->rank(), *options_.stream_records);
    lock.unlock();
    try {
      if (!prepared)
        respond_error(*relay->exchange(),
                      error(ErrorCode::lost_rank, "rank {} takes no requests now", rank));
      else if (how == RelayEnd::lost)
        take_back(relay->exchange(), *std::move(prepared), std::move(recorder),
                  relay->take_progress());
      else
        begin_here(relay->exchange(), *std::move(prepared), std::move(recorder));
    } catch (...) {
      fail_by_exception(*relay->exchange(), "a request that came back");
    }
    lock.lock();
  }
  forwards_.erase(ticket);
}

// Goes on with an answer whose rank is lost. If the client has nothing of it yet, its id may still
// change.
void RankRouter::take_back(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                           std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent) {
  if (sent.choices.empty()) name_rank(prepared, rank(), *options_.stream_records);
  keep_elsewhere(prepared);
  options_.reply->resume(exchange, std::move(prepared), std::move(recorder), std::move(sent));
}

// Reads the cluster's view if it has changed. Requests that lost ranks had come back.
void RankRouter::refresh() {
  const uint64_t changes = options_.cluster->num_changes();
  if (changes == num_changes_) return;
  num_changes_ = changes;
  const ClusterView before = std::exchange(view_, options_.cluster->view());
  counts_.epoch = view_.epoch;
  for (size_t r = 0; r < view_.members.size(); ++r) {
    const bool up = view_.members[r].presence == Presence::member;
    if (counts_.up[r] && !up) ++counts_.num_lost;
    counts_.up[r] = up;
    // A rank that was started again has an empty cache.
    if (r >= before.members.size() ||
        before.members[r].identity.boot_id != view_.members[r].identity.boot_id)
      router_.forget(static_cast<int>(r));
  }
  if (view_.epoch != before.epoch) std::ranges::fill(avoid_until_, TimePoint{});
  size_t num_lost = 0;
  const Error why = epoch_ended(view_);
  for (const auto& [ticket, forward] : forwards_) {
    if (!is_lost(forward, view_)) continue;
    ++num_lost;
    forward.relay->lose(why);
    client_->cancel(forward.call);
  }
  if (num_lost > 0)
    log::warning("forward: {} requests return to this rank: {}", num_lost, why.message);
}

// Returns true if the process that has the request is lost. Without hearing the coordinator this
// rank does not know which others it reaches, so it counts on none.
bool RankRouter::is_lost(const Forward& forward, const ClusterView& view) const {
  const Member& member = view.members[static_cast<size_t>(forward.rank)];
  const auto is_out = [&view](int rank) {
    return view.members[static_cast<size_t>(rank)].presence != Presence::member;
  };
  const Member& coordinator = view.members[static_cast<size_t>(view.coordinator)];
  return coordinator.presence == Presence::absent || is_out(rank()) || is_out(forward.rank) ||
         member.identity.boot_id != forward.boot_id;
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
  send_changes();
}

void RankRouter::forget_prefixes() {
  MutexLock lock(mutex_);
  for (size_t r = 0; r < last_loads_.size(); ++r) router_.forget(static_cast<int>(r));
}

size_t RankRouter::num_forwards() const {
  MutexLock lock(mutex_);
  return forwards_.size() + num_recorded_first_;
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
                     {"there", member.presence == Presence::member},
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
