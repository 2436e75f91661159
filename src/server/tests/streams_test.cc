// Clients that come back to their streams, over real sockets with a fake model: what they get is
// what the stream still had to say, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

struct StreamCase {
  const char *name, *path;
  Json body;
  friend void PrintTo(const StreamCase& c, std::ostream* out) { *out << c.name; }
};

// Tokens that are words, then some that depend on the seed.
std::vector<TokenId> long_answer(const RequestInput& input) {
  std::vector<TokenId> tokens = ids_of("One two three. A few \"words\" more, and né? ");
  for (int i = 0; i < 12; ++i)
    tokens.push_back(TokenId{300 + static_cast<int>((input.sampling.seed >> (4 * i)) & 15) * 90});
  return tokens;
}

std::string timeless(std::string text) {
  static const std::regex latency(R"("e2e_latency":[-+.e0-9]+)"), timings(R"("timings":\{[^}]*\})"),
      completed(R"("completed_at":[0-9]+)");
  text = std::regex_replace(text, latency, "E");
  text = std::regex_replace(text, timings, "T");
  return std::regex_replace(text, completed, "C");
}

std::string asking(std::string_view method, std::string_view path, std::string_view body,
                   std::string_view headers = {}) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                     headers, body.size(), body);
}

// Returns the whole events of a stream.
std::vector<std::string> whole_events(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (end == stream.npos) break;
    events.emplace_back(stream.substr(0, end + 2));
    stream.remove_prefix(end + 2);
  }
  return events;
}

std::string together(std::span<const std::string> events) {
  std::string all;
  for (const std::string& event : events) all += event;
  return all;
}

// Returns the id of an event; empty: it has none.
std::string event_id_of(std::string_view event) {
  const size_t at = event.find("\nid: ");
  if (at == event.npos) return "";
  event.remove_prefix(at + 5);
  return std::string(event.substr(0, event.find('\n')));
}

// Returns the bytes of whole chunks.
std::string without_chunks(std::string_view chunked) {
  std::string out;
  while (true) {
    const size_t line = chunked.find("\r\n");
    if (line == chunked.npos) return out;
    const size_t size = std::strtoul(std::string(chunked.substr(0, line)).c_str(), nullptr, 16);
    if (size == 0 || chunked.size() < line + 2 + size) return out;
    out += chunked.substr(line + 2, size);
    chunked.remove_prefix(std::min(chunked.size(), line + 2 + size + 2));
  }
}

class StreamsTest : public ::testing::TestWithParam<StreamCase> {
 protected:
  StreamsTest() { server_.engine.script = long_answer; }

  TestAnswer ask(std::string_view text) {
    TestClient client(server_.server->port());
    client.send(text);
    return client.receive();
  }
  TestClient begin(Json body) {
    body["stream"] = true;
    TestClient client(server_.server->port());
    client.send(asking("POST", GetParam().path, body.dump(), "X-Hocket-Event-Ids: true\r\n"));
    return client;
  }
  // Goes on behind the event with this id.
  std::string rest_behind(const std::string& id) {
    const std::string answer = id.substr(0, id.find(':'));
    const TestAnswer got = ask(asking("GET", "/v1/streams/" + answer, "",
                                      id.contains(':') ? "Last-Event-ID: " + id + "\r\n" : ""));
    EXPECT_EQ(got.status, 200) << got.body;
    return got.body;
  }

  TestServer server_;
};

TEST_P(StreamsTest, AnEndedStreamIsReadAgainFromAnyEvent) {
  const std::string whole = timeless(begin(GetParam().body).receive().body);
  const auto events = whole_events(whole);
  ASSERT_GE(events.size(), 20u) << whole;
  EXPECT_EQ(whole.find("\"error\":{"), whole.npos) << whole;
  const std::string answer = event_id_of(events[0]).substr(0, event_id_of(events[0]).find(':'));
  EXPECT_EQ(timeless(rest_behind(answer)), whole);
  for (size_t i = 0; i < events.size(); ++i) {
    if (event_id_of(events[i]).empty()) {
      EXPECT_EQ(events[i], "data: [DONE]\n\n");
      continue;
    }
    SCOPED_TRACE(events[i]);
    ASSERT_EQ(timeless(rest_behind(event_id_of(events[i]))),
              together(std::span(events).subspan(i + 1)));
  }
}

