#include "cluster/etcd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "cluster/etcd_process_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(EtcdAddress, IsRead) {
  const auto one = read_etcd_address("etcd://h0");
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, (EtcdAddress{{{"h0", 2379}}, "hocket"}));
  const auto three = read_etcd_address("etcd://h0:1,[::1],10.0.0.2:3/chat-1");
  ASSERT_TRUE(three);
  EXPECT_EQ(*three, (EtcdAddress{{{"h0", 1}, {"::1", 2379}, {"10.0.0.2", 3}}, "chat-1"}));
  for (const char* text : {"etcds://h0/a", "https://h0:2379/a"})
    EXPECT_EQ(read_etcd_address(text).value(), (EtcdAddress{{{"h0", 2379}}, "a", true})) << text;
}

TEST(EtcdAddress, RefusesWhatIsNotThere) {
  const auto told = [](std::string_view text) {
    const auto address = read_etcd_address(text);
    return address ? "it was taken" : address.error().message;
  };
  EXPECT_THAT(told("http://h0:2379"), HasSubstr("none of etcd://"));
  EXPECT_THAT(told("etcd://ann:secret@h0"), HasSubstr("no password"));
  EXPECT_THAT(told("etcd://ann:secret@h0"), Not(HasSubstr("secret")));
  EXPECT_THAT(told("https://ann:secret@h0"), Not(HasSubstr("secret")));
  EXPECT_THAT(told("h0:2379"), HasSubstr("etcd://"));
  EXPECT_THAT(told("etcd://"), HasSubstr("0 servers"));
  EXPECT_THAT(told("etcd://h0,,h1"), HasSubstr("'' is not host:port"));
  EXPECT_THAT(told("etcd://h0:x"), HasSubstr("'h0:x'"));
  EXPECT_THAT(told("etcd://h0:0"), HasSubstr("'h0:0'"));
  EXPECT_THAT(told("etcd://h0/a/b"), HasSubstr("name"));
  std::string many = "etcd://h";
  for (int i = 0; i < 16; ++i) many += ",h";
  EXPECT_THAT(told(many), HasSubstr("17 servers"));
}

// A server that sends its text to each client and keeps the connection open.
class FixedAnswerServer {
 public:
  explicit FixedAnswerServer(std::string text)
      : text_(std::move(text)), thread_([this] { run(); }) {}
  ~FixedAnswerServer() {
    stopping_ = true;
    thread_.join();
  }
  HostPort address() const { return {"127.0.0.1", local_address(*listener_).port()}; }

