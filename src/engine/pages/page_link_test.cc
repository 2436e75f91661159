// Tests connections for pages over TLS: equal frames, and who is refused.
#include "engine/pages/page_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <utility>
#include <vector>

namespace hocket {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPageToken = "a token of sixteen";

// A connection over loopback, whose two ends have shaken hands or say why not.
struct PageLinks {
  std::unique_ptr<PageLink> server, client;
  Result<void> greeted, introduced;

  PageLinks(const char* server_token, const PageTls& server_tls, const char* client_token,
            const PageTls& client_tls) {
    const auto loopback = resolve({.host = "127.0.0.1", .port = 0})->front();
    const auto listener = listen_on(loopback);
    auto dialled = start_dial(local_address(*listener));
    Fd accepted;
    while (!accepted) accepted = Fd(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK));
    const auto goes_on = [] { return false; };
    server = std::make_unique<PageLink>(std::move(accepted), "the client", goes_on);
    client = std::make_unique<PageLink>(*std::move(dialled), "the server", goes_on);
    auto other = std::async(std::launch::async, [&] {
      auto done = server->server_handshake(server_token, server_tls);
      if (!done) server.reset();  // ends the connection
      return done;
    });
    introduced = client->client_handshake(client_token, client_tls);
    if (!introduced) client.reset();
    greeted = other.get();
  }
};

PageTls tls_on(const char* token = kPageToken) {
  return read_page_tls("on", token).value();
}

TEST(PageLinkTls, FramesOfAllSizesArriveEqual) {
  PageLinks links(kPageToken, tls_on(), kPageToken, tls_on());
  ASSERT_TRUE(links.greeted && links.introduced);
  std::vector<std::byte> page(3'000'001);
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 31 + i / 251);
  auto sent = std::async(std::launch::async, [&] {
    for (int i = 0; i < 100; ++i)
      if (!links.server->send(PageFrame::waiting, std::to_string(i))) return false;
    return links.server->send(PageFrame::page, "key", page).has_value();
  });
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(links.client->receive(PageLink::kSilence, 10)->payload, std::to_string(i));
  const auto frame = links.client->receive(PageLink::kSilence, page.size() + 3);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->type, PageFrame::page);
  const std::string_view bytes(reinterpret_cast<const char*>(page.data()), page.size());
  EXPECT_TRUE(frame->payload == "key" + std::string(bytes));
  EXPECT_TRUE(sent.get());
  EXPECT_FALSE(links.server->is_readable());
  EXPECT_TRUE(links.client->send(PageFrame::ok, {}));
  EXPECT_EQ(links.server->receive(PageLink::kSilence, 10)->type, PageFrame::ok);
}

TEST(PageLinkTls, AnotherTokenIsRefused) {
  constexpr const char* kOther = "another token, as long";
  const PageLinks links(kPageToken, tls_on(), kOther, tls_on(kOther));
  EXPECT_EQ(links.greeted.error().code, ErrorCode::unauthorized);
  EXPECT_EQ(links.introduced.error().code, ErrorCode::unauthorized);
  EXPECT_THAT(links.introduced.error().fix, HasSubstr("--cluster-token-file"));
}

TEST(PageLinkTls, OneSideWithoutTlsIsToldSo) {
  const PageLinks first(kPageToken, tls_on(), kPageToken, {});
  EXPECT_EQ(first.introduced.error().message,
            "the server sends pages with TLS, this service without");
  EXPECT_THAT(first.introduced.error().fix, HasSubstr("--cluster-tls"));
  EXPECT_FALSE(first.greeted);
  const PageLinks second(kPageToken, {}, kPageToken, tls_on());
  EXPECT_EQ(second.introduced.error().message,
            "the server sends pages without TLS, this service with");
}

TEST(PageLinkTls, AutoLeavesLoopbackInTheClear) {
  const PageTls automatic = read_page_tls("auto", kPageToken).value();
  EXPECT_TRUE(automatic.context);
  const PageLinks links(kPageToken, automatic, kPageToken, {});
  EXPECT_TRUE(links.greeted && links.introduced);
  EXPECT_FALSE(read_page_tls("off", kPageToken)->context);
  EXPECT_FALSE(read_page_tls("auto", "")->context);
  EXPECT_EQ(read_page_tls("on", "").error().param, "cluster-tls");
}

}  // namespace
}  // namespace hocket
