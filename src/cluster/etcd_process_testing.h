// Tests only: real servers of etcd on this machine, in folders that end with the test. Their
// elections are five times faster than by default.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cluster/etcd_client.h"
#include "cluster/proxy_testing.h"

namespace hocket {

// How servers speak TLS with clients: further words of their command lines, and a client that they
// take.
struct EtcdTls {
  std::vector<std::string> words = {};
  std::shared_ptr<const TlsContext> client = nullptr;
};

class EtcdProcess {
 public:
  // Returns where etcd is; empty if it is not installed.
  static std::string program() {
    for (const char* path : {"/usr/bin/etcd", "/usr/local/bin/etcd"})
      if (std::filesystem::exists(path)) return path;
    return {};
  }
  // Returns servers of one etcd that answer; an empty list if they do not within 20 s.
  static std::vector<std::unique_ptr<EtcdProcess>> start(int count, const EtcdTls& tls = {}) {
    std::vector<std::unique_ptr<EtcdProcess>> all;
    std::string members;
    for (int i = 0; i < count; ++i) {
      all.push_back(std::unique_ptr<EtcdProcess>(new EtcdProcess(i)));
      members += fmt::format("{}e{}=http://127.0.0.1:{}", i == 0 ? "" : ",", i, all[i]->peer_port_);
    }
    for (auto& one : all) one->members_ = members;
    for (auto& one : all) one->tls_words_ = tls.words;
    for (auto& one : all) one->start();
    EtcdClient client({.servers = addresses(all), .tls = tls.client});
    const TimePoint until = RealClock().now() + std::chrono::seconds(20);
    while (!client.range("/", 1)) {
      if (RealClock().now() > until) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return all;
  }
  static std::vector<HostPort> addresses(const std::vector<std::unique_ptr<EtcdProcess>>& all) {
    std::vector<HostPort> addresses;
    for (const auto& one : all) addresses.push_back({"127.0.0.1", one->port_});
    return addresses;
  }

  ~EtcdProcess() {
    kill();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  uint16_t port() const { return port_; }
  void start() {
    const auto url = [](uint16_t port) { return fmt::format("http://127.0.0.1:{}", port); };
    const std::string client_url =
        fmt::format("{}://127.0.0.1:{}", tls_words_.empty() ? "http" : "https", port_);
    std::vector<std::string> words = {program(),
                                      "--name",
                                      name_,
                                      "--data-dir",
                                      (folder_ / "data").string(),
                                      "--listen-client-urls",
                                      client_url,
                                      "--advertise-client-urls",
                                      client_url,
                                      "--listen-peer-urls",
                                      url(peer_port_),
                                      "--initial-advertise-peer-urls",
                                      url(peer_port_),
                                      "--initial-cluster",
                                      members_,
                                      "--heartbeat-interval",
                                      "20",
                                      "--election-timeout",
                                      "200"};
    words.insert(words.end(), tls_words_.begin(), tls_words_.end());
    std::vector<char*> raw;
    for (const std::string& word : words) raw.push_back(const_cast<char*>(word.c_str()));
    raw.push_back(nullptr);
    const std::string log = (folder_ / "log").string();
    const pid_t parent = getpid();
    pid_ = fork();
    HOCKET_CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(raw[0], raw.data());
    _exit(127);
  }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  explicit EtcdProcess(int index) : name_(fmt::format("e{}", index)) {
    std::string folder = (std::filesystem::temp_directory_path() / "hocket_etcd_XXXXXX").string();
    HOCKET_CHECK(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
  }

  const std::string name_;
  std::filesystem::path folder_;
  std::string members_;
  std::vector<std::string> tls_words_;
  const uint16_t port_ = TestProxy::free_port(), peer_port_ = TestProxy::free_port();
  pid_t pid_ = -1;
};

}  // namespace hocket
