// Tests stores of pages by themselves: a Redis that is real, is damaged, hangs and comes back, and
// files on a mount that stops answering.
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "engine/pages/file_store.h"
#include "engine/pages/test_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST_F(RedisStoreTest, PagesComeBackAsTheyWere) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  int first = 0;
  for (const size_t size : {size_t{1}, size_t{256}, size_t{300'000}}) {
    SCOPED_TRACE(size);
    first += 1000;
    EXPECT_EQ(put_numbers(store, first, first + 100, size), 100u);
    EXPECT_TRUE(store.has(stored_key(first)));
    RedisStore other(options(redis.port()));
    EXPECT_FALSE(other.has(stored_key(first))) << "has() asks nobody";
    const auto got = get_numbers(other, first, first + 120, size);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, 100);
    EXPECT_TRUE(other.has(stored_key(first + 99)));
    EXPECT_EQ(get_numbers(other, first + 50, first + 100, size), 50);
    const std::vector<PageKey> keys = {stored_key(first + 3), stored_key(first + 500)};
    EXPECT_EQ(other.exist(keys), (std::vector<bool>{true, false}));
  }
  EXPECT_NE(redis.ask({"TTL", redis.some_key()})->number, -1) << "unread pages leave some day";
  const auto found = store.describe();
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("noeviction"), std::string::npos) << *found;
}

TEST_F(RedisStoreTest, TheLastThatIsHeldIsFound) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  EXPECT_EQ(put_numbers(store, 3, 5), 2u);
  std::vector<PageKey> keys;
  for (int i = 0; i < 300; ++i) keys.push_back(stored_key(i));
  const auto reading = store.open({.is_over = [] { return false; }});
  ASSERT_TRUE(reading);
  EXPECT_EQ((*reading)->last_held(keys), 5u);
  EXPECT_EQ((*reading)->last_held(std::span(keys).first(3)), 0u);
}

// Every bit of a value, its head and its sum included; and values that are cut, longer or no text.
TEST_F(RedisStoreTest, EveryFlippedBitIsFound) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_TRUE(put_numbers(store, 1, 2));
  const std::string key = redis.some_key();
  const std::string whole = redis.ask({"GET", key})->text;
  ASSERT_EQ(whole.size(), 256 + sizeof(PageHeader));
  uint64_t num_damaged = 0;
  const auto expect_absent = [&] {
    EXPECT_EQ(get_numbers(store, 1, 2), 0);
    EXPECT_EQ(store.figures().damaged_total, ++num_damaged);
    EXPECT_EQ(redis.ask({"EXISTS", key})->number, 0) << "it is deleted";
  };
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(redis.ask({"SET", key, damaged}));
    expect_absent();
    if (::testing::Test::HasFailure()) return;
  }
  for (const std::string& other : {std::string(), whole.substr(0, 100), whole + "x"}) {
    ASSERT_TRUE(redis.ask({"SET", key, other}));
    expect_absent();
  }
  ASSERT_TRUE(redis.ask({"RPUSH", key, "a list"}));
  expect_absent();
  ASSERT_TRUE(redis.ask({"SET", key, whole}));
  EXPECT_EQ(get_numbers(store, 1, 2), 1);
}

TEST_F(RedisStoreTest, APageOfAnotherKeyIsNotTaken) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_TRUE(put_numbers(store, 1, 2));
  const std::string value = redis.ask({"GET", redis.some_key()})->text;
  std::string other = store.prefix();
  for (const uint8_t byte : stored_key(2)) other += fmt::format("{:02x}", byte);
  ASSERT_TRUE(redis.ask({"SET", other, value}));
  EXPECT_EQ(get_numbers(store, 2, 3), 0);
  EXPECT_EQ(store.figures().damaged_total, 1u);
}

