// The decisions of AccessCheck: origins, keys, admins, limits, and keys that change while the
// server runs.
#include "server/access/access_check.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "server/access/request_sender.h"

namespace hocket {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

HttpRequest head(std::string path, HttpHeaders headers = {}, std::string method = "POST") {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.headers = std::move(headers);
  request.headers.emplace_back("Host", "llm.example:30000");
  return request;
}

std::pair<std::string, std::string> bearer(const std::string& key) {
  return {"Authorization", "Bearer " + key};
}

PathAccess needs_of(const HttpRequest& request) {
  if (request.path == "/livez") return {.access = Access::open};
  if (request.path == "/flush_cache") return {.access = Access::admin};
  return {.access = Access::user, .counted = true};
}

std::unique_ptr<AccessCheck> make(KeySources keys, std::string origins = "") {
  auto check = AccessCheck::create({.keys = std::move(keys),
                                    .cors_origins = std::move(origins),
                                    .allowed_hosts = "llm.example",
                                    .host = "127.0.0.1",
                                    .needs = needs_of});
  EXPECT_TRUE(check) << check.error().message;
  return *std::move(check);
}

// The admission must have let its request in.
const Principal& principal_in(const HttpAdmission& admission) {
  return *static_cast<const RequestSender&>(*admission.sender).principal;
}

ErrorCode refusal(AccessCheck& check, const HttpRequest& request) {
  const HttpAdmission admission = check.admit(request);
  return admission.refusal ? admission.refusal->code : ErrorCode{};
}

TEST(AccessCheck, WithoutKeysEverybodyMayDoEverything) {
  const auto check = make({});
  for (const char* path : {"/livez", "/generate", "/flush_cache"}) {
    const HttpAdmission admission = check->admit(head(path));
    EXPECT_FALSE(admission.refusal) << path;
    EXPECT_EQ(principal_in(admission).name, "anonymous");
    EXPECT_EQ(principal_in(admission).role, Role::admin);
    EXPECT_TRUE(admission.headers.empty());
  }
}

TEST(AccessCheck, AsksForAKeyAndForAnAdmins) {
  const auto check = make({.api_key = "user", .admin_api_key = "boss", .file = ""});
  EXPECT_EQ(refusal(*check, head("/livez")), ErrorCode{});
  EXPECT_EQ(principal_in(check->admit(head("/livez"))).role, Role::user);
  EXPECT_EQ(refusal(*check, head("/generate")), ErrorCode::unauthorized);
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("wrong")})), ErrorCode::unauthorized);
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("user")})), ErrorCode{});
  EXPECT_EQ(refusal(*check, head("/generate", {{"x-api-key", "boss"}})), ErrorCode{});
  EXPECT_EQ(refusal(*check, head("/flush_cache")), ErrorCode::unauthorized);
  EXPECT_EQ(refusal(*check, head("/flush_cache", {bearer("user")})), ErrorCode::forbidden);
  EXPECT_EQ(refusal(*check, head("/flush_cache", {bearer("boss")})), ErrorCode{});
  EXPECT_EQ(refusal(*check, head("/nothing/here", {bearer("nobody")})), ErrorCode::unauthorized);
}

