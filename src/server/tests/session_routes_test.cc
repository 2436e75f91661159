// Tests the paths for sessions by name, and llama.cpp's slots.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "cluster/ranks_testing.h"
#include "server/generation/generation_request.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

TEST(SessionRoutesTest, SessionsAreSavedRestoredAndDeleted) {
  TestServer server;
  for (const char* verb : {"save", "restore", "delete"}) {
    const Json said = server.post(std::string("/sessions/a%20b/") + verb, Json::object());
    EXPECT_EQ(said["session_id"], "a b");
    EXPECT_EQ(said["action"], verb);
    EXPECT_EQ(said["tokens"], 96);
  }
  ASSERT_EQ(server.engine.session_requests.size(), 3u);
  for (const SessionRequest& ask : server.engine.session_requests) {
    EXPECT_EQ(ask.session, session_key_of("", "a b"));
    EXPECT_EQ(ask.name, ask.session);
  }
  EXPECT_EQ(server.engine.session_requests[2].action, SessionAction::end);
  for (const char* path : {"/sessions/save", "/sessions//save", "/sessions/a/", "/sessions/a/keep"})
    server.post(path, Json::object(), 404);
  server.post("/sessions/" + std::string(256, 's') + "/save", Json::object());
  const Json said =
      server.post("/sessions/" + std::string(257, 's') + "/save", Json::object(), 400);
  EXPECT_EQ(said["error"]["message"], "the session's name has 257 bytes; at most 256 are possible");
}

// A rank in a long step takes a session's command only behind it.
TEST(SessionRoutesTest, CallsWaitForEachOtherAndHoldUpNoText) {
  TestServer server;
  std::promise<void> step_is_over;
  server.engine.changing = [over = step_is_over.get_future().share()] { over.wait(); };
  std::vector<TestClient> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back(server.server->port());
    clients.back().send(TestServer::request_text("POST", "/sessions/a/restore", "{}"));
  }
  EXPECT_EQ(server.post("/generate", {{"text", "a"}})["text"], "a");
  step_is_over.set_value();
  for (TestClient& client : clients) EXPECT_EQ(client.receive().status, 200);
}

// All clients are one here, so that two requests that held threads would be all that it may have.
TEST(SessionRoutesTest, RequestsThatWaitForTheirSessionHoldUpNoOther) {
  TestServer server;
  std::promise<void> step_is_over;
  std::atomic<bool> has_begun = false;
  server.engine.changing = [&, over = step_is_over.get_future().share()] {
    if (!has_begun.exchange(true)) over.wait();
  };
  std::vector<TestClient> clients;
  for (const char* path : {"/slots/0?action=save", "/slots/0?action=restore",
                           "/slots/0?action=save", "/slots/0?action=erase"}) {
    clients.emplace_back(server.server->port());
    clients.back().send(TestServer::request_text("POST", path, R"({"filename": "f"})"));
    // The requests so far, and the one that reads /metrics.
    EXPECT_TRUE(eventually([&] {
      return server.metric("http_active_requests{") == static_cast<int>(clients.size()) + 1;
    }));
    EXPECT_TRUE(eventually([&] { return has_begun.load(); }));
  }
  EXPECT_EQ(server.post("/sessions/b/save", Json::object())["tokens"], 96);
  EXPECT_EQ(server.engine.session_requests.size(), 1u);
  step_is_over.set_value();
  for (TestClient& client : clients) EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(server.engine.session_requests.size(), 5u);
}

TEST(SessionRoutesTest, SlotsAreSessionsAndFilesAreNames) {
  TestServer server;
  const Json saved = server.post("/slots/3?action=save", {{"filename", "f.bin"}});
  EXPECT_EQ(saved["id_slot"], 3);
  EXPECT_EQ(saved["filename"], "f.bin");
  EXPECT_EQ(saved["n_saved"], 96);
  EXPECT_EQ(saved["n_written"], 384);
  EXPECT_TRUE(saved["timings"]["save_ms"].is_number());
  const Json restored = server.post("/slots/4?action=restore", {{"filename", "f.bin"}});
  EXPECT_EQ(restored["n_restored"], 96);
  EXPECT_EQ(server.post("/slots/4?action=erase", Json::object())["n_erased"], 96);
  const auto& asks = server.engine.session_requests;
  ASSERT_EQ(asks.size(), 3u);
  EXPECT_EQ(asks[0].session, session_key_of("", slot_session(3)));
  EXPECT_EQ(asks[1].session, session_key_of("", slot_session(4)));
  EXPECT_EQ(asks[0].name, asks[1].name);
  EXPECT_NE(asks[0].name, asks[0].session);
  server.post("/slots/x?action=save", {{"filename", "f"}}, 404);
  server.post("/slots/1?action=sing", {{"filename", "f"}}, 400);
  server.post("/slots/1?action=save", {{"filename", 5}}, 400);
  server.post("/slots/1?action=save", Json::object(), 400);
}

// Two servers as two ranks of one service.
class SessionRanks : public Ranks {
 protected:
  void SetUp() override {
    start_all(2, 1);
    for (int rank = 0; rank < 2; ++rank)
      servers_.push_back(
          std::make_unique<TestServer>(TestServer::Text::bundled, ServerSettings(), &plane(rank)));
    for (int rank = 0; rank < 2; ++rank)
      ASSERT_TRUE(eventually([&] {
        return !server(rank)
                    .get("/get_server_info")["peers"][static_cast<size_t>(1 - rank)]["address"]
                    .is_null();
      }));
  }
  void TearDown() override { servers_.clear(); }
  TestServer& server(int rank) { return *servers_[static_cast<size_t>(rank)]; }
  // Returns what the rank was asked, without the questions of what it knows.
  std::vector<SessionAction> carried_out(int rank) {
    std::vector<SessionAction> all;
    for (const SessionRequest& ask : server(rank).engine.session_requests)
      if (ask.action != SessionAction::find && ask.action != SessionAction::find_saved)
        all.push_back(ask.action);
    return all;
  }

