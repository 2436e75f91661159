#include "engine/cache_tier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr auto kThreadWait = std::chrono::milliseconds(100);
// After a file could not be written, none is tried for so long.
constexpr Duration kQuietTime = std::chrono::seconds(30);
// SGLang's limit of a wait, until both speeds are measured.
constexpr Duration kWaitAtFirst = std::chrono::seconds(1);
constexpr Duration kWaitPerToken = std::chrono::microseconds(250);
constexpr double kReadBytesPerSecondAtFirst = 200e6;
// Share of the newest step in the mean time of a prompt's row.
constexpr double kNewestShare = 0.2;

}  // namespace

Result<StoragePrefetch> parse_storage_prefetch(std::string_view name) {
  if (name == "best_effort") return StoragePrefetch::best_effort;
  if (name == "wait_complete") return StoragePrefetch::wait_complete;
  if (name == "timeout") return StoragePrefetch::timeout;
  return fail(error(ErrorCode::bad_value,
                    "--hicache-storage-prefetch-policy {} is not one of best_effort, "
                    "wait_complete, timeout",
                    name)
                  .with_param("hicache-storage-prefetch-policy")
                  .with_fix("--hicache-storage-prefetch-policy timeout"));
}

size_t CacheTier::num_buffers(int64_t page_bytes) {
  return static_cast<size_t>(std::clamp<int64_t>(kBufferBytes / page_bytes, 4, 1024));
}

Result<std::unique_ptr<CacheTier>> CacheTier::create(Options options, PagePool& pages) {
  const int64_t bytes =
      pages.page_bytes() * static_cast<int64_t>(num_buffers(pages.page_bytes()));
  HOCKET_TRY(Buffer reading, Buffer::allocate(bytes));
  HOCKET_TRY(Buffer writing, Buffer::allocate(bytes));
  return std::unique_ptr<CacheTier>(
      new CacheTier(std::move(options), pages, {std::move(reading), std::move(writing)}));
}

CacheTier::CacheTier(Options options, PagePool& pages, std::array<Buffer, 2> memory)
    : options_(std::move(options)),
      pages_(pages),
      page_tokens_(static_cast<size_t>(options_.page_tokens)),
      read_buffers_{.memory = std::move(memory[0]),
                    .free = Mailbox<BufferId>(num_buffers(pages.page_bytes())),
                    .page_bytes = pages.page_bytes()},
      write_buffers_{.memory = std::move(memory[1]),
                     .free = Mailbox<BufferId>(num_buffers(pages.page_bytes())),
                     .page_bytes = pages.page_bytes()},
      reads_(kMostReads),
      done_(num_buffers(pages.page_bytes()) + kMostReads),
      writes_(num_buffers(pages.page_bytes())) {
  for (Buffers* buffers : {&read_buffers_, &write_buffers_})
    for (BufferId id = 0; std::cmp_less(id, buffers->free.capacity()); ++id)
      HOCKET_CHECK(buffers->free.push(BufferId{id}));
}

void CacheTier::start(const Clock& clock, std::function<void()> wake) {
  clock_ = &clock;
  wake_ = std::move(wake);
  reader_ = Thread({.name = "kv_read"}, [this] { run_reader(); });
  writer_ = Thread({.name = "kv_write"}, [this] { run_writer(); });
}

