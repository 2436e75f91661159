#include "engine/tier/cache_tier.h"

#include <new>
#include <utility>

namespace hocket {
namespace {

PageReader::Options reader_options(const CacheTierOptions& options, const PagePool& pages,
                                   const BorderStates& states) {
  PageReader::Options reader{.form = options.form,
                             .page_tokens = static_cast<size_t>(options.page_tokens),
                             .page_bytes = pages.page_bytes(),
                             .state_bytes = states.bytes(),
                             .border_tokens = static_cast<size_t>(states.border_tokens()),
                             .min_sent_tokens = CacheTierOptions::kMinTokens,
                             .waits_for_networks = options.peers || options.redis,
                             .num_senders = static_cast<size_t>(options.num_senders)};
  if (options.files) reader.sources.push_back(options.files.get());
  if (options.redis) reader.sources.push_back(options.redis.get());
  if (options.peers) reader.sources.push_back(options.peers.get());
  return reader;
}

}  // namespace

Result<std::unique_ptr<CacheTier>> CacheTier::create(Options options, PagePool& pages,
                                                     const BorderStates& states) {
  TierBuffers sizes{.page_bytes = pages.page_bytes(),
                    .record_bytes = states.bytes(),
                    .record_budget_bytes = options.record_budget_bytes,
                    .chunk_pages = options.chunk_pages};
  HOCKET_TRY(TransferBuffers::Memory writes, TransferBuffers::allocate(sizes));
  sizes.num_senders = options.num_senders;
  HOCKET_TRY(TransferBuffers::Memory reads, TransferBuffers::allocate(sizes));
  return std::unique_ptr<CacheTier>(
      new CacheTier(std::move(options), pages, states, std::move(reads), std::move(writes)));
}

CacheTier::CacheTier(Options options, PagePool& pages, const BorderStates& states,
                     TransferBuffers::Memory reads, TransferBuffers::Memory writes)
    : options_(std::move(options)),
      states_(states),
      reader_(reader_options(options_, pages, states_), std::move(reads), figures_),
      writer_({.files = options_.files, .redis = options_.redis, .prefills = options_.prefills},
              std::move(writes)),
      prefetch_(options_, pages, states_, reader_, figures_),
      writes_(options_, pages, states_, writer_) {}

// Copied pages are written before the end, so that a restart finds them.
CacheTier::~CacheTier() {
  writer_.begin_end();
  reader_.stop();
  writer_.join();
}

void CacheTier::start(const Clock& clock, std::function<void()> wake,
                      std::function<void(PageId)> restored) {
  prefetch_.start(clock, std::move(restored));
  writes_.start(clock, wake);
  writer_.start(clock, [this] { writes_.note_free_buffers(); });
  reader_.start(clock, std::move(wake));
}

void CacheTier::on_pages_cached(const Request& request, const Scheduler& scheduler) {
  prefetch_.note_cached(request.id);
  try {
    writes_.on_pages_cached(request, scheduler);
  } catch (const std::bad_alloc&) {  // its pages are copied behind its next chunk, or never
    writer_.end_waiting(request.id);
  }
}

void CacheTier::note_step(const Batch& batch, Duration took) {
  writes_.note_step(took);
  if (const auto row_seconds = prefetch_.note_step(batch, took))
    writer_.note_row_seconds(*row_seconds);
}

void CacheTier::forget(RequestId id) {
  prefetch_.forget(id);
  writes_.forget(id);
}

void CacheTier::end_prefills() {
  if (options_.prefills) options_.prefills->end_all();
}

CacheTierStats CacheTier::stats() const {
  CacheTierStats stats;
  figures_.add_to(stats);
  writer_.add_to(stats);
  for (const PageSource* source : reader_.sources()) {
    PageTierStats& tier = stats.tiers[static_cast<size_t>(source->tier())];
    tier.exists = true;
    tier.away = source->is_away();
  }
  if (options_.peers) {
    static_cast<PeerCounters&>(stats) = options_.peers->counts();
    stats.tiers[static_cast<size_t>(PageTier::peer)].failures_total = stats.peer_failures_total;
  }
  if (options_.prefills) stats.num_prefills = options_.prefills->size();
  if (options_.served) static_cast<ServedCounters&>(stats) = options_.served->read(kServedCounters);
  return stats;
}

}  // namespace hocket
