#include "server/ranks/stream_keeper.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/ranks/keeper_choice.h"
#include "server/ranks/keeper_paths.h"

namespace hocket {
namespace {

// A request waits no longer for a keeper, which is not alive then, or busy.
constexpr Duration kKeepPatience = std::chrono::milliseconds(250);
constexpr Duration kChangesPatience = std::chrono::seconds(2);
constexpr Duration kAddressPatience = std::chrono::seconds(2);  // without a keeper's address
constexpr Duration kWarnAgain = std::chrono::seconds(60);
constexpr size_t kWholeAtOnce = 16;       // requests that are sent again with each changes
constexpr size_t kMaxAnswer = 256 << 10;  // bytes of a keeper's answer

// Returns the ids in the answer of kChangesPath.
std::vector<std::string> unknown_in(const std::string& answer) {
  std::vector<std::string> ids;
  const Json json = parse_bounded_json(answer);
  const auto unknown = json.is_object() ? json.find("unknown") : json.end();
  if (!json.is_object() || unknown == json.end() || !unknown->is_array()) return ids;
  for (const Json& id : *unknown)
    if (id.is_string() && ids.size() < StreamChanges::kMaxLacking)
      ids.push_back(id.get<std::string>());
  return ids;
}

}  // namespace

// Waits until a keeper has answered.
class StreamKeeper::Sink final : public HttpSink {
 public:
  // `why` is empty if the keeper took what it was sent; `body`: its answer.
  using Ended = std::function<void(const std::string& why, const std::string& body)>;
  explicit Sink(Ended ended) : ended_(std::move(ended)) {}
  bool head(int status, HttpHeaders&&) override {
    status_ = status;
    return true;
  }
  bool body(std::string_view piece) override {
    body_ += piece;
    return body_.size() <= kMaxAnswer;
  }
  void end(HttpEnd how, const std::string& why) override {
    const bool took = how == HttpEnd::whole && status_ == 200;
    const std::string status = fmt::format("status {}", status_);
    std::exchange(ended_, nullptr)(took ? "" : why.empty() ? status : why, body_);
  }

 private:
  Ended ended_;
  int status_ = 0;
  std::string body_;
};

// A request that begins when no reference to this is left: begin(), and its keepers until they have
// answered.
class StreamKeeper::Beginning {
 public:
  Beginning(StreamKeeper& keeper, std::shared_ptr<HttpExchange> exchange, PreparedRequest prepared,
            std::shared_ptr<RequestRecorder> recorder)
      : keeper_(keeper),
        exchange_(std::move(exchange)),
        prepared_(std::move(prepared)),
        recorder_(std::move(recorder)) {
    ++keeper_.num_beginning_;
  }
  ~Beginning() {
    try {
      keeper_.options_.reply->begin(exchange_, std::move(prepared_), std::move(recorder_));
    } catch (...) {
      fail_by_exception(*exchange_, "a stream that begins");
    }
    --keeper_.num_beginning_;
  }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

 private:
  StreamKeeper& keeper_;
  const std::shared_ptr<HttpExchange> exchange_;
  PreparedRequest prepared_;
  std::shared_ptr<RequestRecorder> recorder_;
};

StreamKeeper::StreamKeeper(RankPeers& peers, const Options& options)
    : peers_(peers),
      options_(options),
      unsent_(static_cast<size_t>(peers.num_ranks())),
      reached_(unsent_.size()) {
  for (int rank = 0; rank < peers.num_ranks(); ++rank)
    changes_under_way_.push_back(std::make_unique<std::atomic<bool>>(false));
}

size_t StreamKeeper::num_copies() const {
  return std::clamp<size_t>(static_cast<size_t>(options_.tolerate_ranks), 1, kMaxKeepers);
}

// Chooses as many ranks as a stream has copies. While the ranks do not serve, it is not known who
// is there, and another choice would lose the copies.
void StreamKeeper::find_keepers() {
  const auto view = peers_.view();
  if (!view->serves()) return;
  keepers_ = choose_keepers(*view, peers_.rank(), num_copies(),
                            [this](const Identity& rank)
                                HOCKET_REQUIRES(mutex_) { return was_reached(rank); });
  std::vector<std::string> boot_ids;
  for (const Identity& keeper : keepers_) boot_ids.push_back(keeper.boot_id);
  options_.changes->set_keepers(boot_ids);
}

// An address is looked up again after each failure, and its keeper stays meanwhile. A rank whose
// address cannot be used is none: what it would have to be told would only be collected.
bool StreamKeeper::was_reached(const Identity& rank) {
  const TimePoint now = RealClock().now();
  TimePoint& last = reached_[static_cast<size_t>(rank.rank)];
  if (peers_.endpoint_of(rank)) last = now;
  return last != TimePoint{} && now - last < kAddressPatience;
}

std::vector<StreamKeeper::Keeper> StreamKeeper::reachable_keepers() {
  std::vector<Keeper> keepers;
  for (const Identity& identity : keepers_)
    if (auto to = peers_.endpoint_of(identity))
      keepers.push_back({.identity = identity, .to = *std::move(to)});
  return keepers;
}

// Sends the request of a stream to a keeper, and holds `beginning` until that has answered.
void StreamKeeper::send(const Keeper& to, const StreamSnapshot& record,
                        std::shared_ptr<Beginning> beginning) {
  std::string failed = "too many requests are with other ranks";
  try {
    const RecordedRequest& request = record.request;
    HttpCall call{.to = to.to.address,
                  .target = std::string(kKeepPath),
                  .body = request.body,
                  .headers = {{"Authorization", "Bearer " + to.to.key},
                              {kViaHeader, to_via(peers_.rank())},
                              {kAnswerHeader, to_header(request.identity)},
                              {kKeptPathHeader, request.path},
                              {kChoicesHeader, std::to_string(request.tokens.size())},
                              {kTakeoversHeader, std::to_string(request.num_takeovers)},
                              {kClientHeader, std::to_string(request.client)}},
                  .max_time = kKeepPatience,
                  .is_counted = false};
    std::ranges::move(principal_headers({.name = request.who}), std::back_inserter(call.headers));
    if (request.event_ids) call.headers.emplace_back(kEventIdsHeader, "true");
    if (!request.routing_key.empty())
      call.headers.emplace_back("X-SMG-Routing-Key", request.routing_key);
    auto sink = std::make_shared<Sink>(
        [this, stream = record.stream, identity = to.identity, beginning = std::move(beginning)](
            const std::string& why, const std::string&) {
          options_.changes->copied_to(*stream, identity.boot_id, why.empty());
          if (!why.empty()) warn_not_recorded(identity.rank, why);
        });
    if (peers_.client().start(std::move(call), std::move(sink)) != 0) return;
  } catch (const std::exception& thrown) {
    failed = thrown.what();
  }
  options_.changes->copied_to(*record.stream, to.identity.boot_id, false);
  warn_not_recorded(to.identity.rank, failed);
}

// Callers pass no stream that continues a kept answer: only this rank has what was before.
void StreamKeeper::begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                         std::shared_ptr<RequestRecorder> recorder, int forwarder) {
  if (record_of(prepared) == nullptr)
    return options_.reply->begin(exchange, std::move(prepared), std::move(recorder));
  const StreamRecordPtr stream = record_of(prepared)->shared_from_this();
  MutexLock lock(mutex_);
  if (keepers_.empty()) find_keepers();
  const auto keepers = reachable_keepers();
  const auto view = peers_.view();
  const auto identity_at = [&](int rank) -> const Identity& {
    return view->members[static_cast<size_t>(rank)].identity;
  };
  if (forwarder >= 0 && forwarder < std::ssize(view->members))
    options_.changes->set_copies(*stream,
                                 num_beside_forwarder(num_copies(), identity_at(peers_.rank()),
                                                      identity_at(forwarder), keepers_),
                                 identity_at(forwarder).boot_id);
  else
    options_.changes->set_copies(*stream, num_copies());
  lock.unlock();
  const auto beginning =
      std::make_shared<Beginning>(*this, exchange, std::move(prepared), std::move(recorder));
  for (const Keeper& keeper : keepers)
    if (const auto record = options_.changes->begin_copy(stream, keeper.identity.boot_id))
      send(keeper, *record, beginning);
}