TEST_P(StreamsTest, AClientThatLeftGoesOn) {
  server_.engine.pace_us = 2000;
  std::string had;
  {
    TestClient client = begin(GetParam().body);
    ASSERT_TRUE(client.until("\r\n\r\n", seconds(3)).second);
    for (int i = 0; i < 8; ++i) {
      const auto [piece, came] = client.until("\n\n", seconds(3));
      ASSERT_TRUE(came);
      had += piece;
    }
  }
  ASSERT_TRUE(eventually([&] { return server_.engine.num_running() == 0; }));
  const auto events = whole_events(without_chunks(had + "\r\n"));
  const std::string last = event_id_of(events.back());
  ASSERT_NE(last, "") << had;
  const std::string rest = rest_behind(last);
  EXPECT_NE(rest, "");
  const std::string whole = timeless(rest_behind(last.substr(0, last.find(':'))));
  EXPECT_EQ(together(events) + timeless(rest), whole);
  EXPECT_EQ(server_.engine.last_seen().answer.empty(), GetParam().body.contains("logprobs"));
}

std::vector<StreamCase> stream_cases() {
  Json chat = chat_body(), text = {{"prompt", "The capital"}}, scored = text, many = text;
  chat.update({{"stream_options", {{"include_usage", true}}}});
  text.update({{"max_tokens", 40}, {"stream_options", {{"include_usage", true}}}});
  scored.update({{"max_tokens", 30}, {"logprobs", 2}});
  Json message = chat_body();
  message.update({{"max_tokens", 40}, {"model", "tiny"}});
  Json kept = {{"input", "Hi there"}, {"max_output_tokens", 40}};
  Json generate = {{"text", "The capital"}, {"sampling_params", {{"max_new_tokens", 40}}}};
  return {{"chat", "/v1/chat/completions", chat},
          {"completions", "/v1/completions", text},
          {"completions_logprobs", "/v1/completions", scored},
          {"responses", "/v1/responses", kept},
          {"messages", "/v1/messages", message},
          {"generate", "/generate", generate}};
}

INSTANTIATE_TEST_SUITE_P(Apis, StreamsTest, ::testing::ValuesIn(stream_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

class ClientReturn : public StreamsTest {
 protected:
  static std::string answer_id(const std::vector<std::string>& events) {
    return event_id_of(events.front()).substr(0, event_id_of(events.front()).find(':'));
  }
  Json error_of(const std::string& request, int want_status) {
    const TestAnswer got = ask(request);
    EXPECT_EQ(got.status, want_status) << got.body;
    return Json::parse(got.body, nullptr, false)["error"];
  }
};

TEST_P(ClientReturn, TakesTheStreamOver) {
  server_.engine.pace_us = 5000;
  TestClient old = begin(GetParam().body);
  const auto first = old.until("\n\n", seconds(3)).first + old.until("\n\n", seconds(3)).first;
  const std::string id = event_id_of(first), answer = id.substr(0, id.find(':'));
  const auto whole = whole_events(rest_behind(answer));
  EXPECT_EQ(whole.back(), "data: [DONE]\n\n");
  const auto rest = old.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, HasSubstr("taken_over"));
}

TEST_P(ClientReturn, StatesItsPlaceByANumber) {
  const auto events = whole_events(begin(GetParam().body).receive().body);
  const std::string target = "/v1/streams/" + answer_id(events) + "?starting_after=";
  EXPECT_EQ(timeless(ask(asking("GET", target + "3", "")).body),
            timeless(together(std::span(events).subspan(4))));
  EXPECT_EQ(ask(asking("GET", target + "900000", "")).body, "data: [DONE]\n\n");
  for (const char* wrong : {"x", "-1", "3x", "99999999999999999999", "4000000000"})
    EXPECT_EQ(error_of(asking("GET", target + wrong, ""), 400)["param"], "starting_after");
  // The body of a POST with the header is not read.
  const std::string last = "Last-Event-ID: " + event_id_of(events[5]) + "\r\n";
  EXPECT_EQ(timeless(ask(asking("POST", GetParam().path, "{", last)).body),
            timeless(together(std::span(events).subspan(6))));
}

TEST_P(ClientReturn, WithAnIdThatIsNoneGetsAnError) {
  const auto events = whole_events(begin(GetParam().body).receive().body);
  const std::string answer = answer_id(events), of_answer = "/v1/streams/" + answer;
  for (const std::string& wrong : std::vector<std::string>{
           answer, answer + ":", answer + ":x", answer + ":1,", answer + ":1,2,", answer + ":1:2",
           ":1", "other:1", answer + ":4294967295", answer + ":1,1",
           answer + ":" + std::string(4000, '1'), std::string(4000, 'a') + ":1",
           answer + ":1" + std::string(30, ',')})
    EXPECT_EQ(
        error_of(asking("GET", of_answer, "", "Last-Event-ID: " + wrong + "\r\n"), 400)["code"],
        "invalid_request")
        << wrong;
  for (const char* unknown : {"/v1/streams/cmpl-1", "/v1/streams/%0a%00", "/v1/streams/../x",
                              "/v1/responses/resp_1?stream=true"})
    EXPECT_GE(ask(asking("GET", unknown, "")).status, 400) << unknown;
  EXPECT_THAT(error_of(asking("GET", "/v1/streams/cmpl-1", ""), 404)["message"].get<std::string>(),
              HasSubstr("there is no stream 'cmpl-1'"));
  EXPECT_EQ(
      error_of(asking("POST", "/ranks/streams/take", R"({"id":")" + answer + "\"}"), 404)["code"],
      "not_found");
}