// What was copied is written before the end: a restart finds it.
CacheTier::~CacheTier() {
  stopping_ = true;
  reads_.close();
  writes_.close();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

// The key of a namespace's first page is derived from the form, so that a page is never found by a
// model, a layout or an arithmetic that it was not computed for.
PageHash CacheTier::root_of(const CacheNamespace& name_space) const {
  const PageHash name = root_hash(name_space);
  static_assert(sizeof(TokenId) == 4 && sizeof(PageHash) % sizeof(TokenId) == 0);
  std::array<TokenId, sizeof(PageHash) / sizeof(TokenId)> words{};
  std::memcpy(words.data(), name.data(), name.size());
  return PageHasher()(options_.form, words);
}

Duration CacheTier::time_to_compute(int num_tokens) const {
  if (seconds_per_row_ == 0) return kWaitAtFirst + num_tokens * kWaitPerToken;
  return from_seconds(seconds_per_row_ * num_tokens);
}

Duration CacheTier::time_to_read(int num_pages) const {
  const uint64_t num_read = num_read_;
  const double of_page = num_read > 0 ? 1e-9 * static_cast<double>(read_ns_) /
                                            static_cast<double>(num_read)
                                      : static_cast<double>(read_buffers_.page_bytes) /
                                            kReadBytesPerSecondAtFirst;
  return from_seconds(of_page * num_pages);
}

bool CacheTier::ready(const Request& request, const Scheduler& scheduler) {
  const auto [place, is_new] = guests_.try_emplace(request.id);
  Guest& guest = place->second;
  if (is_new) {
    guest.order = order_pages(request, scheduler);
    if (!guest.order) return true;
    const auto num_tokens = static_cast<int>(guest.order->tokens.size()) -
                            guest.order->first * static_cast<int>(page_tokens_);
    guest.give_up = clock_->now() + time_to_compute(num_tokens);
  }
  if (!guest.order || options_.prefetch == StoragePrefetch::best_effort) return true;
  if (options_.prefetch == StoragePrefetch::wait_complete || clock_->now() < guest.give_up)
    return false;
  ++num_given_up_;
  give_up(guest);
  return true;
}

void CacheTier::give_up(Guest& guest) {
  if (!guest.order) return;
  guest.order->given_up = true;
  guest.order = nullptr;
}

std::shared_ptr<CacheTier::ReadOrder> CacheTier::order_pages(const Request& request,
                                                             const Scheduler& scheduler) {
  const auto reusable = request.reusable_tokens();
  const size_t num_whole = reusable.size() - reusable.size() % page_tokens_;
  const int num_cached = scheduler.cached_len(request);
  const int num_lacking = static_cast<int>(num_whole) - num_cached;
  if (num_lacking < kFewestTokens) return nullptr;
  const int num_pages = num_lacking / static_cast<int>(page_tokens_);
  if (time_to_read(num_pages) >= time_to_compute(num_lacking)) return nullptr;
  auto order = std::make_shared<ReadOrder>();
  order->name_space = request.cache_namespace;
  order->tokens.assign(reusable.begin(), reusable.begin() + static_cast<ptrdiff_t>(num_whole));
  order->first = num_cached / static_cast<int>(page_tokens_);
  std::shared_ptr<ReadOrder> handed = order;
  return reads_.push(handed) ? order : nullptr;
}

void CacheTier::turn(Scheduler& scheduler) {
  std::vector<ReadPage> run;  // neighbours of one order
  const auto restore = [&] {
    if (run.empty()) return;
    ReadOrder& order = *run.front().order;
    const size_t end = (static_cast<size_t>(run.back().index) + 1) * page_tokens_;
    const bool restored = scheduler.restore(
        order.name_space, std::span(order.tokens).first(end), static_cast<int>(run.size()),
        [&](std::span<const PageId> pages) {
          const auto last = std::span(run).last(pages.size());
          for (size_t i = 0; i < pages.size(); ++i)
            pages_.load_page(read_buffers_.page(last[i].buffer), pages[i]);
        });
    if (!restored) order.given_up = true;  // there is no room, or the tree has changed
    for (const ReadPage& page : run)
      HOCKET_CHECK(read_buffers_.free.push(BufferId{page.buffer}));
    run.clear();
  };
  while (auto page = done_.pop()) {
    const bool follows = !run.empty() && run.back().order == page->order;
    if (page->buffer < 0) {
      restore();
      for (auto& [id, guest] : guests_)
        if (guest.order == page->order) guest.order = nullptr;
      continue;
    }
    if (!follows) restore();
    run.push_back(*std::move(page));
  }
  restore();
}

void CacheTier::note_prompts(int num_rows, Duration took) {
  if (num_rows <= 0) return;
  const double newest = to_seconds(took) / num_rows;
  seconds_per_row_ = seconds_per_row_ == 0
                         ? newest
                         : (1 - kNewestShare) * seconds_per_row_ + kNewestShare * newest;
}

void CacheTier::shared(const Request& request) {
  Guest& guest = guests_[request.id];
  const auto num_pages = static_cast<size_t>(request.leased_pages);
  guest.hashes.reserve(num_pages);
  while (guest.hashes.size() < num_pages) {
    const PageHash before =
        guest.hashes.empty() ? root_of(request.cache_namespace) : guest.hashes.back();
    const size_t begin = guest.hashes.size() * page_tokens_;
    guest.hashes.push_back(
        hash_page_(before, std::span(request.tokens).subspan(begin, page_tokens_)));
  }
  // From the last page to the first: the file used last is the one that others build on.
  std::vector<size_t> lacking;
  for (size_t i = num_pages; i > guest.num_written; --i)
    if (!options_.files->has(guest.hashes[i - 1])) lacking.push_back(i - 1);
  const bool quiet = clock_->now().time_since_epoch().count() < quiet_until_ns_;
  for (auto next = lacking.rbegin(); next != lacking.rend(); ++next) {
    auto buffer = quiet ? std::nullopt : write_buffers_.free.pop();
    if (!buffer) {
      num_left_out_ += static_cast<uint64_t>(lacking.rend() - next);
      break;
    }
    pages_.save_page(request.pages[*next], write_buffers_.page(*buffer));
    HOCKET_CHECK(writes_.push({.key = guest.hashes[*next], .buffer = *buffer}));
  }
  guest.num_written = num_pages;
}

void CacheTier::forget(RequestId id) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  give_up(guest->second);
  guests_.erase(guest);
}

