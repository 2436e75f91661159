#include "engine/grammar/grammar_trials.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "text/grammar/grammar.h"

namespace hocket {
namespace {

constexpr int kFirstSocket = 3;
constexpr int kTrialNice = 5;  // leaves it a quarter of a core that a compute thread fills
constexpr size_t kSlackBytes = 16 << 20;  // address space for stack guards and malloc's reserves
// The longest wait for an answer of the process, however busy the machine is.
constexpr timeval kAnswerWait{.tv_sec = 20, .tv_usec = 0};

// The first message, on lane 0; the end tokens and the folder follow it.
struct Setup {
  int32_t num_logits = 0;
  uint32_t num_ends = 0, folder_bytes = 0;
};
// The message of each trial; the text follows it. The answer is a TrialVerdict.
struct Task {
  uint32_t kind = 0, text_bytes = 0;
  int64_t time_us = 0;
  uint64_t memory_bytes = 0;
};

bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

template <class T>
  requires std::is_trivially_copyable_v<T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
  requires std::is_trivially_copyable_v<T>
bool receive(int socket, T& value) {
  return receive_all(socket, std::as_writable_bytes(std::span(&value, 1)));
}
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
bool receive(int socket, std::string& text) {
  return receive_all(socket, std::as_writable_bytes(std::span(text)));
}

std::unexpected<Error> cannot(std::string_view what, int number) {
  return fail(error(ErrorCode::internal, "the process that tries grammars cannot be {}: {}", what,
                    std::strerror(number))
                  .with_fix("see the server's log; --grammar-backend none does without grammars"));
}

}  // namespace

class GrammarTrials::Process {
 public:
  static Result<std::shared_ptr<Process>> start(const Options& options);
  ~Process() {
    if (id_ > 0) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
    for (const int socket : sockets_)
      if (socket >= 0) close(socket);
  }
  int socket(int lane) const { return sockets_[static_cast<size_t>(lane)]; }
  void interrupt() const {
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  }

 private:
  pid_t id_ = -1;
  std::array<int, kLanes> sockets_ = {-1, -1};
};

Result<std::shared_ptr<GrammarTrials::Process>> GrammarTrials::Process::start(
    const Options& options) {
  auto process = std::make_shared<Process>();
  std::array<int, kLanes> theirs = {-1, -1};
  bool connected = true;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    std::array<int, 2> ends = {-1, -1};
    connected = connected && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0;
    process->sockets_[lane] = ends[0];
    // A number above those that the sockets have in the child, so that dup2 overwrites none.
    if (connected) theirs[lane] = fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstSocket + kLanes);
    if (ends[1] >= 0) close(ends[1]);
    connected = connected && theirs[lane] >= 0;
    if (connected) setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &kAnswerWait, sizeof kAnswerWait);
  }
  int failure = connected ? 0 : errno;
  if (connected) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    for (size_t lane = 0; lane < kLanes; ++lane)
      posix_spawn_file_actions_adddup2(&files, theirs[lane], kFirstSocket + static_cast<int>(lane));
    // The child gets no stderr, since what a library prints when memory is short is about a
    // client's grammar and not for the log.
    for (int file = 0; file < kFirstSocket; ++file)
      posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_RDWR, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::vector<char*> arguments;
    for (const std::string& word : options.command)
      arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    failure =
        posix_spawn(&process->id_, arguments[0], &files, &attributes, arguments.data(), environ);
    if (failure != 0) process->id_ = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  for (const int socket : theirs)
    if (socket >= 0) close(socket);
  if (failure != 0) return cannot("started", failure);
  const std::string folder = options.folder.string();
  const Setup setup{.num_logits = options.num_logits,
                    .num_ends = static_cast<uint32_t>(options.end_ids.size()),
                    .folder_bytes = static_cast<uint32_t>(folder.size())};
  if (!send_all(process->socket(0), bytes_of(setup)) ||
      !send_all(process->socket(0), std::as_bytes(std::span(options.end_ids))) ||
      !send_all(process->socket(0), bytes_of(folder)))
    return cannot("asked", errno);
  return process;
}

GrammarTrials::GrammarTrials(Options options) : options_(std::move(options)) {}

GrammarTrials::~GrammarTrials() = default;

void GrammarTrials::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  if (process_ != nullptr) process_->interrupt();
}

Result<std::shared_ptr<GrammarTrials::Process>> GrammarTrials::running() {
  const MutexLock lock(mutex_);
  if (stopped_) return fail(ErrorCode::shutting_down, "no grammar is compiled any more");
  if (process_ == nullptr) {
    HOCKET_TRY(process_, Process::start(options_));
  }
  return process_;
}

