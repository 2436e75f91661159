// A real Redis or Valkey on a free port of this machine, without files. Tests only.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cluster/proxy_testing.h"
#include "engine/pages/redis_link.h"

namespace hocket::testing {

class TestRedis {
 public:
  // Returns the path of the program; empty if none is installed.
  static std::string program() {
    const char* const path = std::getenv("PATH");
    for (const char* name : {"valkey-server", "redis-server"})
      for (std::string_view remaining = path != nullptr ? path : ""; !remaining.empty();) {
        const size_t end = std::min(remaining.find(':'), remaining.size());
        const std::string file = fmt::format("{}/{}", remaining.substr(0, end), name);
        if (access(file.c_str(), X_OK) == 0) return file;
        remaining.remove_prefix(std::min(end + 1, remaining.size()));
      }
    return {};
  }

  // `more` are options of its own, such as "--maxmemory", "1mb". tls: how the test's own commands
  // reach a server inside TLS, whose files are among these options; null: it is without TLS.
  explicit TestRedis(std::vector<std::string> more = {},
                     std::shared_ptr<const TlsContext> tls = nullptr)
      : options_(std::move(more)), tls_(std::move(tls)) {
    port_ = TestProxy::free_port();
    const char* const port_flag = tls_ == nullptr ? "--port" : "--tls-port";
    if (tls_ != nullptr) options_.insert(options_.begin(), {"--port", "0"});
    options_.insert(options_.begin(), {program(), port_flag, std::to_string(port_), "--bind",
                                       "127.0.0.1", "--save", "", "--appendonly", "no", "--dir",
                                       std::filesystem::temp_directory_path().string()});
  }
  ~TestRedis() { kill(); }

  // Starts it, or starts it again with nothing in it. Returns when it answers.
  void start() {
    std::vector<char*> words;
    for (std::string& word : options_) words.push_back(word.data());
    words.push_back(nullptr);
    process_ = fork();
    HOCKET_CHECK(process_ >= 0);
    if (process_ == 0) {
      const int nowhere = ::open("/dev/null", O_RDWR);
      for (const int fd : {0, 1, 2}) dup2(nowhere, fd);
      execv(words[0], words.data());
      _exit(1);
    }
    for (int i = 0; i < 1000; ++i) {
      if (const auto reply = ask({"PING"}); reply && reply->kind != RedisReply::Kind::absent)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    HOCKET_CHECK(false);
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  void stop() { ::kill(process_, SIGSTOP); }
  void go_on() { ::kill(process_, SIGCONT); }

  uint16_t port() const { return port_; }
  std::string url() const { return fmt::format("redis://127.0.0.1:{}", port_); }

  // Sends a command on a connection of its own.
  Result<RedisReply> ask(std::initializer_list<std::string_view> words) const {
    HOCKET_TRY(Fd socket, start_dial(TestProxy::loopback(port_)));
    RedisLink link(ServerStream(std::move(socket), tls_, "127.0.0.1"), "the test's Redis");
    HOCKET_TRY_VOID(link.begin());
    HOCKET_TRY_VOID(link.send(words));
    return link.receive(RedisLink::kMaxValueBytes);
  }
  int64_t num_keys() const { return ask({"DBSIZE"})->number; }
  // Returns any key; empty if there is none.
  std::string some_key() const { return ask({"RANDOMKEY"})->text; }

 private:
  std::vector<std::string> options_;
  const std::shared_ptr<const TlsContext> tls_;
  uint16_t port_ = 0;
  pid_t process_ = -1;
};

}  // namespace hocket::testing