bool CacheTier::wait_for_buffer(const ReadOrder& order, BufferId& buffer) {
  while (!stopping_ && !order.given_up) {
    if (const auto free = read_buffers_.free.wait_pop(kThreadWait)) {
      buffer = *free;
      return true;
    }
  }
  return false;
}

// Reads one page and hands it over. Returns false if the order ends here.
bool CacheTier::read_one(const ReadPage& page, const PageHash& key) {
  ReadPage read = page;
  if (!wait_for_buffer(*page.order, read.buffer)) return false;
  const TimePoint begin = clock_->now();
  const Result<bool> found = options_.files->read(key, read_buffers_.page(read.buffer));
  if (!found) report(found.error(), "prefixes are computed anew");
  if (!found || !*found) {
    HOCKET_CHECK(read_buffers_.free.push(BufferId{read.buffer}));
    return false;
  }
  read_ns_ += (clock_->now() - begin).count();
  ++num_read_;
  HOCKET_CHECK(done_.push(std::move(read)));
  wake_();
  return true;
}

void CacheTier::run_reader() {
  const PageHasher hash_page;
  while (!stopping_) {
    auto next = reads_.wait_pop(kThreadWait);
    if (!next) continue;
    const std::shared_ptr<ReadOrder> order = *std::move(next);
    PageHash key = root_of(order->name_space);
    const auto num_pages = static_cast<int>(order->tokens.size() / page_tokens_);
    for (int i = 0; i < num_pages; ++i) {
      const size_t begin = static_cast<size_t>(i) * page_tokens_;
      key = hash_page(key, std::span(order->tokens).subspan(begin, page_tokens_));
      if (i >= order->first && !read_one({.order = order, .index = i}, key)) break;
    }
    // The end has a place of its own: at most kMostReads orders are under way.
    while (!stopping_ && !done_.push({.order = order})) std::this_thread::sleep_for(kThreadWait);
    wake_();
  }
}

void CacheTier::run_writer() {
  while (true) {
    const auto next = writes_.wait_pop(kThreadWait);
    if (!next) {
      if (stopping_ && writes_.size() == 0) return;
      continue;
    }
    const bool quiet = clock_->now().time_since_epoch().count() < quiet_until_ns_;
    const Result<void> written =
        quiet ? Result<void>()
              : options_.files->write(next->key, write_buffers_.page(next->buffer));
    if (!written) {
      report(written.error(), fmt::format("no prefix is written for {:.0f} s",
                                          to_seconds(kQuietTime)));
      quiet_until_ns_ = (clock_->now() + kQuietTime).time_since_epoch().count();
    }
    ++(quiet || !written ? num_left_out_ : num_written_);
    HOCKET_CHECK(write_buffers_.free.push(BufferId{next->buffer}));
  }
}

// Tells each fault once, until another one comes.
void CacheTier::report(const Error& why, std::string_view consequence) {
  const MutexLock lock(report_mutex_);
  if (reported_ == why.message) return;
  reported_ = why.message;
  log::warning("prefixes in files: {}; {}. To mend it: {}", why.message, consequence, why.fix);
}

CacheTierStats CacheTier::stats() const {
  const PageFiles::Figures files = options_.files->figures();
  return {.pages_written_total = num_written_,
          .pages_left_out_total = num_left_out_,
          .pages_read_total = num_read_,
          .reads_given_up_total = num_given_up_,
          .read_seconds_total = 1e-9 * static_cast<double>(read_ns_),
          .files = files.files,
          .bytes = files.bytes,
          .evicted_total = files.evicted_total,
          .damaged_total = files.damaged_total};
}

}  // namespace hocket