// Warns once in kWarnAgain, since each stream may have the same reason.
void StreamKeeper::warn_not_recorded(int rank, const std::string& why) {
  const TimePoint now = RealClock().now();
  MutexLock lock(mutex_);
  if (warned_ != TimePoint{} && now - warned_ < kWarnAgain) return;
  warned_ = now;
  lock.unlock();
  log::warning("keeper: rank {} does not keep streams, which end if this rank is lost: {}", rank,
               why);
}

void StreamKeeper::keep(const PreparedRequest& prepared) {
  StreamRecord* const stream = record_of(prepared);
  if (stream == nullptr) return;
  options_.changes->count_takeover(*stream);
  options_.changes->set_copies(*stream, num_copies());
}

void StreamKeeper::send_changes() {
  MutexLock lock(mutex_);
  find_keepers();
  const auto keepers = reachable_keepers();
  lock.unlock();
  for (const Keeper& keeper : keepers) {
    std::atomic<bool>& is_under_way =
        *changes_under_way_[static_cast<size_t>(keeper.identity.rank)];
    if (!is_under_way) send_changes_to(keeper, is_under_way);
  }
}

// A call that does not begin loses nothing: its lines are sent before any others.
void StreamKeeper::send_changes_to(const Keeper& to, std::atomic<bool>& is_under_way) {
  StreamChanges& known = *options_.changes;
  const std::string& boot_id = to.identity.boot_id;
  UnsentLines unsent = std::exchange(unsent_[static_cast<size_t>(to.identity.rank)], {});
  if (unsent.boot_id != boot_id) unsent = {.boot_id = boot_id, .lines = {}};
  if (unsent.lines.empty()) {
    StreamChanges::Changes changes = known.changes_for(boot_id, kWholeAtOnce);
    for (const StreamSnapshot& record : changes.whole) send(to, record, nullptr);
    unsent.lines = std::move(changes.lines);
  }
  if (unsent.lines.empty()) return;
  bool started = false;
  try {
    HttpCall call{
        .to = to.to.address,
        .target = std::string(kChangesPath),
        .body = unsent.lines,
        .headers = {{"Authorization", "Bearer " + to.to.key}, {kViaHeader, to_via(peers_.rank())}},
        .max_time = kChangesPatience,
        .is_counted = false};
    auto sink = std::make_shared<Sink>(
        [&known, &is_under_way, boot_id](const std::string& why, const std::string& body) {
          is_under_way = false;
          if (why.empty())
            known.copies_lack(unknown_in(body), boot_id);
          else
            known.forget_copies(boot_id);
        });
    // The answer arrives on this thread, so after this.
    started = peers_.client().start(std::move(call), std::move(sink)) != 0;
    is_under_way = started;
  } catch (const std::exception& thrown) {
    warn_not_recorded(to.identity.rank, thrown.what());
  }
  if (!started) unsent_[static_cast<size_t>(to.identity.rank)] = std::move(unsent);
}

}  // namespace hocket