TEST_F(RedisStoreTest, WithASecretOnlyThoseWhoKnowItMakePages) {
  TestRedis redis;
  redis.start();
  RedisStore plain(options(redis.port())), signing(options(redis.port(), "one")),
      other(options(redis.port(), "two"));
  ASSERT_TRUE(put_numbers(signing, 1, 2));
  EXPECT_EQ(get_numbers(signing, 1, 2), 1);
  EXPECT_EQ(get_numbers(other, 1, 2), 0) << "its keys have other names";
  EXPECT_EQ(get_numbers(plain, 1, 2), 0);
  const std::string key = redis.some_key();
  const PageHeader forged = make_page_header(stored_key(1), page_number(1));
  std::string value(reinterpret_cast<const char*>(&forged), sizeof forged);
  for (const std::byte byte : page_number(1)) value.push_back(static_cast<char>(byte));
  ASSERT_TRUE(redis.ask({"SET", key, value}));
  EXPECT_EQ(get_numbers(signing, 1, 2), 0);
  EXPECT_EQ(signing.figures().damaged_total, 1u);
}

TEST_F(RedisStoreTest, AStoreThatIsGoneIsLeftAloneAndTriedAgain) {
  TestRedis redis;
  RedisStore store(options(redis.port()));
  EXPECT_FALSE(put_numbers(store, 0, 4)) << "nothing listens there";
  EXPECT_TRUE(store.is_away());
  EXPECT_FALSE(store.takes_writes());
  EXPECT_EQ(get_numbers(store, 0, 4), 0) << "nobody is asked";
  redis.start();
  ASSERT_TRUE(wait_until_back(store));
  EXPECT_EQ(put_numbers(store, 0, 4), 4u);
  redis.kill();
  EXPECT_FALSE(get_numbers(store, 0, 4)) << "nothing listens there any more";
  EXPECT_FALSE(store.has(stored_key(0))) << "what it had may be gone";
  redis.start();
  ASSERT_TRUE(wait_until_back(store));
  EXPECT_EQ(get_numbers(store, 0, 4), 0) << "it came back empty";
  EXPECT_EQ(put_numbers(store, 0, 4), 4u);
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
  EXPECT_EQ(store.figures().failures_total, 2u);
}

TEST_F(RedisStoreTest, AStoreThatHangsCostsItsLimitOnce) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_TRUE(put_numbers(store, 0, 4));
  redis.stop();
  const TimePoint begin = RealClock().now();
  const auto got = get_numbers(store, 0, 4);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::timed_out);
  EXPECT_LT(RealClock().now() - begin, 2 * RedisLink::kSilence);
  EXPECT_TRUE(store.is_away());
  redis.go_on();
  ASSERT_TRUE(wait_until_back(store));
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
}

// A large value has half a minute, which the end of a process has not. That is no fault of the
// store.
TEST_F(RedisStoreTest, AWriteUnderWayIsBrokenOffAtTheEnd) {
  TestRedis redis;
  redis.start();
  TestProxy proxy(redis.port());
  proxy.set_after(3, TestProxy::Link::frozen);  // with the answer that the page is not there
  RedisStore store(options(proxy.port()));
  int num_asked = 0;
  const auto broken = put_numbers(store, 1, 2, size_t{32} << 20, [&] { return ++num_asked == 3; });
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::shutting_down) << broken.error().message;
  EXPECT_EQ(num_asked, 3);
  EXPECT_FALSE(store.is_away());
  proxy.set(TestProxy::Link::up);
  EXPECT_EQ(put_numbers(store, 2, 4), 2u) << "another connection is whole";
}

