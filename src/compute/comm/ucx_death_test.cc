// A rank whose process dies: the others are told its name, over shared memory and over TCP.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "compute/comm/testing.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::channel;
using ::testing::HasSubstr;
using testing::receive;
using testing::send;
using Bytes = std::vector<std::byte>;

constexpr int kRanks = 3, kMortal = 1;  // the others are threads of the test
constexpr size_t kLong = 3'000'000;
constexpr const char* kRole = "HOCKET_TEST_UCX_ROLE";  // "tcp 5 6": way, descriptors in and out

void put(int fd, std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  ASSERT_EQ(write(fd, &length, sizeof(length)), ssize_t{sizeof(length)});
  ASSERT_EQ(write(fd, bytes.data(), length), static_cast<ssize_t>(length));
}

Bytes take(int fd) {
  uint64_t length = 0;
  if (read(fd, &length, sizeof(length)) != ssize_t{sizeof(length)}) return {};
  Bytes bytes(length);
  return read(fd, bytes.data(), length) == static_cast<ssize_t>(length) ? bytes : Bytes();
}

UcxOptions options_of(const std::string& way) {
  return way == "tcp" ? testing::ucx_tcp() : testing::ucx_shared_memory();
}

// The process that dies: after a word to each, in the midst of a long message.
TEST(UcxMortal, DISABLED_Rank) {
  const char* role = std::getenv(kRole);
  if (role == nullptr) GTEST_SKIP() << "run by UcxDeath only";
  std::array<char, 16> way{};
  int in = -1, out = -1;
  ASSERT_EQ(std::sscanf(role, "%15s %d %d", way.data(), &in, &out), 3);
  auto made = UcxTransport::create(kMortal, kRanks, options_of(way.data()));
  ASSERT_TRUE(made.has_value());
  UcxTransport& end = **made;
  put(out, end.address());
  std::array<Bytes, kRanks> bytes;
  std::array<std::span<const std::byte>, kRanks> addresses;
  for (int rank = 0; rank < kRanks; ++rank) addresses[rank] = bytes[rank] = take(in);
  ASSERT_TRUE(end.connect(addresses).has_value());
  const Bytes longer(kLong), word(10, std::byte{7});
  Bytes slot(10);
  for (const int peer : {0, 2}) {
    end.expect(channel(peer), slot);
    ASSERT_TRUE(send(end, channel(peer), word).has_value());
    ASSERT_TRUE(receive(end, channel(peer)).has_value());
  }
  for (const int peer : {0, 2}) ASSERT_TRUE(send(end, channel(peer, 1), longer).has_value());
  end.progress();
  _exit(0);
}

class Mortal {
 public:
  explicit Mortal(const std::string& way) {
    std::array<int, 2> to{}, from{};
    HOCKET_CHECK(pipe(to.data()) == 0 && pipe(from.data()) == 0);
    in_ = from[0], out_ = to[1];
    for (const int fd : {in_, out_}) fcntl(fd, F_SETFD, FD_CLOEXEC);
    setenv(kRole, fmt::format("{} {} {}", way, to[0], from[1]).c_str(), 1);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    std::string self = "/proc/self/exe", filter = "--gtest_filter=UcxMortal.DISABLED_Rank",
                also = "--gtest_also_run_disabled_tests";
    char* const arguments[] = {self.data(), filter.data(), also.data(), nullptr};
    HOCKET_CHECK(posix_spawn(&pid_, self.c_str(), &quiet, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&quiet);
    unsetenv(kRole);
    close(to[0]), close(from[1]);
  }
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;
  ~Mortal() {
    close(in_), close(out_);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  Bytes address() { return take(in_); }
  void tell(std::span<const std::span<const std::byte>> addresses) {
    for (const auto address : addresses) put(out_, address);
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
};

class UcxDeath : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, UcxDeath, ::testing::Values("posix", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

// What rank 0 and rank 2 see; the other one of them is unharmed.
void survive(UcxTransport& end) {
  const int other = 2 - end.rank();
  Bytes word(10), longer(kLong), slot(10);
  const Bytes mine(10, std::byte{9});
  end.expect(channel(kMortal), word);
  end.expect(channel(kMortal, 1), longer);
  ASSERT_TRUE(send(end, channel(kMortal), mine).has_value());
  const auto first = receive(end, channel(kMortal));
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(word, Bytes(10, std::byte{7}));
  const TimePoint before = end.now();
  auto last = receive(end, channel(kMortal, 1));
  if (last.has_value()) {  // it was quick: then there is no other one
    end.expect(channel(kMortal, 1), longer);
    last = receive(end, channel(kMortal, 1));
  }
  ASSERT_FALSE(last.has_value());
  EXPECT_LT(end.now() - before, 10s);
  EXPECT_EQ(last.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(last.error().message, HasSubstr("rank 1 is lost: "));
  EXPECT_FALSE(send(end, channel(kMortal), word).has_value());
  for (int i = 0; i < 20; ++i) {
    end.expect(channel(other), slot);
    ASSERT_TRUE(send(end, channel(other), mine).has_value());
    const auto arrival = receive(end, channel(other));
    ASSERT_TRUE(arrival.has_value()) << arrival.error().message;
    EXPECT_EQ(slot, mine);
    testing::wait_until_sent(end, channel(other));
  }
  const TimePoint closing = end.now();
  end.withdraw();
  EXPECT_LT(end.now() - closing, 5s);
}

TEST_P(UcxDeath, IsToldWithItsName) {
  const UcxOptions options = options_of(GetParam());
  if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
  Mortal mortal(GetParam());
  std::array<std::span<const std::byte>, kRanks> addresses;
  const Bytes its = mortal.address();
  addresses[kMortal] = its;
  std::barrier all_there(2);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      auto end = UcxTransport::create(rank, kRanks, options);
      ASSERT_TRUE(end.has_value());
      addresses[static_cast<size_t>(rank)] = (*end)->address();
      all_there.arrive_and_wait();
      const auto connected = (*end)->connect(addresses);
      ASSERT_TRUE(connected.has_value()) << connected.error().message;
      if (rank == 0) mortal.tell(addresses);
      survive(**end);
      all_there.arrive_and_wait();
      end->reset();
    });
  }
}

}  // namespace
}  // namespace hocket
