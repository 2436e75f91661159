#include "base/thread.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include "base/black_box.h"
#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr size_t kNameBytes = 15;
constexpr size_t kSignalStackBytes = 64 << 10;
// Wider than any frame, so that no overflow steps over it into the stack of another thread.
constexpr size_t kGuardBytes = 1 << 20;
// A thread with a smaller stack could not even start.
constexpr int kMinStackPercent = 10;

size_t scaled_stack(size_t bytes) {
  static const auto percent = static_cast<size_t>(choose_stack_percent().value_or(100));
  return bytes * percent / 100;
}

struct Start {
  Thread::Options options;
  std::move_only_function<void()> body;
  // The thread that starts this one allocates it, and handles a failure.
  AlternateStack::Memory signal_stack = AlternateStack::make_memory();
};

// The exception may say that there is no memory, so this needs none.
void on_edge(const Thread::Options& options, std::string_view what) {
  if (options.on_exception) return options.on_exception(what);
  std::array<char, 256> text;
  const auto end = fmt::format_to_n(text.data(), text.size(), "thread {}: uncaught exception: {}",
                                    options.name, what);
  const std::string_view words(text.data(), std::min(end.size, text.size()));
  black_box::last_words(words);
  try {
    log::error("{}", words);
    log::flush();
  } catch (...) {
    log::write_now(words);
  }
  std::abort();
}

void* run(void* given) {
  const std::unique_ptr<Start> start(static_cast<Start*>(given));
  pthread_setname_np(pthread_self(), start->options.name.c_str());
  const AlternateStack signal_stack(std::move(start->signal_stack));
  try {
    start->body();
  } catch (const std::exception& e) {
    on_edge(start->options, e.what());
  } catch (...) {
    on_edge(start->options, "of an unknown type");
  }
  return nullptr;
}

}  // namespace

Result<int> choose_stack_percent() {
  const char* text = std::getenv("HOCKET_STACK_PERCENT");
  if (text == nullptr || *text == '\0') return 100;
  const std::string_view wanted(text);
  int percent = 0;
  const auto [end, failure] =
      std::from_chars(wanted.data(), wanted.data() + wanted.size(), percent);
  if (failure == std::errc() && end == wanted.data() + wanted.size() &&
      percent >= kMinStackPercent && percent <= 100)
    return percent;
  return fail(error(ErrorCode::bad_value, "HOCKET_STACK_PERCENT is no integer from {} to 100",
                    kMinStackPercent)
                  .with_fix("unset it")
                  .with_param("HOCKET_STACK_PERCENT"));
}

Thread::Thread(Options options, std::move_only_function<void()> body) {
  options.name.resize(std::min(options.name.size(), kNameBytes));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setguardsize(&attributes, kGuardBytes);
  // glibc subtracts the guard from the stack's size.
  pthread_attr_setstacksize(&attributes, scaled_stack(options.stack_bytes) + kGuardBytes);
  auto start = std::make_unique<Start>(Start{std::move(options), std::move(body)});
  const int failure = pthread_create(&handle_, &attributes, run, start.get());
  pthread_attr_destroy(&attributes);
  if (failure != 0)
    throw std::system_error(failure, std::generic_category(),
                            fmt::format("thread {} cannot be started", start->options.name));
  static_cast<void>(start.release());  // the thread owns it from here on
  joinable_ = true;
}

Thread::Thread(Thread&& other) noexcept
    : handle_(other.handle_), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this == &other) return *this;
  if (joinable_) join();
  handle_ = other.handle_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

Thread::~Thread() {
  if (joinable_) join();
}

void Thread::join() {
  HOCKET_CHECK(joinable_);
  pthread_join(handle_, nullptr);
  joinable_ = false;
}

void Thread::detach() {
  HOCKET_CHECK(joinable_);
  pthread_detach(handle_);
  joinable_ = false;
}

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

AlternateStack::Memory AlternateStack::make_memory() {
  return std::make_unique_for_overwrite<char[]>(kSignalStackBytes);
}

AlternateStack::AlternateStack(Memory memory) : memory_(std::move(memory)) {
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, &before_);
}

AlternateStack::~AlternateStack() {
  sigaltstack(&before_, nullptr);
}

}  // namespace hocket
