#include "server/ranks/rank_router.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "core/queue_limits.h"
#include "server/access/client_key.h"
#include "server/generation/api.h"
#include "server/http/error_map.h"
#include "server/http/retry_after.h"
#include "server/ranks/relayed_request.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kForwardedLimit{
    "{} requests are with other ranks, and no more fit, or their bodies are too large together",
    kRetryAfterFix};

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
  if (StreamRecord* const record = record_of(prepared)) stream_records.rename(*record, prepared.id);
}

// Returns the error for requests of an epoch that has ended.
Error epoch_ended(const ClusterView& view) {
  const std::string why = view.whole() ? view.why : missing(view);
  return error(ErrorCode::lost_rank, "{}", why.empty() ? "the ranks began a new epoch" : why)
      .with_fix(kRetryAfterFix);
}

}  // namespace

RankRouter::RankRouter(const Options& options)
    : options_(options),
      peers_(*options_.cluster),
      broadcast_(peers_),
      keeper_(peers_, {.reply = options_.reply,
                       .changes = &options_.stream_records->changes(),
                       .tolerate_ranks = options_.tolerate_ranks}),
      changes_(*options_.cluster,
               options_.has_store ? EligibleCoordinators::any : EligibleCoordinators::rank_0),
      probes_(peers_, options_.probe_interval),
      role_sender_(peers_, options_.role),
      chooser_(peers_, *options_.engine, options_.routing),
      view_(std::make_shared<ClusterView>()),
      forwards_(probes_) {
  const auto num_ranks = static_cast<size_t>(peers_.num_ranks());
  counts_.up.resize(num_ranks);
  counts_.forwarded.resize(num_ranks);
  counts_.failed.resize(num_ranks);
  refresh();
  peers_.begin_calls(options_.max_forwards, [this] { check_cluster(); });
}

RankRouter::~RankRouter() {
  stop();
}

void RankRouter::begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                       PreparedRequest prepared, std::shared_ptr<RequestRecorder> recorder) {
  {
    MutexLock lock(mutex_);
    refresh();
    const auto to = choose(prepared);
    if (!to) {
      lock.unlock();
      if (StreamRecord* const record = record_of(prepared)) options_.stream_records->erase(*record);
      if (recorder) recorder->failed(to.error());
      respond_error(*exchange, to.error());
      return;
    }
    name_rank(prepared, *to ? (*to)->rank : rank(), *options_.stream_records);
    const StreamRecordPtr record = options_.stream_records->add(request, prepared);
    prepared.stream_record = record;
    if (*to) {
      bool sent = false;
      try {
        sent = send(**to, request, exchange, std::move(prepared), recorder);
      } catch (...) {
        if (record) options_.stream_records->erase(*record);
        throw;
      }
      if (sent) return;
      if (record) options_.stream_records->erase(*record);
      lock.unlock();
      const Error full = too_many();
      if (recorder) recorder->failed(full);
      respond_error(*exchange, full);
      return;
    }
  }
  keeper_.begin(exchange, std::move(prepared), std::move(recorder));
}

Error RankRouter::too_many() {
  return queue_full(kForwardedLimit, peers_.client().num_calls());
}

bool RankRouter::forward_to(int rank, const HttpRequest& request,
                            const std::shared_ptr<HttpExchange>& exchange) {
  MutexLock lock(mutex_);
  refresh();
  if (rank < 0 || rank >= peers_.num_ranks() || rank == this->rank()) return false;
  auto endpoint = view_->serves() ? endpoint_of(rank) : std::nullopt;
  if (!endpoint) {
    const Error why = epoch_ended(*view_);
    lock.unlock();
    respond_error(*exchange, why);
    return true;
  }
  const bool sent = send({.rank = rank, .endpoint = *std::move(endpoint)}, request, exchange,
                         std::nullopt, nullptr);
  lock.unlock();
  if (!sent) respond_error(*exchange, too_many());
  return true;
}

// A rank whose endpoint has gone since it was chosen is avoided, so the next choice is another.
Result<std::optional<RankRouter::Destination>> RankRouter::choose(const PreparedRequest& prepared) {
  if (!view_->serves()) return fail(epoch_ended(*view_));
  for (;;) {
    HOCKET_TRY(const int chosen, chooser_.choose(prepared, *view_));
    if (chosen == rank()) return std::nullopt;
    if (auto endpoint = endpoint_of(chosen))
      return Destination{.rank = chosen, .endpoint = *std::move(endpoint)};
    chooser_.avoid(chosen);
  }
}

std::optional<PeerEndpoint> RankRouter::endpoint_of(int rank) const {
  return peers_.endpoint_of(view_->members[static_cast<size_t>(rank)].identity);
}

bool RankRouter::send(const Destination& to, const HttpRequest& request,
                      const std::shared_ptr<HttpExchange>& exchange,
                      std::optional<PreparedRequest> prepared,
                      const std::shared_ptr<RequestRecorder>& recorder) {
  const int rank = to.rank;
  HttpCall call = peers_.call_to(to.endpoint, request);
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
  const Identity& other = view_->members[static_cast<size_t>(rank)].identity;
  std::string name = name_of(other);
  auto relay = std::make_shared<Relay>(
      exchange, name,
      Relay::Options{.memory = request.memory, .body = request.held_body, .resumes = resumes},
      [this, ticket](RelayEnd how, const std::string& why) { ended(ticket, how, why); });
  // Everything is allocated before the call begins: an exception after that would leave a call that
  // a client who leaves does not cancel.
  ForwardedRequests::Forward& forward = forwards_.add(
      ticket,
      {.rank = rank,
       .boot_id = other.boot_id,
       .relay = relay,
       .prepared = std::move(prepared),
       .request = view_->present().has(this->rank()) ? std::nullopt : std::optional(request),
       .recorder = recorder,
       .since = RealClock().now()});
  try {
    chooser_.add(ticket, rank, load);
    forward.call = peers_.client().start(std::move(call), std::move(relay));
  } catch (...) {
    forget(ticket);
    throw;
  }
  const uint64_t id = forward.call;
  if (id == 0) {
    forget(ticket);
    return false;
  }
  if (recorder) recorder->forwarded_to(std::move(name));
  ++counts_.forwarded[static_cast<size_t>(rank)];
  exchange->on_close([this, id] { peers_.client().cancel(id); });
  return true;
}

