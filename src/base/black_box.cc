#include "base/black_box.h"

#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_files.h"
#include "base/thread.h"

namespace hocket::black_box {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFatal = {SIGSEGV, SIGFPE, SIGILL, SIGABRT};  // SIGBUS: mapped_files.h
constexpr std::string_view kBegins = "hocket-crash-";
constexpr int kMaxFrames = 64;

// turn: 2 n + 1 while event n is being written, 2 n + 2 when it is complete; 0: never written.
struct alignas(64) Slot {
  std::atomic<uint64_t> turn{0};
  uint32_t len = 0;
  char text[kSlotBytes - 12];
};
static_assert(sizeof(Slot) == kSlotBytes);

struct Events {
  std::unique_ptr<Slot[]> slots;
  size_t size = 0;
  std::atomic<uint64_t> next{0};
};

struct Box {
  std::array<Events, 2> rings;
  std::string path, about;
  TimePoint opened{};
  std::array<char, 512> words{};  // the first last_words()
  std::atomic<bool> spoken{false}, written{false};
  AlternateStack stack;  // for the thread that opened the box; others have their own
};
std::atomic<Box*> the_box{nullptr};

// Writes bytes to a file with system calls only.
class Out {
 public:
  explicit Out(int file) : file_(file) {}
  void put(std::string_view text) {
    while (!text.empty() && good_) {
      const ssize_t n = ::write(file_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      good_ = n > 0;
      if (good_) text.remove_prefix(static_cast<size_t>(n));
    }
  }
  void number(int64_t value) {
    char digits[24];
    const auto done = fmt::format_to_n(digits, sizeof digits, "{}", value);
    put({digits, done.size});
  }
  // Writes `text` in quotes; characters that JSON would have to escape become spaces.
  void quoted(std::string_view text) {
    put("\"");
    for (const char c : text) {
      const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
      put(plain ? std::string_view(&c, 1) : " ");
    }
    put("\"");
  }
  // Copies a file of the kernel, such as /proc/self/status.
  void copy(const char* path) {
    const int from = ::open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) return;
    char piece[4096];
    for (ssize_t n = 0; (n = ::read(from, piece, sizeof piece)) > 0;)
      put({piece, static_cast<size_t>(n)});
    ::close(from);
  }
  bool good() const { return good_; }

 private:
  const int file_;
  bool good_ = true;
};

void put_events(Out& out, const Events& events) {
  const uint64_t end = events.next.load(std::memory_order_acquire);
  for (uint64_t i = end > events.size ? end - events.size : 0; i < end; ++i) {
    const Slot& slot = events.slots[i % events.size];
    if (slot.turn.load(std::memory_order_acquire) != 2 * i + 2) continue;  // it is being written
    out.put({slot.text, std::min<size_t>(slot.len, sizeof slot.text)});
    out.put("\n");
  }
}

void put_head(Out& out, const Box& box, std::string_view why) {
  char thread[16] = {};
  prctl(PR_GET_NAME, thread);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  out.put(R"({"hocket_crash":1,"why":)");
  out.quoted(why);
  if (box.spoken) {
    out.put(R"(,"last_words":)");
    out.quoted(box.words.data());
  }
  out.put(R"(,"thread":)");
  out.quoted(thread);
  out.put(R"(,"pid":)");
  out.number(getpid());
  out.put(R"(,"unix":)");
  out.number(now.tv_sec);
  out.put(R"(,"at_us":)");
  out.number((RealClock().now() - box.opened).count() / 1000);
  out.put(R"(,"about":)");
  out.put(box.about);
  out.put("}\n");
}

void on_signal(int number, siginfo_t* info, void*) {
  char why[96];
  const auto done =
      fmt::format_to_n(why, sizeof why, "signal {} at address {:#x}", number,
                       number == SIGABRT ? 0 : reinterpret_cast<uintptr_t>(info->si_addr));
  write({why, std::min(done.size, sizeof why)});
  log::wait_in_signal();
  // The handler is removed (SA_RESETHAND), so the signal has its default effect.
  raise(number);
}

void watch_signals() {
  void* frames[1];
  backtrace(frames, 1);  // loads a library that a handler must not load
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK;
  for (const int number : kFatal) sigaction(number, &action, nullptr);
  watch_mapped_files();
}

// Removes the oldest files, by name; names begin with the time.
void forget_old_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code stop;
  for (fs::directory_iterator at(folder, stop), end; !stop && at != end; at.increment(stop))
    if (std::string name = at->path().filename().string(); name.starts_with(kBegins))
      names.push_back(std::move(name));
  std::ranges::sort(names);
  std::error_code ignored;
  for (size_t i = 0; i + kFilesKept < names.size() + 1; ++i)
    fs::remove(fs::path(folder) / names[i], ignored);
}

}  // namespace

