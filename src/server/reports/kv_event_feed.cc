#include "server/reports/kv_event_feed.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "core/queue_limits.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kListenerLimit{"{} listen already", "one listener can serve many"};
constexpr auto kIdleWait = std::chrono::milliseconds(100);
// A listener's bytes wait in a buffer of limited size, so large bursts are sent with pauses.
constexpr size_t kBurstBytes = 32 << 10;
constexpr auto kAfterBurst = std::chrono::milliseconds(1);

std::string hex(const PageHash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : hash) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string kv_event_json(const KvEvent& event, int page_tokens) {
  switch (event.kind) {
    case KvEvent::Kind::stored:
      return fmt::format(R"({{"type":"block_stored","block_hash":"{}","parent_block_hash":"{}"}})",
                         hex(event.hash), hex(event.parent));
    case KvEvent::Kind::removed:
      return fmt::format(R"({{"type":"block_removed","block_hash":"{}"}})", hex(event.hash));
    case KvEvent::Kind::cleared:
      break;
  }
  return fmt::format(R"({{"type":"all_cleared","page_tokens":{},"num_dropped":{}}})", page_tokens,
                     event.num_dropped);
}

KvEventFeed::KvEventFeed(KvEventChannel& channel, int page_tokens)
    : channel_(channel),
      page_tokens_(page_tokens),
      thread_({.name = "kv_events"}, [this] { run(); }) {}

KvEventFeed::~KvEventFeed() {
  stop();
}

Result<void> KvEventFeed::add(std::shared_ptr<HttpExchange> exchange) {
  MutexLock lock(mutex_);
  const auto max = static_cast<int64_t>(stopping_ ? 0 : kMaxListeners);
  HOCKET_TRY_VOID(
      check_limit(kListenerLimit, {.used = std::ssize(listeners_), .max = max}, kMaxListeners));
  if (!exchange->start_stream("text/event-stream",
                              {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}))
    return {};
  listeners_.push_back(std::move(exchange));
  channel_.listen();
  return {};
}

void KvEventFeed::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  channel_.wake();
  thread_.join();
  MutexLock lock(mutex_);
  for (const auto& listener : listeners_) listener->finish();
  listeners_.clear();
}

void KvEventFeed::run() {
  size_t burst = 0;
  while (!stopping_) {
    const auto event = channel_.wait_pop(kIdleWait);
    if (!event) {
      remove_departed();
      burst = 0;
      continue;
    }
    std::string block;
    append_sse(block, kv_event_json(*event, page_tokens_));
    send(block);
    burst += block.size();
    if (burst < kBurstBytes) continue;
    std::this_thread::sleep_for(kAfterBurst);
    burst = 0;
  }
}

void KvEventFeed::remove_departed() {
  MutexLock lock(mutex_);
  std::erase_if(listeners_, [](const auto& listener) { return listener->is_closed(); });
  if (listeners_.empty()) channel_.stop_listening();
}

void KvEventFeed::send(std::string_view block) {
  MutexLock lock(mutex_);
  std::erase_if(listeners_, [&](const auto& listener) { return !listener->write(block); });
}

}  // namespace hocket
