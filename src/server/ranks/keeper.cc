// Another rank keeps the requests of this rank's streams, so that they can go on when this rank is
// lost:
//
//   a stream begins here -> POST kKeepPath: its request -> the keeper has it -> the engine gets it
//   ten times a second   -> POST kChangesPath: new tokens, and which streams were left or ended
//
// The keeper is the next rank that is there. If it goes, the next one gets all requests anew. A
// stream that another rank computes needs none: both ranks have its request.
#include <utility>

#include "base/log.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/ranks/keeper_paths.h"
#include "server/ranks/rank_router.h"

namespace hocket {
namespace {

// A request waits no longer for its keeper, which is not alive then, or busy.
constexpr Duration kKeepPatience = std::chrono::milliseconds(250);
constexpr Duration kChangesPatience = std::chrono::seconds(2);
constexpr Duration kWarnAgain = std::chrono::seconds(60);
constexpr size_t kWholeAtOnce = 16;  // requests that are sent anew with each changes

}  // namespace

// Waits until the keeper has answered.
class RankRouter::KeeperSink final : public HttpSink {
 public:
  explicit KeeperSink(std::function<void(bool kept, const std::string& why)> ended)
      : ended_(std::move(ended)) {}
  bool head(int status, HttpHeaders&&) override {
    status_ = status;
    return true;
  }
  bool body(std::string_view) override { return true; }
  void end(HttpEnd how, const std::string& why) override {
    const bool kept = how == HttpEnd::whole && status_ == 200;
    std::exchange(ended_, nullptr)(kept, why.empty() ? fmt::format("status {}", status_) : why);
  }

 private:
  std::function<void(bool, const std::string&)> ended_;
  int status_ = 0;
};

std::optional<RankRouter::Keeper> RankRouter::keeper() const {
  const auto num_ranks = static_cast<int>(view_.members.size());
  for (int i = 1; i < num_ranks; ++i) {
    const int rank = (this->rank() + i) % num_ranks;
    const Member& member = view_.members[static_cast<size_t>(rank)];
    if (member.presence != Presence::member) continue;
    if (auto to = endpoint_of(rank))
      return Keeper{.rank = rank, .boot_id = member.identity.boot_id, .to = *std::move(to)};
  }
  return std::nullopt;
}

// Sends the request of a stream to the keeper; calls `then` in any case, on the thread forward.
// Returns false if there is none, or too much is under way, and then does not call it.
bool RankRouter::tell_keeper(const StreamRecords::Found& record, std::function<void()> then) {
  const auto to = keeper();
  if (!to) return false;
  const RecordedRequest& request = record.request;
  HttpCall call{.to = to->to.address,
                .target = std::string(kKeepPath),
                .body = request.body,
                .headers = {{"Authorization", "Bearer " + to->to.key},
                            {kAnswerHeader, to_header(request.identity)},
                            {kKeptPathHeader, request.path},
                            {kChoicesHeader, std::to_string(request.tokens.size())},
                            {kClientHeader, std::to_string(request.client)}},
                .max_time = kKeepPatience};
  std::ranges::move(principal_headers({.name = request.who}), std::back_inserter(call.headers));
  if (request.event_ids) call.headers.emplace_back(kEventIdsHeader, "true");
  if (!request.routing_key.empty())
    call.headers.emplace_back("X-SMG-Routing-Key", request.routing_key);
  auto sink =
      std::make_shared<KeeperSink>([this, stream = record.stream, to = *to, then = std::move(then)](
                                       bool kept, const std::string& why) {
        options_.stream_records->copied_to(*stream, kept ? to.boot_id : "");
        if (!kept) warn_not_recorded(to.rank, why);
        if (then) then();
      });
  return client_->start(std::move(call), std::move(sink)) != 0;
}

// Begins a request on this rank. A stream begins when the keeper has its request, so from its first
// event on it can go on elsewhere. An answer that continues a kept one cannot: only this rank has
// what came before.
void RankRouter::begin_here(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                            std::shared_ptr<RequestRecorder> recorder) {
  if (prepared.stream_record) {
    options_.stream_records->set_copies(*prepared.stream_record, StreamRecords::Copies::wanted);
    const auto record = options_.stream_records->without_tokens(prepared.stream_record);
    const auto held = std::make_shared<PreparedRequest>(std::move(prepared));
    ++num_recorded_first_;
    MutexLock lock(mutex_);
    if (tell_keeper(record, [this, exchange, held, recorder] {
          options_.reply->begin(exchange, std::move(*held), recorder);
          --num_recorded_first_;
        }))
      return;
    --num_recorded_first_;
    lock.unlock();
    prepared = std::move(*held);
  }
  options_.reply->begin(exchange, std::move(prepared), std::move(recorder));
}

// Warns once in kWarnAgain, since each stream may have the same reason.   Thread: forward.
void RankRouter::warn_not_recorded(int rank, const std::string& why) {
  const TimePoint now = RealClock().now();
  if (warned_ != TimePoint{} && now - warned_ < kWarnAgain) return;
  warned_ = now;
  log::warning("keeper: rank {} does not keep streams, which end if this rank is lost: {}", rank,
               why);
}

void RankRouter::keep_elsewhere(const PreparedRequest& prepared) const {
  if (prepared.stream_record)
    options_.stream_records->set_copies(*prepared.stream_record, StreamRecords::Copies::wanted);
}

void RankRouter::send_changes() {
  const auto to = keeper();
  // Without a keeper nobody is told: live streams are renewed later.
  if (!to) return options_.stream_records->drop_changes();
  if (changes_under_way_) return;
  StreamRecords::Changes changes = options_.stream_records->changes_for(to->boot_id, kWholeAtOnce);
  for (const StreamRecords::Found& record : changes.whole) tell_keeper(record, nullptr);
  if (changes.lines.empty()) return;
  changes_under_way_ = true;
  HttpCall call{.to = to->to.address,
                .target = std::string(kChangesPath),
                .body = std::move(changes.lines),
                .headers = {{"Authorization", "Bearer " + to->to.key}},
                .max_time = kChangesPatience};
  auto sink = std::make_shared<KeeperSink>([this, to = *to](bool kept, const std::string&) {
    if (!kept) options_.stream_records->forget_keeper(to.boot_id);
    changes_under_way_ = false;
  });
  if (client_->start(std::move(call), std::move(sink)) != 0) return;
  options_.stream_records->forget_keeper(to->boot_id);
  changes_under_way_ = false;
}

}  // namespace hocket