Result<void> open(const Options& options) {
  if (is_open()) return fail(ErrorCode::usage, "the black box is open already");
  std::error_code ignored;
  fs::create_directories(options.folder, ignored);
  if (access(options.folder.c_str(), W_OK | X_OK) != 0)
    return fail(
        error(ErrorCode::io, "{} cannot be written: {}", options.folder, std::strerror(errno))
            .with_fix("another --crash-dump-folder"));
  forget_old_files(options.folder);
  auto* box = new Box;  // kept as long as the process lives, because a crash may come at any time
  const size_t sizes[] = {options.request_slots, options.step_slots};
  for (size_t i = 0; i < box->rings.size(); ++i) {
    box->rings[i].slots = std::make_unique<Slot[]>(sizes[i]);
    box->rings[i].size = sizes[i];
  }
  box->path =
      fmt::format("{}/{}{}-{}.jsonl", options.folder, kBegins, std::time(nullptr), getpid());
  box->about = options.about.empty() ? "{}" : options.about;
  box->opened = RealClock().now();
  watch_signals();
  the_box.store(box, std::memory_order_release);
  return {};
}

bool is_open() {
  return the_box.load(std::memory_order_relaxed) != nullptr;
}

const char* path() {
  const Box* box = the_box.load(std::memory_order_acquire);
  return box == nullptr ? "" : box->path.c_str();
}

void last_words(std::string_view why) {
  Box* box = the_box.load(std::memory_order_acquire);
  if (box == nullptr || box->spoken.exchange(true)) return;
  const size_t len = std::min(why.size(), box->words.size() - 1);
  std::copy_n(why.begin(), len, box->words.begin());
}

void note(Ring ring, std::string_view members) {
  Box* box = the_box.load(std::memory_order_acquire);
  if (box == nullptr) return;
  Events& events = box->rings[static_cast<size_t>(ring)];
  const uint64_t n = events.next.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = events.slots[n % events.size];
  slot.turn.store(2 * n + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const int64_t at_us = (RealClock().now() - box->opened).count() / 1000;
  const auto done =
      fmt::format_to_n(slot.text, sizeof slot.text, R"({{"at_us":{},{}}})", at_us, members);
  slot.len = static_cast<uint32_t>(std::min(done.size, sizeof slot.text));
  slot.turn.store(2 * n + 2, std::memory_order_release);
}

bool write(std::string_view why) {
  Box* box = the_box.load(std::memory_order_acquire);
  if (box == nullptr || box->written.exchange(true)) return false;
  const int file =
      ::open(box->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return false;
  Out out(file);
  put_head(out, *box, why);
  for (const Events& events : box->rings) put_events(out, events);
  out.put("--- backtrace\n");
  void* frames[kMaxFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), file);
  out.put("--- status\n");
  out.copy("/proc/self/status");
  ::close(file);
  return out.good();
}

void format_and_note(Ring ring, fmt::string_view text, fmt::format_args args) {
  char members[kSlotBytes];
  const auto done = fmt::vformat_to_n(members, sizeof members, text, args);
  note(ring, std::string_view(members, std::min(done.size, sizeof members)));
}

}  // namespace hocket::black_box
