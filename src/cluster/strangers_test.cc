// Tests that strangers on the port of rank 0 are closed and can do nothing else.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/log.h"
#include "cluster/ranks_testing.h"
#include "cluster/stranger_testing.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

using testing::HasSubstr;

class StrangersTest : public Ranks {
 protected:
  void SetUp() override { start_rank_0(); }
  void expect_a_rank_can_join() {
    start(1, port_);
    enter_all();
  }
  // Runs the handshake as a process with the token does.
  void prove_oneself(Stranger& stranger) {
    const auto hello = stranger.hear();
    ASSERT_TRUE(hello);
    const Nonce theirs = std::get<HelloMessage>(*hello).nonce, own = make_nonce();
    stranger.say(ProofMessage{own, prove(options(0).token, Side::other, theirs, own)});
    const auto welcome = stranger.hear();
    ASSERT_TRUE(welcome);
    EXPECT_TRUE(same_proof(std::get<WelcomeMessage>(*welcome).proof,
                           prove(options(0).token, Side::rank_0, own, theirs)));
  }
  // Becomes rank 1 of the service, which is whole then.
  void join_as_member(Stranger& stranger) {
    prove_oneself(stranger);
    Identity id = identity(1);
    id.boot_id = "b";
    stranger.say(JoinMessage{.identity = id});
    EXPECT_TRUE(eventually([&] { return plane(0).view().whole(); }));
  }
  // The result of join() at a false rank 0 that sends `bytes`: its error, and the bytes the rank
  // sent.
  struct FalseJoin {
    Error refusal;
    std::string received;
  };
  FalseJoin join_false_rank_0(std::string_view bytes) {
    const auto listener = listen_on(TestProxy::loopback(0));
    auto joined = std::async(std::launch::async, [&] {
      return ControlPlane::join(options(local_address(*listener).port()), identity(1));
    });
    pollfd what{listener->get(), POLLIN, 0};
    EXPECT_EQ(poll(&what, 1, 5000), 1);
    const Fd fd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
    const auto result = joined.get();
    char received[256];
    const ssize_t length = recv(fd.get(), received, sizeof received, 0);
    EXPECT_FALSE(result.has_value());
    return {result ? Error() : result.error(),
            std::string(received, static_cast<size_t>(std::max<ssize_t>(length, 0)))};
  }
};

TEST_F(StrangersTest, AnotherTokenIsRefused) {
  ClusterOptions wrong = options(port_);
  wrong.token = "another token, as long";
  const auto joined = ControlPlane::join(wrong, identity(1));
  EXPECT_EQ(joined.error().code, ErrorCode::unauthorized);
  EXPECT_THAT(joined.error().message, HasSubstr("the cluster token is not that of rank 0"));
  expect_a_rank_can_join();
}

TEST_F(StrangersTest, NoTokenIsRefusedBeforeItIsTried) {
  ClusterOptions none = options(port_);
  none.token.clear();
  const auto joined = ControlPlane::join(none, identity(1));
  EXPECT_EQ(joined.error().code, ErrorCode::unauthorized);
  EXPECT_THAT(joined.error().message, HasSubstr("with a cluster token, this rank without"));
  EXPECT_THAT(joined.error().fix, HasSubstr("--cluster-token-file"));
}

TEST_F(StrangersTest, ARankDoesNotTrustARankZeroWithoutTheToken) {
  // The false rank 0 speaks the protocol and accepts any proof.
  std::string bytes;
  append_frame(bytes, HelloMessage{true, {}});
  append_frame(bytes, WelcomeMessage{});
  const Error refusal = join_false_rank_0(bytes).refusal;
  EXPECT_EQ(refusal.code, ErrorCode::unauthorized);
  EXPECT_THAT(refusal.message, HasSubstr("does not know the cluster token"));
}