// The answer comes, byte by byte: that is no progress either.
TEST_F(RedisStoreTest, NobodyWaitsForAReplyThatDrips) {
  const auto listener = listen_on(TestProxy::loopback(0));
  std::atomic<bool> over{false};
  std::thread dripping([&] {
    Fd socket(accept(listener->get(), nullptr, nullptr));
    while (!over) {
      send(socket.get(), "$", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      send(socket.get(), "9", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  RedisStore store(options(local_address(*listener).port()));
  const TimePoint begin = RealClock().now();
  EXPECT_FALSE(get_numbers(store, 0, 1));
  EXPECT_LT(RealClock().now() - begin, 3 * RedisLink::kSilence);
  over = true;
  dripping.join();
}

TEST_F(RedisStoreTest, AFullStoreIsStillRead) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_TRUE(put_numbers(store, 0, 4));
  ASSERT_TRUE(redis.ask({"CONFIG", "SET", "maxmemory", "1"}));
  const auto full = put_numbers(store, 4, 8);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("OOM"), std::string::npos);
  EXPECT_FALSE(store.is_away());
  EXPECT_EQ(get_numbers(store, 0, 8), 4);
  ASSERT_TRUE(redis.ask({"CONFIG", "SET", "maxmemory", "0"}));
  EXPECT_EQ(put_numbers(store, 4, 8), 4u) << "the connection is whole";
}

TEST_F(RedisStoreTest, AReplicaIsReadAndRefusesPages) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_TRUE(put_numbers(store, 0, 4));
  ASSERT_TRUE(redis.ask({"REPLICAOF", "127.0.0.1", "1"}));
  const auto refused = put_numbers(store, 4, 8);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("READONLY"), std::string::npos) << refused.error().message;
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
}

TEST_F(RedisStoreTest, AWrongPasswordIsNamedAsOne) {
  TestRedis redis({"--requirepass", "right"});
  redis.start();
  RedisStore::Options with = options(redis.port());
  EXPECT_EQ(RedisStore(with).describe().error().code, ErrorCode::unauthorized);
  with.address.password = "wrong";
  const auto refused = RedisStore(with).describe();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unauthorized) << refused.error().message;
  EXPECT_EQ(refused.error().message.find("wrong password"), std::string::npos);
  with.address.password = "right";
  with.address.database = 2;
  EXPECT_TRUE(RedisStore(with).describe());
  with.address.user = "default";
  EXPECT_TRUE(RedisStore(with).describe());
}