TEST(AccessCheck, OnlyOwnPagesAndListedOnesMayAsk) {
  const auto closed = make({});
  const auto ask = [](const std::string& origin, HttpHeaders more = {}) {
    more.emplace_back("Origin", origin);
    return head("/generate", std::move(more));
  };
  EXPECT_EQ(refusal(*closed, head("/generate")), ErrorCode{});
  EXPECT_EQ(refusal(*closed, ask("http://llm.example:30000")), ErrorCode{});
  EXPECT_EQ(refusal(*closed, ask("https://evil.example")), ErrorCode::forbidden);
  EXPECT_EQ(refusal(*closed, ask("null")), ErrorCode::forbidden);
  EXPECT_EQ(refusal(*closed, ask("https://a.example", {{"Sec-Fetch-Site", "same-origin"}})),
            ErrorCode{});
  EXPECT_EQ(refusal(*closed, ask("https://a.example", {{"X-Forwarded-Host", "a.example"}})),
            ErrorCode{});
  EXPECT_THAT(closed->admit(ask("https://evil.example")).headers,
              Not(Contains(Key("Access-Control-Allow-Origin"))));

  // An image or a link of another page sends no Origin.
  const auto get = [](std::string path, std::string site) {
    return head(std::move(path), {{"Sec-Fetch-Site", std::move(site)}}, "GET");
  };
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(refusal(*closed, get("/flush_cache", site)), ErrorCode::forbidden) << site;
    EXPECT_EQ(refusal(*closed, get("/generate", site)), ErrorCode{}) << site;
  }
  for (const char* site : {"same-origin", "none"})
    EXPECT_EQ(refusal(*closed, get("/flush_cache", site)), ErrorCode{}) << site;

  const auto open = make({}, "https://a.example, http://localhost:5173");
  EXPECT_EQ(refusal(*open, ask("http://localhost:5173")), ErrorCode{});
  EXPECT_EQ(refusal(*open, ask("http://localhost:5174")), ErrorCode::forbidden);
  EXPECT_THAT(open->admit(ask("https://A.example")).headers,
              Contains(Pair("Access-Control-Allow-Origin", "https://A.example")));
  EXPECT_THAT(open->admit(head("/generate")).headers, Contains(Pair("Vary", "Origin")));
  EXPECT_THAT(make({}, "*")->admit(ask("null")).headers,
              Contains(Pair("Access-Control-Allow-Origin", "*")));
}

// DNS rebinding: if evil.example resolves to this machine, its page looks like the server's own.
TEST(AccessCheck, ANameThatLeadsHereIsNotEnough) {
  const auto ask = [](const std::string& host, const std::string& path = "/generate") {
    HttpRequest request = head(path, {{"Host", host}});
    request.headers.emplace_back("Origin", "http://" + host);
    return request;
  };
  const KeySources none, one = {.api_key = "k", .admin_api_key = "", .file = ""};
  const auto at = [](const KeySources& keys, const char* host, bool tls) {
    auto check = AccessCheck::create({.keys = keys,
                                      .allowed_hosts = "llm.example",
                                      .host = host,
                                      .tls = tls,
                                      .needs = needs_of});
    EXPECT_TRUE(check) << check.error().message;
    return *std::move(check);
  };
  for (const auto& check : {at(none, "127.0.0.1", false), at(none, "0.0.0.0", false)}) {
    const HttpAdmission refused = check->admit(ask("evil.example:30000", "/flush_cache"));
    ASSERT_TRUE(refused.refusal);
    EXPECT_EQ(refused.refusal->code, ErrorCode::forbidden);
    EXPECT_THAT(refused.refusal->fix, HasSubstr("--allowed-hosts evil.example"));
    for (const char* evil :
         {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "llm.example.evil",
          "notlocalhost", "evil", "localhost:x", "localhost:80x", "[::1]x", "[::1].evil.example",
          "[::1]:80x", "[::1", "[]"})
      EXPECT_EQ(refusal(*check, ask(evil)), ErrorCode::forbidden) << evil;
    for (const char* own :
         {"localhost:30000", "LocalHost.", "app.localhost", "127.0.0.1:30000", "10.1.2.3",
          "[::1]:30000", "[fe80::1%25eth0]", "llm.example", "LLM.example:443"})
      EXPECT_EQ(refusal(*check, ask(own)), ErrorCode{}) << own;
    std::array<char, 256> machine{};
    ASSERT_EQ(gethostname(machine.data(), machine.size() - 1), 0);
    EXPECT_EQ(refusal(*check, ask(machine.data())), ErrorCode{}) << machine.data();
    EXPECT_EQ(refusal(*check, ask("evil.example", "/livez")), ErrorCode{});
  }
  const HttpRequest keyed = [&] {
    HttpRequest request = ask("evil.example");
    request.headers.push_back(bearer("k"));
    return request;
  }();
  EXPECT_EQ(refusal(*at(one, "127.0.0.1", false), keyed), ErrorCode::forbidden);
  EXPECT_EQ(refusal(*at(one, "0.0.0.0", false), keyed), ErrorCode{});
  EXPECT_EQ(refusal(*at(none, "0.0.0.0", true), ask("evil.example")), ErrorCode{});
  for (const char* bad : {"http://a.example", "a:80", "a/b"})
    EXPECT_EQ(AccessCheck::create({.allowed_hosts = bad}).error().param, "allowed-hosts") << bad;
}

