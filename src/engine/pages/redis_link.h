// One connection to a Redis or Valkey, by hiredis. Each wait has a limit. Replies are not trusted:
// each has a largest size, and lists are refused.
// Without hiredis at build time, can_use_redis() is false and nothing else may be called.
// Thread: one at a time.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cluster/server_stream.h"

struct redisReader;  // NOLINT(readability-identifier-naming): hiredis's

namespace hocket {

bool can_use_redis();

struct RedisReply {
  // text: the bytes of a page, or a line such as OK. refusal: an error; its first word is its kind.
  enum class Kind : uint8_t { text, refusal, number, absent };
  Kind kind = Kind::absent;
  std::string text;
  int64_t number = 0;
};

class RedisLink {
 public:
  // Limit of the wait for a server that neither sends nor reads.
  static constexpr Duration kSilence = std::chrono::seconds(2);
  static constexpr Duration kConnect = std::chrono::seconds(1);
  // A transfer that is slower than this ends with an error.
  static constexpr int64_t kMinBytesPerSecond = 1 << 20;
  // Redis refuses larger values by default.
  static constexpr size_t kMaxValueBytes = size_t{500} << 20;

  // `name` is the other side, for errors. The stream's socket does not block.
  RedisLink(ServerStream stream, std::string name);
  ~RedisLink();

  // Waits for the handshake of TLS. Errors: io, timed_out; unauthorized if the server's certificate
  // is refused. Call it once, before all else.
  Result<void> begin();

  // Ends waits early.
  void watch(std::function<bool()> is_over) { is_over_ = std::move(is_over); }
  // Sends a command; its words may hold any bytes. Errors: io, timed_out; after an error
  // the connection must be closed.
  Result<void> send(std::span<const std::string_view> words);
  Result<void> send(std::initializer_list<std::string_view> words) {
    return send(std::span(words.begin(), words.size()));
  }
  // Returns the next reply, of at most `max_bytes`. Errors as for send().
  Result<RedisReply> receive(size_t max_bytes = kShortReply);
  // Returns how many replies are still to be read. With none the connection can serve another
  // reader.
  size_t num_awaited() const { return num_awaited_; }
  bool is_whole() const { return !failed_ && num_awaited_ == 0; }
  // Returns false if the other side has ended the connection. Waits for nothing.
  bool is_connected() const;
  const std::string& name() const { return name_; }

  static constexpr size_t kShortReply = 64 << 10;

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };
  std::unexpected<Error> broken(ErrorCode code, std::string_view event);
  std::unexpected<Error> broken(const Error& why);
  Result<void> wait(short events, TimePoint until, Duration limit);
  Result<void> send_all(std::string_view bytes);
  Result<size_t> read_some(TimePoint end, Duration limit);

  ServerStream stream_;
  const std::string name_;
  std::function<bool()> is_over_;
  std::unique_ptr<redisReader, Free> reader_;
  std::string in_;
  size_t num_awaited_ = 0;
  bool failed_ = false;
};

}  // namespace hocket