// Killed at random moments of reads and writes: what comes back has its bytes, or is absent.
TEST_F(RedisStoreTest, AKilledStoreGivesNoWrongPage) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  std::atomic<bool> over{false};
  std::thread writing([&] {
    for (int i = 0; !over; i = (i + 8) % 256)
      static_cast<void>(put_numbers(store, i, i + 8, 50'000));
  });
  std::mt19937 random(5);
  int num_read = 0;
  const auto read = [&] { num_read += get_numbers(store, 0, 64, 50'000).value_or(0); };
  for (int round = 0; round < 12; ++round) {
    const TimePoint limit = RealClock().now() + std::chrono::seconds(10);
    for (const int before = num_read; num_read == before && RealClock().now() < limit;) read();
    std::thread killing([&redis, wait = random() % 60] {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
      redis.kill();
    });
    const TimePoint until = RealClock().now() + std::chrono::milliseconds(70);
    while (RealClock().now() < until) read();
    killing.join();
    redis.start();
    EXPECT_TRUE(wait_until_back(store));
  }
  over = true;
  writing.join();
  EXPECT_GT(num_read, 0);
  EXPECT_EQ(store.figures().damaged_total, 0u);
}

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() : folder_(fs::path(::testing::TempDir()) / "file_store_test") {
    fs::remove_all(folder_);
    auto opened = PageFiles::open(folder_);
    HOCKET_CHECK(opened.has_value());
    files_ = *std::move(opened);
  }
  ~FileStoreTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
  std::shared_ptr<PageFiles> files_;
};

TEST_F(FileStoreTest, PagesComeBackAsTheyWere) {
  FileStore store(files_, FileStore::calls_for(folder_));
  EXPECT_EQ(put_numbers(store, 0, 10), 10u);
  EXPECT_TRUE(store.has(stored_key(9)));
  EXPECT_EQ(get_numbers(store, 0, 12), 10);
  EXPECT_EQ(store.figures().pages, 10);
}

// Pages are read ahead in the order in which they are expected; others come all the same.
TEST_F(FileStoreTest, PagesComeInAnyOrder) {
  FileStore store(files_, FileStore::calls_for(folder_));
  ASSERT_EQ(put_numbers(store, 0, 6), 6u);
  const auto reading = store.open({}).value();
  const std::vector<PageKey> keys = {stored_key(0), stored_key(1), stored_key(2), stored_key(9)};
  ASSERT_TRUE(reading->expect(keys, PageKind::page).has_value());
  std::vector<std::byte> page(256);
  for (const int number : {0, 5, 2, 1, 1, 4}) {
    EXPECT_EQ(reading->get(stored_key(number), page), true);
    EXPECT_EQ(page, page_number(number, page.size()));
  }
  EXPECT_EQ(reading->get(stored_key(9), page), false);
}

// The next page is read while the one before is used, so its file may go then.
TEST_F(FileStoreTest, TheNextPageIsReadAhead) {
  FileStore store(files_, FileStore::calls_for(folder_, FileStore::kLimit, 1));
  ASSERT_EQ(put_numbers(store, 0, 3), 3u);
  const auto reading = store.open({}).value();
  const std::vector<PageKey> keys = {stored_key(0), stored_key(1), stored_key(2)};
  ASSERT_TRUE(reading->expect(keys, PageKind::page).has_value());
  std::vector<std::byte> page(256);
  EXPECT_EQ(reading->get(stored_key(0), page), true);
  ASSERT_TRUE(
      store.exist(keys).has_value());  // the only thread has ended the calls before this one
  fs::remove_all(folder_);
  EXPECT_EQ(reading->get(stored_key(1), page), true);
  EXPECT_EQ(page, page_number(1, page.size()));
  EXPECT_EQ(reading->get(stored_key(2), page), false);
}

// A store without any time for a call gives each page the time of its bytes.
TEST_F(FileStoreTest, ALargePageMayTakeLonger) {
  FileStore store(files_, FileStore::calls_for(folder_, Duration::zero()));
  const std::vector<std::byte> large(128 << 20, std::byte{3});
  const PageStore::Page page{.key = stored_key(0), .bytes = large};
  EXPECT_EQ(store.put({&page, 1}, [] { return false; }), 1u);
  std::vector<std::byte> got(large.size());
  const auto found = store.get(page.key, got);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(*found);
  EXPECT_EQ(got == large, true);
}

// The calls of the store hang as they do on a mount that has stopped answering.
TEST_F(FileStoreTest, AFolderThatHangsIsLeftAloneAndComesBack) {
  const auto calls = FileStore::calls_for(folder_, std::chrono::milliseconds(100));
  FileStore store(files_, calls, kShortInterval);
  ASSERT_EQ(put_numbers(store, 0, 4), 4u);
  std::promise<void> mount_answers;
  const std::shared_future<void> answers = mount_answers.get_future();
  std::vector<std::future<bool>> hanging;
  for (int i = 0; i < 2; ++i)
    hanging.push_back(std::async(std::launch::async, [&] {
      return calls->run<int>([answers]() -> Result<int> { return answers.wait(), 1; }).has_value();
    }));
  for (auto& one : hanging) EXPECT_FALSE(one.get());
  const auto read = get_numbers(store, 0, 4);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::timed_out);
  EXPECT_EQ(read.error().param, "kv-cache-dir");
  EXPECT_TRUE(store.is_away());
  EXPECT_FALSE(store.takes_writes());
  EXPECT_EQ(get_numbers(store, 0, 4), 0) << "nobody waits for it now";
  EXPECT_TRUE(store.has(stored_key(0))) << "that asks no disk";
  std::this_thread::sleep_for(2 * kShortInterval);
  EXPECT_FALSE(put_numbers(store, 4, 5)) << "it still hangs";
  mount_answers.set_value();
  std::this_thread::sleep_for(2 * kShortInterval);
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
  EXPECT_EQ(put_numbers(store, 4, 5), 1u);
}

}  // namespace
}  // namespace hocket
