// GET /kv_events over real sockets, as a router reads it.
#include <gmock/gmock.h>

#include <set>

#include "policy/cache/radix_cache.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

ServerSettings with_events() {
  ServerSettings settings;
  settings.scheduler.kv_events = true;
  return settings;
}

// A router that knows the blocks in the events.
class Router {
 public:
  explicit Router(TestServer& server) : client_(server.server->port()) {
    client_.send("GET /kv_events HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  // Reads events until `done` returns true, for at most 100 reads.
  template <class Done>
  bool read_until(Done done) {
    for (int i = 0; i < 100 && !done(*this); ++i) {
      for (const std::string& data : reader_.feed(next())) take(Json::parse(data));
    }
    return done(*this);
  }
  std::set<std::string> blocks;
  int num_cleared = 0, page_tokens = 0;

 private:
  // Chunk sizes are lines of their own, which SseReader skips.
  std::string next() { return client_.until("\n\n", std::chrono::milliseconds(50)).first; }
  void take(const Json& event) {
    const std::string type = event["type"];
    if (type == "all_cleared") {
      blocks.clear();
      ++num_cleared;
      page_tokens = event["page_tokens"];
    } else if (type == "block_stored") {
      EXPECT_EQ(event["parent_block_hash"].get<std::string>().size(), 64u);
      blocks.insert(event["block_hash"]);
    } else {
      EXPECT_EQ(type, "block_removed");
      EXPECT_EQ(blocks.erase(event["block_hash"]), 1u);
    }
  }
  TestClient client_;
  SseReader reader_;
};

TEST(KvEventsApi, IsNotThereUnlessAskedFor) {
  TestServer server(TestServer::Text::none);
  EXPECT_THAT(server.get("/kv_events", 404)["error"]["hint"], testing::HasSubstr("--kv-events"));
}

TEST(KvEventsApi, TellsARouterWhatIsCached) {
  TestServer server(TestServer::Text::none, with_events());
  PageAllocator pages(8, 2);
  RadixCache cache(pages, {.events = &*server.engine.events});
  const auto insert = [&](std::vector<TokenId> tokens) {
    std::vector<PageId> ids(tokens.size() / 2);
    ASSERT_TRUE(pages.take(ids));
    const Lease lease = cache.insert(0, tokens, ids);
  };
  insert({TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}});
  Router first(server);
  ASSERT_TRUE(eventually([&] { return server.engine.events->needs_all(); }));
  cache.emit_to_listeners();
  EXPECT_TRUE(first.read_until([](Router& r) { return r.blocks.size() == 2; }));
  EXPECT_EQ(first.num_cleared, 1);
  EXPECT_EQ(first.page_tokens, 2);
  // Computed by hashlib: sha256(bytes(32) + struct.pack("<2i", 1, 2)).
  EXPECT_TRUE(
      first.blocks.contains("e7ca17d6581d126af7e0c8574cdd8987ed93319969b54a5e2a272d585a38f3ea"));
  insert({TokenId{5}, TokenId{6}});
  EXPECT_TRUE(first.read_until([](Router& r) { return r.blocks.size() == 3; }));
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_TRUE(first.read_until([](Router& r) { return r.blocks.size() == 2; }));
  EXPECT_EQ(first.num_cleared, 1);

  Router second(server);
  ASSERT_TRUE(eventually([&] { return server.engine.events->needs_all(); }));
  cache.emit_to_listeners();
  EXPECT_TRUE(second.read_until([](Router& r) { return r.blocks.size() == 2; }));
  EXPECT_TRUE(first.read_until([](Router& r) { return r.num_cleared == 2; }));
  cache.flush();
  EXPECT_TRUE(second.read_until([](Router& r) { return r.blocks.empty(); }));
}

TEST(KvEventsApi, NothingIsToldWhenTheLastListenerHasLeft) {
  TestServer server(TestServer::Text::none, with_events());
  KvEventChannel& channel = *server.engine.events;
  {
    Router router(server);
    ASSERT_TRUE(eventually([&] { return channel.needs_all(); }));
    channel.begin_anew();
    EXPECT_TRUE(channel.is_publishing());
  }
  EXPECT_TRUE(eventually([&] { return !channel.is_publishing(); }));
}

TEST(KvEventsApi, AnOpenStreamDoesNotHoldUpTheEnd) {
  TestServer server(TestServer::Text::none, with_events());
  Router router(server);
  ASSERT_TRUE(eventually([&] { return server.engine.events->needs_all(); }));
  const TimePoint begin = RealClock().now();
  EXPECT_TRUE(server.server->drain(std::chrono::seconds(5)));
  EXPECT_LT(to_seconds(RealClock().now() - begin), 1.5);
}

}  // namespace
}  // namespace hocket