// Takes back what send() noted of a request whose call did not begin.
void RankRouter::forget(uint64_t ticket) {
  chooser_.remove(ticket);
  forwards_.erase(ticket);
}

void RankRouter::ended(uint64_t ticket, RelayEnd how, const std::string& why) {
  MutexLock lock(mutex_);
  ForwardedRequests::Forward& forward = forwards_.at(ticket);
  const int rank = forward.rank;
  const auto index = static_cast<size_t>(rank);
  if (how == RelayEnd::failed || how == RelayEnd::refused || how == RelayEnd::lost) {
    ++counts_.failed[index];
    log::debug("forward: rank {} {}{}{}", rank,
               how == RelayEnd::refused ? "took no request, this one does" : "broke off an answer",
               why.empty() ? "" : ": ", why);
  }
  if (StreamRecord* const record = forward.prepared ? record_of(*forward.prepared) : nullptr) {
    if (how == RelayEnd::left) options_.stream_records->set_state(*record, StreamState::left);
    if (how == RelayEnd::answered || how == RelayEnd::failed)
      options_.stream_records->erase(*record);
  }
  if (forward.recorder) record_relayed(how, *forward.relay, *forward.recorder);
  if (how == RelayEnd::refused || how == RelayEnd::lost) {
    if (how == RelayEnd::refused) chooser_.avoid(rank);
    if (how == RelayEnd::lost) ++counts_.num_resumed;
    if (!why.empty()) peers_.forget_address(rank);
    const auto relay = forward.relay;
    auto prepared = std::move(forward.prepared);
    auto recorder = std::move(forward.recorder);
    const auto request = std::move(forward.request);
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
      else if (request)
        begin(*request, relay->exchange(), *std::move(prepared), std::move(recorder));
      else
        keeper_.begin(relay->exchange(), *std::move(prepared), std::move(recorder));
    } catch (...) {
      fail_by_exception(*relay->exchange(), "a request that came back");
    }
    lock.lock();
  }
  chooser_.remove(ticket);
  forwards_.erase(ticket);
}

// Continues an answer whose rank is lost. If the client has nothing of it yet, its id may still
// change.
void RankRouter::take_back(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                           std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent) {
  if (sent.choices.empty()) name_rank(prepared, rank(), *options_.stream_records);
  keeper_.keep(prepared);
  options_.reply->resume(exchange, std::move(prepared), std::move(recorder), std::move(sent));
}

// Reads the cluster's view if it has changed. Takes back the requests that lost ranks had.
void RankRouter::refresh() {
  const auto before = std::exchange(view_, peers_.view());
  if (view_ == before) return;
  counts_.epoch = view_->epoch;
  for (size_t r = 0; r < view_->members.size(); ++r) {
    const bool up = view_->members[r].state == MemberState::member;
    if (counts_.up[r] && !up) ++counts_.num_lost;
    counts_.up[r] = up;
    // A rank that was started again has an empty cache, and knows no stream.
    if (r >= before->members.size() ||
        before->members[r].identity.boot_id != view_->members[r].identity.boot_id)
      chooser_.forget(static_cast<int>(r));
  }
  if (view_->epoch != before->epoch) chooser_.stop_avoiding();
  forwards_.note_view(*before, *view_);
  lose_forwards();
}

void RankRouter::lose_forwards() {
  forwards_.lose(*view_, rank(), epoch_ended(*view_), peers_.client());
}

void RankRouter::check_cluster() {
  MutexLock lock(mutex_);
  refresh();
  if (forwards_.is_unsettled() || !view_->present().has(rank())) lose_forwards();
  for (const int silent : forwards_.lose_silent(*view_, peers_.client())) chooser_.avoid(silent);
  const std::shared_ptr<const ClusterView> view = view_;
  lock.unlock();
  role_sender_.check(*view);
  keeper_.send_changes();
}

void RankRouter::forget_prefixes() {
  MutexLock lock(mutex_);
  chooser_.forget_all();
}

size_t RankRouter::num_forwards() const {
  MutexLock lock(mutex_);
  return forwards_.size() + keeper_.num_beginning();
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
  for (const Member& member : view_->members) {
    const auto to = endpoint_of(member.identity.rank);
    peers.push_back({{"rank", member.identity.rank},
                     {"host", member.identity.host},
                     {"there", member.state == MemberState::member},
                     {"address", to ? Json(to->address.text()) : Json()}});
  }
  return {{"rank", rank()}, {"epoch", view_->epoch}, {"peers", std::move(peers)}};
}

void RankRouter::cut_off() {
  MutexLock lock(mutex_);
  forwards_.end_all(error(ErrorCode::shutting_down, "the server is shutting down"),
                    peers_.client());
}

void RankRouter::stop() {
  cut_off();
  peers_.stop();
}

}  // namespace hocket