  std::vector<std::unique_ptr<TestServer>> servers_;
};

TEST_F(SessionRanks, AnyDoorLeadsToTheRankThatKnowsMostOfASession) {
  using enum SessionAction;
  server(0).engine.session_len = 0;
  server(1).engine.session_len = 64;
  EXPECT_EQ(server(0).post("/sessions/a%20%C3%BC/save", Json::object())["tokens"], 64);
  EXPECT_EQ(server(0).post("/slots/2?action=restore", {{"filename", "f"}})["n_restored"], 64);
  EXPECT_EQ(carried_out(0), std::vector<SessionAction>{});
  EXPECT_EQ(carried_out(1), (std::vector{save, restore}));
  EXPECT_EQ(server(1).engine.session_requests.back().name, session_key_of("", "file f"));
  // Where both know it, the longer one counts, and else the rank that was asked.
  server(0).engine.session_len = 96;
  EXPECT_EQ(server(1).post("/sessions/a/save", Json::object())["tokens"], 96);
  EXPECT_EQ(carried_out(0), std::vector{save});
  server(1).engine.session_len = 96;
  EXPECT_EQ(server(1).post("/sessions/a/restore", Json::object())["tokens"], 96);
  EXPECT_EQ(carried_out(1), (std::vector{save, restore, restore}));
}

// After an edit the longest list may be an old one.
TEST_F(SessionRanks, ARestoreIsCarriedOutByTheRankThatIsAskedIfItHasAList) {
  using enum SessionAction;
  server(0).engine.session_len = 32;
  server(1).engine.session_len = 96;
  EXPECT_EQ(server(0).post("/sessions/a/restore", Json::object())["tokens"], 32);
  EXPECT_EQ(server(0).post("/slots/2?action=restore", {{"filename", "f"}})["n_restored"], 32);
  EXPECT_EQ(carried_out(0), (std::vector{restore, restore}));
  EXPECT_EQ(carried_out(1), std::vector<SessionAction>{});
}

// A rank in a long step may know more of the session than the rank that is asked. Questions that
// wait for it delay no aborts there.
TEST_F(SessionRanks, ARankThatIsBusyIsNotTakenForOneThatKnowsNothing) {
  std::promise<void> step_is_over;
  std::atomic<bool> is_asked = false;
  server(0).engine.changing = [&, over = step_is_over.get_future().share()] {
    is_asked = true;
    over.wait();
  };
  server(1).engine.session_len = 64;
  TestClient client(server(1).server->port());
  client.send(TestServer::request_text("POST", "/sessions/a/save", "{}"));
  EXPECT_TRUE(eventually([&] { return is_asked.load(); }));
  EXPECT_EQ(server(0).post("/abort_request", {{"rid", "x"}})["aborted"], 0);
  EXPECT_EQ(client.receive(std::chrono::seconds(20)).status, 503);
  step_is_over.set_value();
  EXPECT_EQ(carried_out(1), std::vector<SessionAction>{});
  EXPECT_EQ(server(1).post("/sessions/a/save", Json::object())["tokens"], 96);
}

TEST_F(SessionRanks, AllRanksForgetASession) {
  using enum SessionAction;
  server(0).engine.session_len = 0;
  server(1).engine.session_len = 64;
  EXPECT_EQ(server(0).post("/sessions/a/delete", Json::object())["tokens"], 64);
  EXPECT_EQ(server(1).post("/slots/0?action=erase", Json::object())["n_erased"], 64);
  EXPECT_EQ(carried_out(0), (std::vector{end, end}));
  EXPECT_EQ(carried_out(1), (std::vector{end, end}));
  server(1).engine.session_len = 0;
  for (const char* verb : {"save", "restore", "delete"})
    server(0).post(std::string("/sessions/a/") + verb, Json::object(), 404);
  server(0).post("/ranks/sessions/a/save", Json::object(), 404);
}

TEST(SessionRoutesTest, RequestsNameTheirSession) {
  TestServer server;
  server.post("/generate", {{"text", "a"}, {"session_id", "s"}});
  server.post("/v1/completions", {{"prompt", "a"}, {"id_slot", 3}});
  server.post("/v1/completions", {{"prompt", "a"}, {"id_slot", -1}});
  ASSERT_EQ(server.engine.seen.size(), 3u);
  EXPECT_EQ(server.engine.seen[0].session, session_key_of("", "s"));
  EXPECT_EQ(server.engine.seen[1].session, session_key_of("", slot_session(3)));
  EXPECT_EQ(server.engine.seen[2].session, SessionKey());
  server.post("/generate", {{"text", "a"}, {"session_id", ""}}, 400);
  server.post("/generate", {{"text", "a"}, {"session_id", std::string(257, 's')}}, 400);
  // No path can name these to save them.
  for (const char* id : {"a\nb", "\x01", "a\x7f"})
    server.post("/generate", {{"text", "a"}, {"session_id", id}}, 400);
  server.post("/sessions/a%0Ab/save", Json::object(), 400);
  server.post("/generate", {{"text", "a"}, {"session_id", "\u00fc / ?"}});
}

}  // namespace
}  // namespace hocket
