#include "bench/control.h"

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/quantile.h"
#include "cluster/connection.h"
#include "cluster/token_proof.h"
#include "engine/pages/page_link.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBenchToken = "the token of the bench";
constexpr int kNumSmall = 2000, kNumLarge = 100, kNumPages = 100, kNumMeetings = 20;
constexpr size_t kPageBytes = size_t{2} << 20;
constexpr size_t kSmallBytes = 100;

// Two sockets that are connected over loopback.
struct SocketPair {
  Fd server, client;
};
Result<SocketPair> connect_sockets() {
  HOCKET_TRY(const auto at, resolve({.host = "127.0.0.1", .port = 0}));
  HOCKET_TRY(const Fd listener, listen_on(at.front()));
  HOCKET_TRY(Fd client, start_dial(local_address(listener)));
  Fd server;
  while (!server)
    server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  for (const Fd* one : {&server, &client}) tune_socket(*one, std::chrono::seconds(10));
  return SocketPair{std::move(server), std::move(client)};
}

// One end of a control connection, with the thread that runs it.
struct ControlEnd {
  Poller poller;
  Connection connection;
  ControlEnd(Fd fd, const std::shared_ptr<const TlsContext>& tls, TlsEnd end)
      : connection(std::move(fd), poller, 1) {
    if (tls) connection.begin_tls(tls, end);
  }
  Message take() {
    for (;;) {
      auto message = connection.next(kMaxFrameBytes);
      HOCKET_CHECK(message.has_value());
      if (*message) return **std::move(message);
      HOCKET_CHECK(!connection.ended().has_value());
      (void)poller.wait(RealClock().now() + std::chrono::seconds(1));
      connection.flush();
      connection.receive();
    }
  }
};

// Returns the seconds of one message there and back, of `value_bytes` each way.
Result<double> seconds_of_messages(bool tls, int count, size_t value_bytes) {
  std::shared_ptr<const TlsContext> context;
  if (tls) {
    HOCKET_TRY(context, TlsContext::create(kBenchToken));
  }
  HOCKET_TRY(SocketPair sockets, connect_sockets());
  std::thread other([&] {
    ControlEnd server(std::move(sockets.server), context, TlsEnd::server);
    for (int i = 0; i <= count; ++i) server.connection.send(server.take());
    while (!server.connection.ended()) {
      (void)server.poller.wait(RealClock().now() + std::chrono::seconds(1));
      server.connection.flush();
      server.connection.receive();
    }
  });
  double seconds = 0;
  {
    ControlEnd client(std::move(sockets.client), context, TlsEnd::client);
    const StoreRequest sent{.id = 1, .key = "key", .value = std::string(value_bytes, 'v')};
    TimePoint begin;
    for (int i = 0; i <= count; ++i) {
      client.connection.send(sent);
      HOCKET_CHECK(client.take() == Message(sent));
      if (i == 0) begin = RealClock().now();  // the first one had the handshake before it
    }
    seconds = to_seconds(RealClock().now() - begin) / count;
  }
  other.join();
  return seconds;
}

// Returns the seconds from a connected socket to the first answer.
Result<double> seconds_of_meeting(bool tls) {
  double seconds = 0;
  for (int i = 0; i < kNumMeetings; ++i) {
    const TimePoint begin = RealClock().now();
    HOCKET_TRY_VOID(seconds_of_messages(tls, 1, kSmallBytes));
    seconds += to_seconds(RealClock().now() - begin) / kNumMeetings;
  }
  return seconds;
}

// Returns the seconds of one page.
Result<double> seconds_of_pages(bool tls) {
  PageTls use;
  if (tls) {
    HOCKET_TRY(use, read_page_tls("on", kBenchToken));
  }
  HOCKET_TRY(SocketPair sockets, connect_sockets());
  const auto goes_on = [] { return false; };
  bool sent = true;
  std::thread other([&] {
    PageLink server(std::move(sockets.server), "the client", goes_on);
    const std::vector<std::byte> page(kPageBytes, std::byte{7});
    sent = server.server_handshake(kBenchToken, use).has_value();
    for (int i = 0; i <= kNumPages && sent; ++i)
      sent = server.send(PageFrame::page, "key", page).has_value();
  });
  double seconds = 0;
  {
    PageLink client(std::move(sockets.client), "the server", goes_on);
    TimePoint begin;
    Result<void> introduced = client.client_handshake(kBenchToken, use);
    for (int i = 0; i <= kNumPages && introduced; ++i) {
      const auto frame = client.receive(PageLink::kSilence, kPageBytes + 3);
      if (!frame) introduced = fail(frame.error());
      if (i == 0) begin = RealClock().now();
    }
    seconds = to_seconds(RealClock().now() - begin) / kNumPages;
    if (!introduced) sent = false;
  }
  other.join();
  if (!sent) return fail(ErrorCode::io, "pages did not arrive");
  return seconds;
}

struct ControlCase {
  const char* name;
  const char* without;  // the state without TLS
  size_t bytes;         // one way; 0: no rate
  std::function<Result<double>(bool tls)> seconds;
};

}  // namespace

Result<int> bench_control(const BenchControlOptions& o) {
  const std::vector<ControlCase> cases = {
      {"connecting, and two answers", "clear", 0, seconds_of_meeting},
      {"100 bytes, there and back", "clear", 0,
       [](bool tls) { return seconds_of_messages(tls, kNumSmall, kSmallBytes); }},
      {"512 KiB, there and back", "clear", 2 * kMaxStoreValueBytes,
       [](bool tls) { return seconds_of_messages(tls, kNumLarge, kMaxStoreValueBytes); }},
      {"a page of 2 MiB", "signed", kPageBytes, seconds_of_pages}};
  if (!o.json)
    fmt::print("{:<30} {:>12} {:>12} {:>8} {:>10}\n", "", "without, us", "TLS, us", "ratio",
               "TLS, GB/s");
  for (const ControlCase& one : cases) {
    std::vector<double> clear, sealed;
    for (int round = 0; round < o.rounds; ++round) {  // in turn
      HOCKET_TRY(const double without, one.seconds(false));
      HOCKET_TRY(const double with, one.seconds(true));
      clear.push_back(without * 1e6);
      sealed.push_back(with * 1e6);
    }
    const double without = quantile(clear, 0.5), with = quantile(sealed, 0.5);
    const double rate = one.bytes == 0 ? 0 : static_cast<double>(one.bytes) / with / 1e3;
    if (o.json)
      fmt::print("{}\n", Json{{"case", one.name},
                              {"without", one.without},
                              {"without_us", without},
                              {"tls_us", with},
                              {"ratio", with / without},
                              {"tls_gb_per_s", rate}}
                             .dump());
    else
      fmt::print("{:<30} {:>12.1f} {:>12.1f} {:>8.2f} {:>10}\n",
                 fmt::format("{} ({})", one.name, one.without), without, with, with / without,
                 rate == 0 ? "" : fmt::format("{:.2f}", rate));
  }
  return 0;
}

}  // namespace hocket
