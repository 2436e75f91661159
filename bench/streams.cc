#include "bench/streams.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/quantile.h"
#include "bench/child_program.h"
#include "bench/stream_clients.h"
#include "client/blocking_http_client.h"

namespace hocket {
namespace {

constexpr double kStartPatience = 60;  // seconds

Result<int> free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  const bool good = bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  close(fd);
  if (!good) return fail(ErrorCode::io, "no port is free");
  return ntohs(own.sin_port);
}

// `hocket serve` as a child process. The destructor kills it.
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& command) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~ServerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  bool runs() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }
  // Returns the memory that it holds at present; 0 if that is unknown.
  int64_t resident_bytes() const {
    std::ifstream file(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name;
      int64_t kilobytes = 0;
      if (words >> name >> kilobytes && name == "VmRSS:") return kilobytes * 1024;
    }
    return 0;
  }

 private:
  pid_t pid_;
};

Result<void> wait_until_ready(const ServerProcess& server, int port) {
  const TimePoint end = RealClock().now() + from_seconds(kStartPatience);
  BlockingHttpClient client({.port = port, .timeout_s = 5});
  while (server.runs() && RealClock().now() < end) {
    if (const auto answer = client.get("/readyz"); answer && answer->status == 200) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fail(error(ErrorCode::io, "the server did not become ready")
                  .with_fix("hocket serve with the same model says why"));
}

// Raises the limit of open files to one for each stream, and some more.
void raise_open_files(int num_streams) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(num_streams) + 256);
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string ask_of(int output_len, int priority) {
  return fmt::format(R"({{"text": "17 + 25 =", "stream": true, "priority": {}, "sampling_params": )"
                     R"({{"temperature": 0, "max_new_tokens": {}, "ignore_eos": true}}}})",
                     priority, output_len);
}

struct Part {
  const char* name;
  StreamResults busy;
  int64_t resident_bytes = 0;
};

void print(const Part& part, double seconds) {
  const StreamResults& b = part.busy;
  fmt::print(
      "{:<18} {:>5.0f} answers/s {:>6.0f} events/s | first byte p50 {:.1f} p99 {:.1f} max {:.1f} "
      "ms "
      "| answer p50 {:.1f} ms | {:.1f} MB\n",
      part.name, static_cast<double>(b.num_done) / seconds,
      static_cast<double>(b.num_events) / seconds, quantile(b.first_byte_ms, 0.5),
      quantile(b.first_byte_ms, 0.99), quantile(b.first_byte_ms, 1), quantile(b.whole_ms, 0.5),
      static_cast<double>(part.resident_bytes) / 1e6);
}

void print_json(const Part& part, const BenchStreamsOptions& o, double bytes_per_idle) {
  fmt::print(
      R"({{"part": "{}", "busy": {}, "idle": {}, "answers": {}, "first_byte_ms_p50": {:.2f}, )"
      R"("first_byte_ms_p99": {:.2f}, "resident_bytes": {}, "bytes_per_idle_stream": {:.0f}}})"
      "\n",
      part.name, o.num_busy, o.num_idle, part.busy.num_done, quantile(part.busy.first_byte_ms, 0.5),
      quantile(part.busy.first_byte_ms, 0.99), part.resident_bytes, bytes_per_idle);
}

}  // namespace

Result<int> bench_streams(const BenchStreamsOptions& o) {
  raise_open_files(o.num_idle + o.num_busy);
  HOCKET_TRY(const std::string program, own_path());
  HOCKET_TRY(const int port, free_port());
  std::vector<std::string> command = {program,
                                      "serve",
                                      "--port",
                                      std::to_string(port),
                                      "--log-level",
                                      "error",
                                      "--enable-priority-scheduling",
                                      "--max-running-requests",
                                      std::to_string(o.num_busy),
                                      "--max-queued-requests",
                                      std::to_string(o.num_idle + 2 * o.num_busy)};
  if (!o.model_path.empty()) command.insert(command.end(), {"--model-path", o.model_path});
  const ServerProcess server(command);
  HOCKET_TRY_VOID(wait_until_ready(server, port));

  StreamClients clients(port);
  HOCKET_TRY(const size_t busy, clients.add({ask_of(o.output_len, 100), o.num_busy}));
  clients.run(std::min(o.seconds, 3.0));  // pools and caches fill
  clients.take(busy);
  clients.run(o.seconds);
  const Part alone{"busy alone", clients.take(busy), server.resident_bytes()};

  // Idle requests have a lower priority: busy ones preempt them, so nearly all of them wait.
  HOCKET_TRY(const size_t idle, clients.add({ask_of(1, 0), o.num_idle}));
  clients.run(1);
  clients.take(busy);
  clients.take(idle);
  clients.run(o.seconds);
  const Part together{"busy and idle", clients.take(busy), server.resident_bytes()};
  const StreamResults waited = clients.take(idle);
  const int open = clients.num_open(idle);

  const double each =
      static_cast<double>(together.resident_bytes - alone.resident_bytes) / std::max(1, o.num_idle);
  if (o.json) {
    print_json(alone, o, 0);
    print_json(together, o, each);
  } else {
    print(alone, o.seconds);
    print(together, o.seconds);
    fmt::print("{} idle streams open, {} had their turn and asked again | {:.1f} kB each\n", open,
               waited.num_done, each / 1e3);
  }
  const int64_t failed = alone.busy.num_failed + together.busy.num_failed + waited.num_failed;
  if (failed > 0) fmt::print("{} answers failed\n", failed);
  return failed == 0 && open == o.num_idle ? 0 : 1;
}

}  // namespace hocket