TEST(AccessCheck, APreflightNeedsNoKey) {
  const auto check = make({.api_key = "k", .admin_api_key = "", .file = ""}, "https://a.example");
  HttpHeaders headers = {{"Origin", "https://a.example"},
                         {"Access-Control-Request-Method", "POST"},
                         {"Access-Control-Request-Headers", "authorization, x-stainless-os"}};
  const HttpAdmission asked = check->admit(head("/generate", headers, "OPTIONS"));
  EXPECT_FALSE(asked.refusal);
  EXPECT_THAT(asked.headers,
              Contains(Pair("Access-Control-Allow-Headers", "authorization, x-stainless-os")));
  EXPECT_THAT(asked.headers, Contains(Pair("Access-Control-Allow-Methods", HasSubstr("POST"))));
  // A page that is let in may read the reason for a refusal.
  const HttpAdmission refused = check->admit(head("/generate", headers));
  EXPECT_EQ(refused.refusal->code, ErrorCode::unauthorized);
  EXPECT_THAT(refused.headers, Contains(Key("Access-Control-Allow-Origin")));
}

TEST(AccessCheck, RefusesListsThatAreNone) {
  for (const char* bad : {"a.example", "https://a.example/", "https://", "https://a.example/x"})
    EXPECT_EQ(AccessCheck::create({.keys = {}, .cors_origins = bad, .needs = {}}).error().param,
              "cors-origins")
        << bad;
}

TEST(AccessCheck, ReadsTheFileAgain) {
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / ("hocket_gate_" + std::to_string(getpid())))
          .string();
  std::ofstream(file) << "ann old requests_per_minute=1\n";
  const auto check = make({.api_key = "", .admin_api_key = "", .file = file});
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("old")})), ErrorCode{});
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("old")})), ErrorCode::rate_limited);

  std::ofstream(file) << "ann concurrency=1 what is this\n";
  EXPECT_FALSE(check->reload());
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("old")})), ErrorCode::rate_limited);

  std::ofstream(file) << "ann new requests_per_minute=1\nbob his\n";
  EXPECT_TRUE(check->reload());
  EXPECT_EQ(check->num_keys(), 2u);
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("old")})), ErrorCode::unauthorized);
  // The use of ann's limits is still counted.
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("new")})), ErrorCode::rate_limited);
  EXPECT_EQ(refusal(*check, head("/generate", {bearer("his")})), ErrorCode{});
  std::filesystem::remove(file);
}

TEST(RankKey, IsNewEachTime) {
  const std::string key = fresh_rank_key();
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), key.npos);
  EXPECT_NE(fresh_rank_key(), key);
}

TEST(AccessCheck, RanksAreBelievedWhoAsks) {
  HttpRequest request = head("/generate", {bearer("rank key")});
  EXPECT_EQ(principal_in(admit_rank(request, "rank key")).role, Role::user);
  for (const Role role : {Role::user, Role::admin}) {
    HttpRequest asked = request;
    const bool alone = role == Role::user;
    for (auto& header : principal_headers({.name = "ann", .role = role, .alone = alone}))
      asked.headers.push_back(header);
    const HttpAdmission admitted = admit_rank(asked, "rank key");
    EXPECT_EQ(principal_in(admitted).name, "ann");
    EXPECT_EQ(principal_in(admitted).role, role);
    EXPECT_EQ(principal_in(admitted).alone, alone);
  }
  EXPECT_TRUE(admit_rank(request, "another").refusal);
  EXPECT_TRUE(admit_rank(request, "").refusal);
  EXPECT_TRUE(admit_rank(head("/generate"), "").refusal);
  EXPECT_TRUE(admit_rank(head("/generate"), "rank key").refusal);
  // The port for clients ignores the headers of ranks.
  EXPECT_EQ(principal_in(make({})->admit(request)).name, "anonymous");
}

}  // namespace
}  // namespace hocket
