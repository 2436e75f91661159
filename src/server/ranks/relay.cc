#include "server/ranks/relay.h"

#include <utility>

#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"
#include "server/http/retry_after.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

bool goes_on(std::string_view name) {
  for (const std::string_view kept : {"retry-after", "cache-control"})
    if (same_name(name, kept)) return true;
  return name.size() > 2 && same_name(name.substr(0, 2), "x-");
}

bool says_shutting_down(std::string_view body) {
  const Json json = parse_bounded_json(body);
  if (!json.is_object() || !json.contains("error")) return false;
  const Json& failure = json["error"];
  return failure.is_object() && failure.contains("code") && failure["code"].is_string() &&
         failure["code"].get_ref<const std::string&>() == error_slug(ErrorCode::shutting_down);
}

}  // namespace

Relay::Relay(std::shared_ptr<HttpExchange> exchange, std::string from, Options options,
             std::function<void(RelayEnd, const std::string&)> ended)
    : exchange_(std::move(exchange)),
      from_(std::move(from)),
      ended_(std::move(ended)),
      body_(std::move(options.body)),
      resumes_(options.resumes),
      held_bytes_(options.memory),
      held_ids_(options.memory) {}

void Relay::give_up(const Error& why) {
  MutexLock lock(mutex_);
  if (!why_) why_ = why;
}

void Relay::lose(const Error& why) {
  MutexLock lock(mutex_);
  if (why_) return;
  why_ = why;
  is_lost_ = true;
}

bool Relay::head(int status, HttpHeaders&& headers) {
  status_ = status;
  for (auto& [name, value] : headers) {
    if (same_name(name, "content-type"))
      type_ = value;
    else if (goes_on(name))
      headers_.emplace_back(std::move(name), std::move(value));
  }
  streaming_ = status == 200 && type_.starts_with("text/event-stream");
  return !streaming_ || exchange_->start_stream(type_, headers_);
}

bool Relay::hold(std::string_view piece) {
  const size_t bytes = held_.size() + piece.size();
  if (bytes > kMaxHeld) return false;
  if (auto counted = held_bytes_.resize(static_cast<int64_t>(bytes)); !counted) {
    give_up(counted.error());
    return false;
  }
  try {
    held_ += piece;
  } catch (...) {
    give_up(error_of_exception("the answer of " + from_));
    return false;
  }
  return true;
}

bool Relay::body(std::string_view piece) {
  moved_at_.store(RealClock().now(), std::memory_order_relaxed);
  // The bytes in held_ hold no end of an event, so only the added bytes are searched.
  const size_t from = held_.empty() ? 0 : held_.size() - 1;
  if (!hold(piece)) return false;
  if (!streaming_) return true;
  if (resumes_) return pass_on_events();
  const size_t end = std::string_view(held_).substr(from).rfind("\n\n");
  if (end == std::string::npos) return true;
  const size_t whole = from + end + 2;
  const bool taken = exchange_->write(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  (void)held_bytes_.resize(std::ssize(held_));  // cannot fail: it shrinks
  return taken;
}

bool Relay::pass_on_events() {
  std::string events;
  const size_t num_used = reader_.take(held_, events);
  if (reader_.failed()) {
    give_up(error(ErrorCode::internal,
                  "{} sent the progress of its answer in a form that cannot be read", from_));
    return false;
  }
  const auto id_bytes = static_cast<int64_t>(reader_.num_ids() * sizeof(TokenId));
  if (auto counted = held_ids_.resize(id_bytes); !counted) {
    give_up(counted.error());
    return false;
  }
  held_.erase(0, num_used);
  (void)held_bytes_.resize(std::ssize(held_));  // cannot fail: it shrinks
  if (events.ends_with(kSseDoneEvent)) done_ = true;
  return events.empty() || exchange_->write(events);
}

// The router counts the request until ended_ is called, so no exception may keep it from that.
void Relay::end(HttpEnd how, const std::string& why) {
  RelayEnd ended = RelayEnd::left;
  try {
    if (!exchange_->is_closed()) ended = finish(how, why);
  } catch (...) {
    fail_by_exception(*exchange_, "the relay of another rank's answer");
    ended = RelayEnd::failed;
  }
  std::exchange(ended_, nullptr)(ended, why);
}

RelayEnd Relay::finish(HttpEnd how, const std::string& why) {
  switch (how) {
    case HttpEnd::whole:
      return deliver();
    case HttpEnd::not_connected:
      return RelayEnd::refused;
    case HttpEnd::unanswered:
      return resumes_ ? RelayEnd::lost : RelayEnd::refused;
    case HttpEnd::broken:
      if (done_) return exchange_->finish() ? RelayEnd::answered : RelayEnd::left;
      if (resumes_) return RelayEnd::lost;
      return fail_with(
          error(ErrorCode::lost_rank, "{} ended before its answer was whole: {}", from_, why)
              .with_fix(kRetryAfterFix));
    case HttpEnd::cancelled:
      break;
  }
  MutexLock lock(mutex_);
  if (is_lost_ && done_) return exchange_->finish() ? RelayEnd::answered : RelayEnd::left;
  if (is_lost_ && resumes_) return RelayEnd::lost;
  const Error given = why_ ? *why_
                           : error(ErrorCode::internal, "{} answers with more than {} bytes {}",
                                   from_, kMaxHeld, streaming_ ? "in one event" : "at once");
  lock.unlock();
  return fail_with(given);
}

RelayEnd Relay::deliver() {
  if (streaming_) return exchange_->finish() ? RelayEnd::answered : RelayEnd::left;
  if (status_ == 503 && says_shutting_down(held_)) return RelayEnd::refused;
  if (status_ == 401)
    return fail_with(error(ErrorCode::internal, "{} does not take this rank's key", from_)
                         .with_fix("give all ranks the same --cluster-token-file"));
  return exchange_->respond(status_, type_, held_, headers_) ? RelayEnd::answered : RelayEnd::left;
}

RelayEnd Relay::fail_with(const Error& why) {
  if (!streaming_) return respond_error(*exchange_, why) ? RelayEnd::failed : RelayEnd::left;
  const std::string last = exchange_->error_format().events(why);
  return exchange_->write(last) && exchange_->finish() ? RelayEnd::failed : RelayEnd::left;
}

}  // namespace hocket