TEST_F(StrangersTest, AFalseRankZeroDoesNotEndARankThatWasIn) {
  expect_a_rank_can_join();
  planes_[0].reset();
  EXPECT_TRUE(all_lost(0, {1}));
  const HelloMessage hello{true, {}};
  std::string no_token, refuses, no_proof, other_version;
  append_frame(no_token, HelloMessage{false, {}});
  append_frame(refuses, RefusedMessage{.may_retry = false, .text = "go away"});
  append_frame(no_proof, hello);
  append_frame(no_proof, WelcomeMessage{});
  append_frame(other_version, hello);
  other_version[4] = 2;
  {
    const auto listener = listen_on(TestProxy::loopback(port_));
    for (const std::string& bytes : {no_token, refuses, no_proof, other_version}) {
      pollfd what{listener->get(), POLLIN, 0};
      ASSERT_EQ(poll(&what, 1, 5000), 1) << "it dials no more";
      const Fd fd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
      char received[256];
      while (recv(fd.get(), received, sizeof received, 0) > 0) {
      }
    }
  }
  EXPECT_FALSE(plane(1).failure());
  start_rank_0(port_);
  enter_all();
}

TEST_F(StrangersTest, WithoutATokenOnlyLoopbackIsTaken) {
  ClusterOptions open = options(0);
  open.token.clear();
  EXPECT_TRUE(ControlPlane::join(open, identity(0)));
  open.init_addr.host = "0.0.0.0";
  const auto joined = ControlPlane::join(open, identity(0));
  EXPECT_EQ(joined.error().code, ErrorCode::unauthorized);
  EXPECT_THAT(joined.error().fix, HasSubstr("--insecure-cluster"));
  open.init_addr = {"192.0.2.1", 5000};
  EXPECT_EQ(ControlPlane::join(open, identity(1)).error().code, ErrorCode::unauthorized);
  open.insecure = true;
  open.init_addr = {"0.0.0.0", 0};
  EXPECT_TRUE(ControlPlane::join(open, identity(0)));
}

TEST_F(StrangersTest, GarbageIsClosed) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\xff'),
                                   std::string(64, '\0'), std::string("\2\0\0\0\1\7", 6)}) {
    Stranger stranger(port_);
    ASSERT_TRUE(stranger.hear());
    stranger.say(bytes);
    EXPECT_TRUE(stranger.is_closed(milliseconds(300))) << bytes;
  }
  expect_a_rank_can_join();
}

TEST_F(StrangersTest, WhoSaysNothingIsClosedInTime) {
  Stranger stranger(port_);
  const TimePoint then = RealClock().now();
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_GE(to_ms(RealClock().now() - then), 450);
}

