#include "engine/pages/redis_link.h"

#ifdef HOCKET_HAS_HIREDIS

#include <hiredis/hiredis.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"

namespace hocket {
namespace {

constexpr int kRedisPollMs = 50;
constexpr size_t kReadBytes = ServerStream::kMaxRead;

// hiredis calls these functions to make replies. Null ends the connection; no exception may pass
// through the C code of hiredis.
void* make_reply(RedisReply::Kind kind, std::string_view text, int64_t number) {
  try {
    return new RedisReply{.kind = kind, .text = std::string(text), .number = number};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* make_text(const redisReadTask* task, char* text, size_t length) {
  const bool is_refusal = task->type == REDIS_REPLY_ERROR;
  return make_reply(is_refusal ? RedisReply::Kind::refusal : RedisReply::Kind::text,
                    std::string_view(text, length), 0);
}
void* make_number(const redisReadTask* /*task*/, long long number) {
  return make_reply(RedisReply::Kind::number, "", number);
}
void* make_absent(const redisReadTask* /*task*/) {
  return make_reply(RedisReply::Kind::absent, "", 0);
}
void drop_reply(void* reply) {
  delete static_cast<RedisReply*>(reply);
}

// Refuses lists, since no command that is sent here has one as its reply. The type of `count`
// depends on the version of hiredis.
template <class Count>
void* refuse_list(const redisReadTask* /*task*/, Count /*count*/) {
  return nullptr;
}

redisReplyObjectFunctions make_functions() {
  redisReplyObjectFunctions functions{};
  functions.createString = make_text;
  functions.createArray = refuse_list;
  functions.createInteger = make_number;
  functions.createNil = make_absent;
  functions.freeObject = drop_reply;
#if HIREDIS_MAJOR >= 1
  functions.createDouble = [](const redisReadTask*, double, char*, size_t) -> void* {
    return nullptr;
  };
  functions.createBool = [](const redisReadTask*, int) -> void* { return nullptr; };
#endif
  return functions;
}

}  // namespace

bool can_use_redis() {
  return true;
}

void RedisLink::Free::operator()(redisReader* reader) const {
  redisReaderFree(reader);
}

RedisLink::RedisLink(ServerStream stream, std::string name)
    : stream_(std::move(stream)), name_(std::move(name)), is_over_([] { return false; }) {
  static redisReplyObjectFunctions functions = make_functions();
  reader_.reset(redisReaderCreateWithFunctions(&functions));
  HOCKET_CHECK(reader_ != nullptr);
  reader_->maxbuf = 0;  // the buffer stays as large as the largest reply
  tune_socket(stream_.socket(), kSilence);
}

RedisLink::~RedisLink() = default;

// Unread bytes say nothing: TLS sends tickets on its own.
bool RedisLink::is_connected() const {
  pollfd one{.fd = stream_.socket().get(), .events = POLLRDHUP, .revents = 0};
  return poll(&one, 1, 0) == 0;
}

std::unexpected<Error> RedisLink::broken(ErrorCode code, std::string_view event) {
  failed_ = true;
  return fail(error(code, "{} {}", name_, event)
                  .with_fix("look whether it runs and can be reached")
                  .with_param("kv-cache-store"));
}

std::unexpected<Error> RedisLink::broken(const Error& why) {
  failed_ = true;
  Error all = error(why.code, "{}: {}", name_, why.message).with_param("kv-cache-store");
  all.fix = why.code == ErrorCode::unauthorized
                ? "--kv-cache-store-cacert FILE names the certificate's issuer; the certificate "
                  "must have the name or address that --kv-cache-store gives"
                : "look whether it runs and can be reached, and whether it wants TLS "
                  "(rediss://) and a certificate of this client (--kv-cache-store-cert)";
  return fail(std::move(all));
}

// Checks the limits before poll(), because a server that sends a byte at a time is always ready.
Result<void> RedisLink::wait(short events, TimePoint until, Duration limit) {
  const RealClock clock;
  while (true) {
    if (is_over_()) return broken(ErrorCode::shutting_down, "is not needed any more");
    if (clock.now() >= until)
      return broken(ErrorCode::timed_out,
                    fmt::format("has not answered for {:.0f} s", to_seconds(limit)));
    pollfd one{.fd = stream_.socket().get(), .events = events, .revents = 0};
    const int ready = poll(&one, 1, kRedisPollMs);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return broken(ErrorCode::io, std::strerror(errno));
  }
}

Result<void> RedisLink::send_all(std::string_view bytes) {
  const RealClock clock;
  const Duration max_time =
      kSilence + from_seconds(static_cast<double>(bytes.size()) / kMinBytesPerSecond);
  const TimePoint end = clock.now() + max_time;
  const auto sent = stream_.send_all(bytes, [&](short events) {
    return wait(events, std::min(end, clock.now() + kSilence), kSilence);
  });
  if (!sent && !failed_) return broken(sent.error());  // wait() has said the rest
  return sent;
}

Result<void> RedisLink::send(std::span<const std::string_view> words) {
  HOCKET_CHECK(!failed_);
  std::vector<const char*> texts;
  std::vector<size_t> lengths;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    lengths.push_back(word.size());
  }
  char* command = nullptr;
  const auto length = redisFormatCommandArgv(&command, static_cast<int>(words.size()), texts.data(),
                                             lengths.data());
  if (length < 0) return broken(ErrorCode::io, "cannot be sent a command: no memory is left");
  const std::unique_ptr<char, void (*)(char*)> owned(command, redisFreeCommand);
  HOCKET_TRY_VOID(send_all({command, static_cast<size_t>(length)}));
  ++num_awaited_;
  return {};
}

Result<void> RedisLink::begin() {
  const TimePoint end = RealClock().now() + kSilence;
  while (true) {
    const auto done = stream_.begin();
    if (!done) return broken(done.error());
    if (*done) return {};
    HOCKET_TRY_VOID(wait(stream_.wanted(), end, kSilence));
  }
}

// Waits for bytes, and passes them to the reader. Returns how many there were.
Result<size_t> RedisLink::read_some(TimePoint end, Duration limit) {
  const RealClock clock;
  while (true) {
    in_.clear();
    const auto got = stream_.receive(in_);
    if (!got) return broken(got.error());
    if (*got > 0) {
      if (redisReaderFeed(reader_.get(), in_.data(), in_.size()) != REDIS_OK)
        return broken(ErrorCode::io, "sends what no Redis sends");
      return *got;
    }
    HOCKET_TRY_VOID(wait(POLLIN, std::min(end, clock.now() + kSilence), limit));
  }
}

Result<RedisReply> RedisLink::receive(size_t max_bytes) {
  HOCKET_CHECK((!failed_ && num_awaited_ > 0));
  const Duration slowest =
      kSilence + from_seconds(static_cast<double>(max_bytes) / kMinBytesPerSecond);
  const TimePoint end = RealClock().now() + slowest;
  size_t num_read = 0;
  while (true) {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK)
      return broken(ErrorCode::io, "sends what no Redis sends");
    if (reply != nullptr) {
      const std::unique_ptr<RedisReply> owned(static_cast<RedisReply*>(reply));
      --num_awaited_;
      if (owned->text.size() > max_bytes) return broken(ErrorCode::io, "sends a reply too long");
      return std::move(*owned);
    }
    // All bytes in the reader belong to this reply, because earlier replies were taken whole.
    if (num_read > max_bytes + kShortReply + kReadBytes)
      return broken(ErrorCode::io, "sends a reply too long");
    if (RealClock().now() >= end)
      return broken(ErrorCode::timed_out,
                    fmt::format("has not sent a reply for {:.0f} s", to_seconds(slowest)));
    HOCKET_TRY(const size_t got, read_some(end, kSilence));
    num_read += got;
  }
}

}  // namespace hocket

#else

#include "base/check.h"

namespace hocket {

bool can_use_redis() {
  return false;
}
void RedisLink::Free::operator()(redisReader* /*reader*/) const {}
RedisLink::RedisLink(ServerStream stream, std::string /*name*/) : stream_(std::move(stream)) {
  HOCKET_CHECK(can_use_redis());
}
RedisLink::~RedisLink() = default;
bool RedisLink::is_connected() const {
  return false;
}
Result<void> RedisLink::begin() {
  return {};
}
Result<void> RedisLink::send(std::span<const std::string_view> /*words*/) {
  return {};
}
Result<RedisReply> RedisLink::receive(size_t /*max_bytes*/) {
  return RedisReply();
}

}  // namespace hocket

#endif
