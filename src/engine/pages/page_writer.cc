#include "engine/pages/page_writer.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/pages/saved_speed.h"

namespace hocket {
namespace {

constexpr auto kWriterWait = std::chrono::milliseconds(100);
constexpr auto kSpeedSavesApart = std::chrono::seconds(60);

}  // namespace

PageWriter::PageWriter(Options options, TransferBuffers::Memory memory)
    : options_(std::move(options)), buffers_(std::move(memory)) {
  const size_t max_orders = buffers_.count() + PrefillWatch::kMax + kMaxSaves;
  const auto add = [&](std::shared_ptr<PageStore> store, size_t max_pages) {
    if (store != nullptr)
      stores_.push_back(std::make_unique<StoreWriter>(std::move(store), max_orders, max_pages));
  };
  add(options_.files, 1);
  add(options_.redis, kMaxAtOnce);
}

void PageWriter::start(const Clock& clock, std::function<void()> on_free) {
  clock_ = &clock;
  on_free_ = std::move(on_free);
  for (const auto& writer : stores_)
    writer->thread = Thread({.name = "kv_write"}, [this, &writer = *writer] { run(writer); });
}

void PageWriter::begin_end() {
  end_ = RealClock().now() + kMaxEnd;
  ending_ = true;
  for (const auto& writer : stores_) writer->orders.close();
}

void PageWriter::join() {
  for (const auto& writer : stores_) {
    if (writer->thread.joinable()) writer->thread.join();
    if (writer->num_given_up > 0)
      log::warning(
          "stored prefixes: at shutdown, {} pages or states were not written within {:.0f} s ({}) "
          "and are lost from the store. To fix it: look at the store's disk or network",
          writer->num_given_up, to_seconds(kMaxEnd),
          kPageTierNames[static_cast<size_t>(writer->store->tier())]);
  }
}

// Asks all stores, since that counts as a use.
unsigned PageWriter::stores_lacking(const PageKey& key) const {
  unsigned lacking = 0;
  for (size_t i = 0; i < stores_.size(); ++i) lacking |= stores_[i]->store->has(key) ? 0 : 1U << i;
  return lacking;
}

PageWriter::CopyOutcome PageWriter::copy(const Lacked& lacked,
                                         const std::function<void(std::span<std::byte>)>& fill) {
  const unsigned lacking = lacked.stores;
  unsigned taking = 0;
  for (size_t i = 0; i < stores_.size(); ++i)
    taking |= stores_[i]->store->takes_writes() ? lacking & 1U << i : 0;
  if (lacking == 0) return CopyOutcome::yes;
  if (taking == 0 && std::cmp_equal(std::popcount(lacking), stores_.size()))
    return CopyOutcome::no_store;
  PageBuffers& buffers = buffers_.of(lacked.kind);
  const auto buffer = taking == 0 ? std::nullopt : buffers.free.pop();
  if (taking != 0 && !buffer) return CopyOutcome::no_buffer;  // it is tried again, and counted then
  left_out_.count(UnwrittenReason::store_away, taking == lacking ? 0 : 1);
  if (taking == 0) return CopyOutcome::yes;  // pages behind it may lack in the other store
  fill(buffers.of(*buffer));
  buffers.share(*buffer, std::popcount(taking));
  for (size_t i = 0; i < stores_.size(); ++i) {
    if ((taking >> i & 1U) == 0 ||
        stores_[i]->orders.push({.kind = lacked.kind, .key = lacked.key, .buffer = *buffer}))
      continue;
    buffers.release(*buffer);
    left_out_.count(UnwrittenReason::no_buffer, 1);
  }
  return CopyOutcome::yes;
}

void PageWriter::leave_out(size_t count, UnwrittenReason why) {
  const bool takes = std::ranges::any_of(
      stores_, [](const auto& writer) { return writer->store->takes_writes(); });
  left_out_.count_and_warn(why, count, takes, clock_->now());
}

// Looking for the files of a save takes long on a slow disk, so the engine's thread never does it.
void PageWriter::end(RequestId request, Saved saved) {
  if (!saved && !is_awaited(request)) return;
  Order order{.ended = request, .saved = std::move(saved)};
  if (stores_.empty() || !stores_.front()->orders.push(order)) carry_out_end(order, false);
}

void PageWriter::carry_out_end(const Order& order, bool all_written) {
  if (!order.saved) return options_.prefills->end(order.ended);
  try {
    order.saved(all_written);
  } catch (const std::exception& e) {  // while it looked for the files
    report_lack(e.what());
    order.saved(false);
  }
}

void PageWriter::add_to(CacheTierStats& stats) const {
  stats.left_out_total = left_out_.counts();
  for (const auto& writer : stores_) {
    const PageStore::Figures figures = writer->store->figures();
    PageTierStats& tier = stats.tiers[static_cast<size_t>(writer->store->tier())];
    tier.pages_written_total = writer->num_written;
    tier.damaged_total = figures.damaged_total;
    tier.failures_total = figures.failures_total;
    stats.pages_written_total += tier.pages_written_total;
    stats.damaged_total += figures.damaged_total;
    if (writer->store != options_.files) continue;
    stats.files = figures.pages;
    stats.bytes = figures.bytes;
    stats.evicted_total = figures.evicted_total;
  }
}

// An exception ends neither the thread nor the process: a caller that waits for a page learns of it
// from the end of its request.
void PageWriter::run(StoreWriter& writer) {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = serve(writer);
    } catch (const std::exception& e) {
      report_lack(e.what());
    }
  }
}