TEST_F(StrangersTest, WhoWasRefusedAndGoesOnTalkingIsClosed) {
  Stranger stranger(port_);
  ASSERT_TRUE(stranger.hear());
  stranger.say(ProofMessage{});
  const auto refused = stranger.hear();
  ASSERT_TRUE(refused);
  EXPECT_EQ(std::get<RefusedMessage>(*refused).code,
            static_cast<uint16_t>(ErrorCode::unauthorized));
  stranger.say(std::string(10'000, 'x'));
  EXPECT_TRUE(stranger.is_closed(milliseconds(300)));
}

TEST_F(StrangersTest, AProofCannotBeSaidAgain) {
  Stranger first(port_);
  const auto hello = first.hear();
  ASSERT_TRUE(hello);
  const Nonce theirs = std::get<HelloMessage>(*hello).nonce, own = make_nonce();
  const ProofMessage proof{own, prove(options(0).token, Side::other, theirs, own)};
  first.say(proof);
  EXPECT_TRUE(std::holds_alternative<WelcomeMessage>(first.hear().value()));
  Stranger second(port_);
  ASSERT_TRUE(second.hear());
  second.say(proof);
  EXPECT_TRUE(std::holds_alternative<RefusedMessage>(second.hear().value()));
}

// Someone between two services that send each other pages could pass a client's proof on.
TEST_F(StrangersTest, AProofForPagesIsNoneForRanks) {
  Stranger stranger(port_);
  const auto hello = stranger.hear();
  ASSERT_TRUE(hello);
  const Nonce theirs = std::get<HelloMessage>(*hello).nonce, own = make_nonce();
  const std::string token = token_for_pages(options(0).token);
  stranger.say(ProofMessage{own, prove(token, Side::other, theirs, own)});
  const auto refused = stranger.hear();
  ASSERT_TRUE(refused);
  EXPECT_TRUE(std::holds_alternative<RefusedMessage>(*refused));
}

TEST_F(StrangersTest, AFloodDoesNotKeepRanksOut) {
  std::vector<Stranger> flood;
  for (int i = 0; i < 200; ++i) flood.emplace_back(port_);
  expect_a_rank_can_join();
  int closed = 0;
  for (int i = 0; i < 100; ++i) closed += flood[static_cast<size_t>(i)].is_closed() ? 1 : 0;
  EXPECT_EQ(closed, 100);
  EXPECT_EQ(plane(0).view().epoch, 1u);
}

TEST_F(StrangersTest, ALargeFrameIsTakenFromRanksOnly) {
  Stranger stranger(port_);
  ASSERT_TRUE(stranger.hear());
  std::string head(4, '\0');
  head[1] = 8;  // 2,048 bytes
  stranger.say(head);
  EXPECT_TRUE(stranger.is_closed(milliseconds(300)));

  Stranger proven(port_);
  prove_oneself(proven);
  proven.say(std::string("\0\0\x20\0", 4));  // 2 MiB
  EXPECT_TRUE(proven.is_closed(milliseconds(300)));
}

TEST_F(StrangersTest, WhoIsProvenButNoRankIsClosed) {
  Stranger idle(port_);
  prove_oneself(idle);
  EXPECT_TRUE(idle.is_closed());

  Stranger no_rank(port_);
  prove_oneself(no_rank);
  no_rank.say(JoinMessage{.identity = {.rank = 7, .num_ranks = 2, .version = "1"}});
  const auto refused = no_rank.hear();
  ASSERT_TRUE(refused);
  EXPECT_THAT(std::get<RefusedMessage>(*refused).text, HasSubstr("no rank 7 among 2"));

  Stranger chatty(port_);
  prove_oneself(chatty);
  chatty.say(HeartbeatMessage{});  // sent before it joined
  EXPECT_TRUE(chatty.is_closed(milliseconds(300)));
}

TEST_F(StrangersTest, AHostCannotForgeALineOfTheLog) {
  Stranger forger(port_);
  prove_oneself(forger);
  testing::internal::CaptureStderr();
  Identity id = identity(1);
  id.host = "h1\ncluster: all is well";
  forger.say(JoinMessage{.identity = id});
  const auto refused = forger.hear();
  ASSERT_TRUE(refused);
  EXPECT_THAT(std::get<RefusedMessage>(*refused).text,
              HasSubstr("host of rank 1 has control characters"));
  log::flush();
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("refused rank 1 from"));
  EXPECT_THAT(logged, testing::Not(HasSubstr("all is well")));
}

TEST_F(StrangersTest, AnotherVersionIsNamedByTheRank) {
  std::string bytes;
  append_frame(bytes, HelloMessage{true, {}});
  constexpr int kOther = kClusterProtocol + 1;
  bytes[4] = static_cast<char>(kOther);
  const FalseJoin join = join_false_rank_0(bytes);
  EXPECT_EQ(join.refusal.code, ErrorCode::lost_rank);
  EXPECT_THAT(join.refusal.message, HasSubstr(fmt::format("version {}", kOther)));
  // The rank also tells the other side, in its own version.
  ASSERT_GT(join.received.size(), 6u);
  EXPECT_EQ(join.received[4], static_cast<char>(kClusterProtocol));
}

TEST_F(StrangersTest, AMemberThatSpeaksNonsenseIsLost) {
  Stranger member(port_);
  join_as_member(member);
  member.say(HelloMessage{});
  EXPECT_TRUE(eventually([&] { return plane(0).view().lost == 1; }));
}

// Rank 0 serves alone while its rank 1 loads, which then has other terms.
class RefusedMemberTest : public StrangersTest {
 protected:
  RefusedMemberTest() { tolerate_ranks_ = 1; }
};

TEST_F(RefusedMemberTest, HasTimeToReadWhy) {
  plane(0).own_heartbeat().ready("t");
  Stranger member(port_);
  prove_oneself(member);
  Identity id = identity(1);
  id.boot_id = "b";
  member.say(JoinMessage{.identity = id, .heartbeat = {.terms = "t"}});
  ASSERT_TRUE(eventually([&] { return plane(0).view().began; }));
  member.say(LeaveMessage{"it is started again"});
  ASSERT_TRUE(member.is_closed());
  Stranger loading(port_);
  prove_oneself(loading);
  id.boot_id = "c";
  loading.say(JoinMessage{.identity = id});
  for (uint64_t i = 1; i <= 200; ++i)  // as many bytes as a stranger may not say
    loading.say(StoreRequest{.id = i, .key = "a key of thirty-two bytes, or so"});
  ASSERT_TRUE(eventually([&] { return plane(0).view().members[1].identity.boot_id == "c"; }));
  loading.say(HeartbeatMessage{{.terms = "other"}});
  std::optional<Message> heard;
  do {
    heard = loading.hear();
  } while (heard && !std::holds_alternative<RefusedMessage>(*heard));
  ASSERT_TRUE(heard);
  EXPECT_THAT(std::get<RefusedMessage>(*heard).text, HasSubstr("messages would differ"));
  loading.say(HeartbeatMessage{});
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(loading.is_reset());
}

// Returns the value of VmHWM or VmRSS.
int64_t status_kib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kib = 0; word == name + ":" && status >> kib) return kib;
  return -1;
}

