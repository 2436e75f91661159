#include "base/mapped_files.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/black_box.h"
#include "base/log.h"
#include "base/result.h"

namespace hocket {

struct MappedFile::Entry {
  const std::byte* begin;
  const std::byte* end;
  std::string path;
};

namespace {

// If more files are mapped, SIGBUS in the later ones is reported without a name.
std::array<std::atomic<const MappedFile::Entry*>, 4096> entries{};

// Async-signal-safe.
const MappedFile::Entry* entry_at(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& slot : entries)
    if (const MappedFile::Entry* entry = slot;
        entry != nullptr && at >= entry->begin && at < entry->end)
      return entry;
  return nullptr;
}

void on_fault(int number, siginfo_t* info, void*) {
  std::array<char, 1024> text;
  const MappedFile::Entry* entry = entry_at(info->si_addr);
  if (entry == nullptr) {
    const auto done = fmt::format_to_n(text.data(), text.size(), "signal {} at address {:#x}",
                                       number, reinterpret_cast<uintptr_t>(info->si_addr));
    black_box::write({text.data(), std::min(done.size, text.size())});
    log::wait_in_signal();
    raise(number);  // the handler is removed (SA_RESETHAND)
    return;
  }
  const auto done = fmt::format_to_n(
      text.data(), text.size(),
      "error[HK021]: {} became shorter, or its disk failed, while it was mapped\n"
      "  fix: start again; put a new file in the place of an old one (mv), never write into it\n",
      entry->path);
  const std::string_view line(text.data(), std::min(done.size, text.size()));
  black_box::write(line);
  log::wait_in_signal();
  log::write_now(line);
  _exit(exit_status(ErrorCode::bad_safetensors));
}

}  // namespace

MappedFile::MappedFile(const void* begin, size_t bytes, std::string path)
    : entry_(std::make_unique<Entry>(Entry{static_cast<const std::byte*>(begin),
                                           static_cast<const std::byte*>(begin) + bytes,
                                           std::move(path)})) {
  for (auto& slot : entries) {
    const Entry* none = nullptr;
    if (slot.compare_exchange_strong(none, entry_.get())) return;
  }
}

MappedFile::MappedFile() = default;
MappedFile::MappedFile(MappedFile&&) noexcept = default;

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

MappedFile::~MappedFile() {
  if (entry_ == nullptr) return;
  for (auto& slot : entries) {
    const Entry* mine = entry_.get();
    if (slot.compare_exchange_strong(mine, nullptr)) return;
  }
}

void watch_mapped_files() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace hocket