// Takes the next order and writes what is due. Returns false at the end.
bool PageWriter::serve(StoreWriter& writer) {
  auto next = writer.pages.empty() ? writer.orders.wait_pop(kWriterWait) : writer.orders.pop();
  if (next && next->kind) {
    writer.pages.push_back(*std::move(next));
    if (writer.pages.size() == writer.pages.capacity()) write(writer);
  } else {
    write(writer);
    if (next)
      carry_out_end(*next, true);
    else if (ending_ && writer.orders.size() == 0)
      return false;
  }
  if (writer.store == options_.files) options_.files->touch_used();
  return true;
}

void PageWriter::write(StoreWriter& writer) {
  if (writer.pages.empty()) return;
  WriteOutcome outcome;
  try {
    put(writer, outcome);
  } catch (const std::exception& e) {
    report_lack(e.what());
  }
  writer.num_written += outcome.num_written;
  left_out_.count(outcome.why, writer.pages.size() - outcome.num_written);
  if (outcome.num_written < writer.pages.size())
    note_lost(writer);
  else if (options_.prefills)
    for (const Order& order : writer.pages) options_.prefills->note_page(order.key);
  for (const Order& order : writer.pages) buffers_.of(*order.kind).release(order.buffer);
  const bool is_half_free = buffers_.of(*writer.pages.back().kind).is_half_free();
  writer.pages.clear();
  if (writer.orders.size() == 0 || is_half_free) on_free_();
}

void PageWriter::put(StoreWriter& writer, WriteOutcome& outcome) {
  std::vector<PageStore::Page> pages;
  for (const Order& order : writer.pages)
    pages.push_back({order.key, buffers_.of(*order.kind).of(order.buffer)});
  PageStore& store = *writer.store;
  const bool takes = store.takes_writes() && !is_over();
  const Result<size_t> written =
      takes ? store.put(pages, [this] { return is_over(); }) : Result<size_t>(0);
  outcome = {.num_written = written.value_or(0),
             .why = takes ? UnwrittenReason::write_failed : UnwrittenReason::store_away};
  if (outcome.num_written < pages.size() && is_over()) {
    outcome.why = UnwrittenReason::shutdown;
    writer.num_given_up += pages.size() - outcome.num_written;
  } else if (!written && written.error().code == ErrorCode::out_of_memory) {
    outcome.why = UnwrittenReason::no_memory;
    report_lack(written.error().message);
  } else if (!written) {
    store.pause_writes();
    store.report(written.error(), fmt::format("no prefix is written there for {:.0f} s",
                                              to_seconds(PageStore::kRetryInterval)));
  } else if (outcome.num_written > 0) {
    store.note_success();
    if (writer.store == options_.files) save_speed();
  }
}

// A folder that takes nothing more ends all prompts that are computed for peers, since their pages
// behind this one are of no use. One that takes others ends the waits for these pages alone.
void PageWriter::note_lost(const StoreWriter& writer) {
  if (!options_.prefills || writer.store != options_.files) return;
  if (!options_.files->takes_writes()) return options_.prefills->end_all();
  for (const Order& order : writer.pages) options_.prefills->note_lost(order.key);
}

// Nothing more can be done if there is no memory for the line either; the pages are counted.
void PageWriter::report_lack(std::string_view what) {
  try {
    if (const auto num_more = lacks_.admit(RealClock().now()))
      log::warning(
          "stored prefixes: pages are not written ({}), and are computed again after an eviction "
          "or a restart ({} more since the last such line). To fix it: give the process more "
          "memory, or lower what it may use",
          what, *num_more);
  } catch (const std::exception&) {
    return;
  }
}

// Saves the speed of prompts beside their pages, for the next start. One that cannot be saved is
// only measured again.
void PageWriter::save_speed() {
  const TimePoint now = RealClock().now();
  if (row_seconds_ == 0 || now < next_speed_save_) return;
  next_speed_save_ = now + kSpeedSavesApart;
  static_cast<void>(options_.files->run<bool>(
      [folder = options_.files->folder(), row_seconds = row_seconds_.load()] {
        return Result<bool>(save_row_seconds(folder, row_seconds));
      }));
}

}  // namespace hocket