Result<TrialVerdict> GrammarTrials::attempt(int lane, const GrammarSpec& spec, TrialLimits limits) {
  const Task task{
      .kind = static_cast<uint32_t>(spec.kind),
      .text_bytes = static_cast<uint32_t>(spec.text.size()),
      .time_us = std::chrono::duration_cast<std::chrono::microseconds>(limits.time).count(),
      .memory_bytes = limits.bytes};
  int failure = 0;
  // Tries twice, since the process may have ended between two trials.
  for (int i = 0; i < 2; ++i) {
    HOCKET_TRY(const std::shared_ptr<Process> process, running());
    TrialVerdict verdict{};
    if (send_all(process->socket(lane), bytes_of(task)) &&
        send_all(process->socket(lane), bytes_of(spec.text)) &&
        receive(process->socket(lane), verdict))
      return verdict;
    failure = errno;
    const MutexLock lock(mutex_);
    if (process_ == process) process_.reset();
    if (failure == EAGAIN) return TrialVerdict::too_slow;
  }
  return cannot("asked", failure);
}

// ---- Below runs in the process for trials ----

namespace {

// Limits memory to `bytes` more than this process has now.
void limit_memory(uint64_t bytes) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  setrlimit(RLIMIT_AS, &limit);
}

// After `us` of processor time, SIGPROF ends the process.
void limit_time(int64_t us) {
  const itimerval timer{.it_interval = {},
                        .it_value = {.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

[[noreturn]] void try_one(const GrammarVocabulary& vocabulary, const GrammarSpec& spec,
                          const Task& task) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_memory(task.memory_bytes + kCompileStackBytes + kSlackBytes);
  limit_time(task.time_us);
  if (const auto made = vocabulary.compile(spec)) {
    GrammarMatcher matcher = (*made)->begin();
    std::vector<uint32_t> mask(vocabulary.mask_words());
    (void)matcher.forced();
    (void)matcher.mask(mask);
  }
  _exit(0);
}

TrialVerdict verdict_of(int status) {
  if (WIFEXITED(status)) return TrialVerdict::fits;
  switch (WTERMSIG(status)) {
    case SIGPROF:
      return TrialVerdict::too_slow;
    case SIGABRT:  // Rust aborts if memory is short
    case SIGKILL:  // the kernel kills if memory is short
      return TrialVerdict::too_large;
    default:
      return TrialVerdict::crashed;
  }
}

void serve_lane(int socket, const GrammarVocabulary& vocabulary) {
  Task task;
  while (receive(socket, task)) {
    GrammarSpec spec{.kind = static_cast<GrammarKind>(task.kind),
                     .text = std::string(task.text_bytes, '\0')};
    if (!receive(socket, spec.text)) return;
    const pid_t id = fork();
    if (id == 0) try_one(vocabulary, spec, task);
    int status = 0;
    if (id < 0 || waitpid(id, &status, 0) != id) return;
    const TrialVerdict verdict = verdict_of(status);
    if (!send_all(socket, bytes_of(verdict))) return;
  }
}

std::optional<GrammarVocabulary> read_vocabulary(int socket) {
  Setup setup;
  if (!receive(socket, setup)) return std::nullopt;
  std::vector<TokenId> end_ids(setup.num_ends);
  std::string folder(setup.folder_bytes, '\0');
  if (!receive_all(socket, std::as_writable_bytes(std::span(end_ids))) || !receive(socket, folder))
    return std::nullopt;
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer) return std::nullopt;
  auto vocabulary =
      GrammarVocabulary::create({tokenizer->handle(), folder}, setup.num_logits, end_ids);
  if (!vocabulary) return std::nullopt;
  return *std::move(vocabulary);
}

}  // namespace

int serve_grammar_trials() {
  close_range(kFirstSocket + GrammarTrials::kLanes, ~0u, 0);
  prctl(PR_SET_NAME, "grammar-trials");
  // Signals to the process group do not end it: it ends when the sockets close, with its parent.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  // Compute threads have priority; if memory is short, the kernel ends this process first.
  setpriority(PRIO_PROCESS, 0, kTrialNice);
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  mallopt(M_ARENA_MAX, 1);  // a second arena reserves address space, of which trials have little
  const auto vocabulary = read_vocabulary(kFirstSocket);
  if (!vocabulary) return 1;
  const pid_t second = fork();
  if (second < 0) return 1;
  const int lane = second == 0 ? 1 : 0;
  if (lane == 1) prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(kFirstSocket + 1 - lane);
  serve_lane(kFirstSocket + lane, *vocabulary);
  if (lane == 0) {
    kill(second, SIGKILL);
    waitpid(second, nullptr, 0);
  }
  return 0;
}

}  // namespace hocket