TEST_P(ClientReturn, WithAWrongPlaceDoesNotEndTheStream) {
  server_.engine.pace_us = 50'000;
  TestClient old = begin(GetParam().body);
  const auto first = old.until("\n\n", seconds(3)).first + old.until("\n\n", seconds(3)).first;
  const std::string id = event_id_of(first), answer = id.substr(0, id.find(':'));
  EXPECT_EQ(error_of(asking("GET", "/v1/streams/" + answer, "", "Last-Event-ID: " + id + ",1\r\n"),
                     400)["param"],
            "Last-Event-ID");
  EXPECT_EQ(server_.engine.num_running(), 1);
  server_.engine.pace_us = 1;
  const auto rest = old.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_EQ(rest.first.find("taken_over"), rest.first.npos) << rest.first;
}

TEST_P(ClientReturn, IsNotOfferedForWhatWasAborted) {
  server_.engine.pace_us = 5000;
  TestClient client = begin(GetParam().body);
  const auto first =
      client.until("\n\n", seconds(3)).first + client.until("\n\n", seconds(3)).first;
  const std::string id = event_id_of(first), answer = id.substr(0, id.find(':'));
  server_.post("/abort_request", {{"rid", answer}});
  client.until("data: [DONE]\n\n", seconds(3));
  EXPECT_EQ(error_of(asking("GET", "/v1/streams/" + answer, ""), 404)["code"], "not_found");
}

INSTANTIATE_TEST_SUITE_P(OneApi, ClientReturn, ::testing::Values(stream_cases()[1]),
                         [](const auto& param) { return std::string(param.param.name); });

using SeveralChoices = ClientReturn;

// Events of several choices come in any order, so an id has a number for each.
TEST_P(SeveralChoices, GoOnEachFromItsOwnPlace) {
  const auto by_choice = [](std::span<const std::string> events) {
    std::map<int, std::string> text;
    for (const std::string& event : events) {
      const size_t at = event.find("data: {");
      if (at == event.npos) continue;
      const Json block = Json::parse(event.substr(at + 6, event.find('\n', at) - at - 6));
      for (const Json& choice : block["choices"])
        text[choice["index"]] += choice["text"].get<std::string>();
    }
    return text;
  };
  const auto events = whole_events(begin(GetParam().body).receive().body);
  const auto want = by_choice(events);
  ASSERT_EQ(want.size(), 3u);
  for (size_t i = 0; i + 2 < events.size(); i += 7) {
    auto got = by_choice(std::span(events).first(i + 1));
    for (const auto& [choice, text] : by_choice(whole_events(rest_behind(event_id_of(events[i])))))
      got[choice] += text;
    EXPECT_EQ(got, want);
  }
  EXPECT_THAT(error_of(asking("GET", "/v1/streams/" + answer_id(events) + "?starting_after=3", ""),
                       400)["message"]
                  .get<std::string>(),
              HasSubstr("3 choices"));
}