TEST_F(StrangersTest, AMemberThatAsksAndDoesNotReadIsClosedBeforeItCostsMemory) {
  Stranger member(port_);
  join_as_member(member);
  ASSERT_TRUE(plane(0).set("large", std::string(kMaxStoreValueBytes, 'x')));
  std::string asks;
  for (uint64_t i = 1; i <= 3000; ++i) append_frame(asks, StoreRequest{.id = i, .key = "large"});
  std::ofstream("/proc/self/clear_refs") << 5;  // forgets the peak of earlier tests
  const int64_t before = status_kib("VmRSS");
  ASSERT_GT(before, 0);
  member.say(asks);  // for answers of 1.5 GB
  EXPECT_TRUE(eventually([&] { return plane(0).view().lost == 1; }));
  EXPECT_LT(status_kib("VmHWM") - before, 256 << 10);
  EXPECT_TRUE(member.is_closed());
}

TEST(ClusterToken, IsReadWithoutItsEnds) {
  const std::string path = testing::TempDir() + "cluster_token_test";
  std::ofstream(path) << "  0123456789abcdef\n";
  EXPECT_EQ(read_cluster_token(path).value(), "0123456789abcdef");
  std::ofstream(path) << "short\n";
  EXPECT_THAT(read_cluster_token(path).error().message, HasSubstr("has 5 bytes; 16 to 4096"));
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_EQ(read_cluster_token(path).error().code, ErrorCode::bad_value);
  EXPECT_EQ(read_cluster_token(path + ".none").error().code, ErrorCode::io);
}

TEST(ClusterToken, PagesHaveOneOfTheirOwn) {
  const std::string path = testing::TempDir() + fmt::format("page_token_test_{}", getpid());
  std::ofstream(path) << "0123456789abcdef\n";
  const std::string token = read_page_token(path).value();
  EXPECT_EQ(token, token_for_pages("0123456789abcdef"));
  EXPECT_NE(token, "0123456789abcdef");
  EXPECT_EQ(read_page_token("").value(), "");
  EXPECT_EQ(read_page_token(path + ".none").error().code, ErrorCode::io);
  unlink(path.c_str());
}

TEST(ClusterToken, WhomOthersCanReadIsWarnedOf) {
  const std::string path = testing::TempDir() + fmt::format("cluster_token_mode_test_{}", getpid());
  std::ofstream(path) << "0123456789abcdef\n";
  const auto warns = [&](mode_t mode) {
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(read_cluster_token(path));
    return testing::internal::GetCapturedStderr().contains("chmod 600");
  };
  EXPECT_FALSE(warns(0600));
  EXPECT_TRUE(warns(0640));
  EXPECT_TRUE(warns(0604));
  if (geteuid() == 0) {  // only root gives files away
    EXPECT_EQ(chown(path.c_str(), 1, 1), 0);
    EXPECT_FALSE(warns(0440));
    EXPECT_TRUE(warns(0444));
  }
  unlink(path.c_str());
}

TEST(ClusterProof, DependsOnAllThatIsSaid) {
  const Nonce a = make_nonce(), b = make_nonce();
  const Proof proof = prove("token", Side::other, a, b);
  EXPECT_TRUE(same_proof(proof, prove("token", Side::other, a, b)));
  EXPECT_FALSE(same_proof(proof, prove("Token", Side::other, a, b)));
  EXPECT_FALSE(same_proof(proof, prove("token", Side::rank_0, a, b)));
  EXPECT_FALSE(same_proof(proof, prove("token", Side::other, b, a)));
}

}  // namespace
}  // namespace hocket