 private:
  void run() {
    std::vector<Fd> taken;
    while (!stopping_) {
      pollfd ready{listener_->get(), POLLIN, 0};
      if (::poll(&ready, 1, 5) <= 0) continue;
      Fd fd(::accept4(listener_->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) continue;
      (void)::send(fd.get(), text_.data(), text_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      taken.push_back(std::move(fd));
    }
  }
  const std::string text_;
  Result<Fd> listener_ = listen_on(TestProxy::loopback(0));
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::string told_by(const std::string& text) {
  const FixedAnswerServer talker(text);
  EtcdClient client({.servers = {talker.address()}, .attempt_limit = milliseconds(300)});
  const TimePoint began = RealClock().now();
  const auto range = client.range("/a", 1);
  EXPECT_LT(RealClock().now() - began, std::chrono::seconds(3));
  return range ? "it was taken" : range.error().message;
}

TEST(EtcdClient, StrangersAreBoundedInTimeAndBytes) {
  EXPECT_THAT(told_by(""), HasSubstr("no answer in time"));
  EXPECT_THAT(told_by("SSH-2.0-x\r\n"), HasSubstr("the server is not etcd"));
  EXPECT_THAT(told_by("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n"),
              AllOf(HasSubstr("its answer is longer than 1048576 bytes"),
                    Not(HasSubstr("the server is not etcd"))));
  EXPECT_THAT(told_by("HTTP/1.1 200 OK\r\nX: " + std::string(20'000, 'x')),
              HasSubstr("the server is not etcd: header limit"));
  EXPECT_THAT(told_by("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n"),
              HasSubstr("its answer is longer than 1048576 bytes"));
  EXPECT_THAT(told_by("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), HasSubstr("no revision"));
  EXPECT_THAT(told_by("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), HasSubstr("HTTP 503"));
}

TEST(EtcdClient, AWatchOfAnEndlessLineEnds) {
  const FixedAnswerServer talker("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n180000\r\n" +
                                 std::string(0x180000, 'x'));
  EtcdClient client({.servers = {talker.address()}});
  ASSERT_TRUE(client.watch("/a", 1));
  for (int i = 0; i < 1000; ++i) {
    const auto changes = client.changes();
    if (!changes) return;  // the server's send may also have been cut by a full buffer
    std::this_thread::sleep_for(milliseconds(1));
  }
  SUCCEED();
}

// The end of a rank does not wait for a name service that hangs.
TEST(EtcdClient, AResolverThatHangsIsNotWaitedFor) {
  const auto answers = std::make_shared<std::promise<void>>();
  const auto hanging = [ended = answers->get_future().share()](const HostPort&) {
    ended.wait();
    return Result<std::vector<SocketAddress>>(fail(ErrorCode::io, "too late"));
  };
  {
    EtcdClient client({.servers = {{"h0", 2379}, {"h1", 2379}, {"h2", 2379}},
                       .attempt_limit = milliseconds(50),
                       .resolver = hanging});
    const auto range = client.range("/a", 1);
    ASSERT_FALSE(range);
    EXPECT_THAT(range.error().message, HasSubstr("the name service of this host has not answered"));
  }
  answers->set_value();
}

class EtcdServersTest : public testing::Test {
 protected:
  void start(int count) {
    if (EtcdProcess::program().empty()) GTEST_SKIP() << "etcd is not installed: etcd-server";
    servers_ = EtcdProcess::start(count);
    ASSERT_FALSE(servers_.empty()) << "etcd does not start";
    client_ = std::make_unique<EtcdClient>(
        EtcdClient::Options{.servers = EtcdProcess::addresses(servers_)});
  }
  // Waits for a change of the watched key.
  Result<EtcdChange> next_change() {
    for (int i = 0; i < 500; ++i) {
      HOCKET_TRY(const auto changes, client_->changes());
      if (!changes.empty()) return changes.back();
      std::this_thread::sleep_for(milliseconds(10));
    }
    return fail(ErrorCode::timed_out, "no change came");
  }

  std::vector<std::unique_ptr<EtcdProcess>> servers_;
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdServersTest, LeaseSwapAndWatchAreThoseOfARealOne) {
  start(1);
  if (IsSkipped()) return;
  const auto lease = client_->grant(1);
  ASSERT_TRUE(lease) << lease.error().message;
  const auto before = client_->range("/a", 10);
  ASSERT_TRUE(before);
  EXPECT_TRUE(before->entries.empty());
  ASSERT_TRUE(client_->watch("/a", before->revision + 1));
  EXPECT_EQ(client_->swap({.key = "/a", .puts = {{"/a", "1", lease->id}, {"/b", "2"}}}), true);
  EXPECT_EQ(client_->swap({.key = "/a", .puts = {{"/a", "3", lease->id}}}), false);
  const auto set = next_change();
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->entry.value, "1");
  EXPECT_EQ(set->entry.create_revision, before->revision + 1);
  EXPECT_EQ(client_->local_host(), "127.0.0.1");
  EXPECT_GT(client_->keep_alive(lease->id)->ttl_s, 0);
  const auto erased = next_change();  // the lease ends
  ASSERT_TRUE(erased) << erased.error().message;
  EXPECT_TRUE(erased->erased);
  EXPECT_GT(erased->entry.mod_revision, set->entry.mod_revision);
  EXPECT_EQ(client_->keep_alive(lease->id)->ttl_s, 0);
  EXPECT_EQ(client_->range("/b", 1)->entries.front().value, "2");
  const auto gone = client_->swap({.key = "", .puts = {{"/a", "1", lease->id}}});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::not_found);
  EXPECT_EQ(client_->swap({.key = "/b",
                           .create_revision = set->entry.create_revision,
                           .puts = {},
                           .erased = {"/b"}}),
            true);
  EXPECT_TRUE(client_->range("/b", 1)->entries.empty());
}

TEST_F(EtcdServersTest, OneOfThreeIsKilledAndOneHangs) {
  start(3);
  if (IsSkipped()) return;
  EXPECT_EQ(client_->swap({.key = "/a", .puts = {{"/a", "1"}}}), true);
  servers_[0]->kill();  // the one that is asked first
  Result<EtcdRange> read = client_->range("/a", 1);
  for (int i = 0; i < 10 && !read; ++i) read = client_->range("/a", 1);  // they elect a leader
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->entries.front().value, "1");
  EXPECT_FALSE(client_->changes()) << "the watch was at the server that is gone";
  ASSERT_TRUE(client_->watch("/a", read->revision + 1));
  EXPECT_EQ(client_->swap({.key = "", .puts = {{"/a", "2"}}}), true);
  EXPECT_EQ(next_change()->entry.value, "2");
  servers_[0]->start();
  // One that takes connections and answers nothing costs one attempt, then another is asked.
  for (const auto& server : {servers_[1].get(), servers_[2].get()}) {
    server->signal(SIGSTOP);
    const TimePoint began = RealClock().now();
    read = client_->range("/a", 1);
    for (int i = 0; i < 10 && !read; ++i) read = client_->range("/a", 1);
    EXPECT_TRUE(read) << read.error().message;
    EXPECT_LT(RealClock().now() - began, std::chrono::seconds(8));
    server->signal(SIGCONT);
  }
}

}  // namespace
}  // namespace hocket