INSTANTIATE_TEST_SUITE_P(
    Three, SeveralChoices,
    ::testing::Values(StreamCase{
        "three", "/v1/completions", {{"prompt", "The capital"}, {"max_tokens", 30}, {"n", 3}}}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(StreamsOfKeys, AreForTheirOwnersOnly) {
  const std::string file = testing::TempDir() + "/keys_of_streams";
  std::ofstream(file) << "ann sk-ann-0123456789\nbob sk-bob-0123456789\n";
  ServerSettings settings;
  settings.http.api_key_file = file;
  TestServer server(TestServer::Text::bundled, settings);
  server.engine.script = long_answer;
  const auto ask = [&](std::string_view method, const std::string& path, std::string_view key,
                       std::string_view body = {}) {
    TestClient client(server.server->port());
    client.send(
        asking(method, path, body,
               fmt::format("Authorization: Bearer {}\r\nX-Hocket-Event-Ids: true\r\n", key)));
    return client.receive();
  };
  const TestAnswer got = ask("POST", "/v1/completions", "sk-ann-0123456789",
                             R"({"prompt":"x","stream":true,"max_tokens":30})");
  ASSERT_EQ(got.status, 200) << got.body;
  const std::string id = event_id_of(got.body), path = "/v1/streams/" + id.substr(0, id.find(':'));
  EXPECT_EQ(ask("GET", path, "sk-bob-0123456789").status, 404);
  EXPECT_EQ(ask("GET", path, "wrong").status, 401);
  const TestAnswer again = ask("GET", path, "sk-ann-0123456789");
  EXPECT_EQ(timeless(again.body), timeless(got.body));
}

// The prompt is computed again, so it counts again.
TEST(StreamsOfKeys, PayForTheirPromptWheneverTheyGoOn) {
  const std::string file = testing::TempDir() + "/paying_keys";
  std::ofstream(file) << "ann sk-ann-0123456789 tokens_per_minute=3050\n";
  ServerSettings settings;
  settings.http.api_key_file = file;
  TestServer server(TestServer::Text::bundled, settings);
  const auto ask = [&](std::string_view method, const std::string& path, std::string_view body) {
    TestClient client(server.server->port());
    client.send(asking(method, path, body, "Authorization: Bearer sk-ann-0123456789\r\n"));
    return client.receive();
  };
  const Json body = {{"prompt", std::vector<int>(3000, 5)}, {"stream", true}, {"max_tokens", 3}};
  const TestAnswer got = ask("POST", "/v1/completions", body.dump());
  ASSERT_EQ(got.status, 200) << got.body;
  const std::string path =
      "/v1/streams/" +
      Json::parse(got.body.substr(6, got.body.find('\n') - 6))["id"].get<std::string>();
  EXPECT_EQ(ask("GET", path, "").status, 200) << "some tokens are left";
  EXPECT_EQ(ask("GET", path, "").status, 429);
}

TEST(StreamsWithoutIds, AreNotChanged) {
  TestServer server;
  server.engine.script = long_answer;
  const TestAnswer plain =
      server.ask("POST", "/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":30})");
  EXPECT_EQ(plain.body.find("id: "), std::string::npos);
  const std::string answer = Json::parse(plain.body.substr(6, plain.body.find('\n') - 6))["id"];
  EXPECT_EQ(timeless(server.ask("GET", "/v1/streams/" + answer).body), timeless(plain.body));
}

// Made again, the stream is larger than what may wait for a client.
TEST(StreamsMadeAgain, WaitForTheirClient) {
  TestServer server;
  server.engine.script = [](const RequestInput&) { return std::vector(4000, TokenId{300}); };
  const Json body = {{"prompt", "x"}, {"stream", true}, {"max_tokens", 4000}, {"logprobs", 5}};
  const TestAnswer whole = server.ask("POST", "/v1/completions", body.dump());
  ASSERT_GT(whole.body.size(), size_t{5} << 18);
  const std::string answer = Json::parse(whole.body.substr(6, whole.body.find('\n') - 6))["id"];
  TestClient slow(server.server->port(), 4096);
  slow.send(TestServer::request_text("GET", "/v1/streams/" + answer, ""));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(timeless(slow.receive().body), timeless(whole.body));
}

TEST(StreamsThatAreNotKept, CarryNoIds) {
  ServerSettings settings;
  settings.http.stream_store_mib = 0;
  TestServer server(TestServer::Text::bundled, settings);
  server.engine.script = long_answer;
  const TestAnswer got = server.ask("POST", "/v1/responses", R"({"input":"x","stream":true})");
  EXPECT_EQ(got.body.find("id: "), std::string::npos);
  EXPECT_EQ(server.ask("GET", "/v1/streams/resp_1").status, 404);
}

}  // namespace
}  // namespace hocket
