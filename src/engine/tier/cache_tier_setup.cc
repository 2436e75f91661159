#include "engine/tier/cache_tier_setup.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cluster/token_proof.h"
#include "compute/kv/page_folders.h"
#include "engine/lockstep/identity.h"
#include "engine/pages/page_link.h"
#include "engine/pages/saved_speed.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/tier_buffers.h"
#include "engine/plan/tier_plan.h"
#include "engine/tier/cache_store_setup.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr double kMinStoreGb = 0.001;  // less would delete nearly every page that is written

Error unfit(const char* flag, std::string why, std::string fix) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag).with_fix(std::move(fix));
}

// Returns the forms of the runner's pages: all that their bytes depend on, beside their tokens.
Result<std::shared_ptr<const PageForms>> page_forms(const ServerSettings& settings, Runner& runner,
                                                    const std::string& model) {
  HOCKET_TRY(std::string bits, describe_bits(settings, model));
  const PagePool* windows = runner.windows();
  const BorderStates states = border_states_of(runner);
  auto forms = std::make_shared<const PageForms>(
      PageForms::Parts{.bits = std::move(bits),
                       .pages = runner.pages().layout(),
                       .windows = windows != nullptr ? windows->layout() : PageLayout(),
                       .window_tokens = states.window_tokens(),
                       .state_bytes = states.keeps_windows() ? 0 : states.bytes()});
  HOCKET_CHECK(forms->record_bytes(forms->page_tokens()) == states.bytes());
  return forms;
}

// The flag of the peers that are asked, and their list.
struct PeerFlag {
  const char* flag;
  const std::string& list;
};
PeerFlag peer_flag(const PeerSettings& peers) {
  if (!peers.disaggregation_prefill_url.empty())
    return {"disaggregation-prefill-url", peers.disaggregation_prefill_url};
  return {"kv-cache-peers", peers.kv_cache_peers};
}

PrefillRole::Options role_of(const PeerSettings& peers) {
  return {.mode = parse_disaggregation(peers.disaggregation_mode).value_or(Disaggregation::null),
          .can_prefill = !peers.kv_cache_listen.empty(),
          .can_decode = !peers.disaggregation_prefill_url.empty()};
}

Result<void> check_peers(const ServerSettings& settings) {
  const PeerSettings& peers = settings.peers;
  HOCKET_TRY(const Disaggregation mode, parse_disaggregation(peers.disaggregation_mode));
  HOCKET_TRY_VOID(PrefillRole(role_of(peers)).check(mode));
  if (!peers.disaggregation_prefill_url.empty() && !peers.kv_cache_peers.empty())
    return fail(unfit("kv-cache-peers",
                      "a service asks those that compute prompts for pages, too, and no others",
                      "one of --kv-cache-peers and --disaggregation-prefill-url"));
  if (!peers.kv_cache_listen.empty() && settings.memory.kv_cache_dir.empty())
    return fail(unfit("kv-cache-dir",
                      "--kv-cache-listen offers the pages of a folder, and there is none",
                      "--kv-cache-dir DIR, which may be in memory: /dev/shm/hocket"));
  return {};
}

// Names the flag by which the prefix cache reads pages; null: none does.
const char* flag_of_pages(const ServerSettings& settings) {
  if (!settings.memory.kv_cache_dir.empty()) return "kv-cache-dir";
  if (!settings.memory.kv_cache_store.empty()) return "kv-cache-store";
  const PeerFlag asked = peer_flag(settings.peers);
  return asked.list.empty() ? nullptr : asked.flag;
}

// Refuses flags that say how pages are kept where none are.
Result<void> check_needless_flags(const ServerSettings& settings) {
  const MemorySettings& memory = settings.memory;
  const MemorySettings defaults;
  if (memory.kv_cache_dir.empty() && memory.kv_cache_dir_gb != defaults.kv_cache_dir_gb)
    return fail(unfit("kv-cache-dir-gb", "--kv-cache-dir-gb changes nothing without a folder",
                      "--kv-cache-dir DIR"));
  if (memory.kv_cache_dir.empty() && memory.kv_cache_store.empty() &&
      memory.hicache_write_policy != defaults.hicache_write_policy)
    return fail(unfit("hicache-write-policy",
                      "--hicache-write-policy changes nothing without a folder or a store",
                      "--kv-cache-dir DIR, or --kv-cache-store redis://HOST:6379"));
  if (flag_of_pages(settings) == nullptr &&
      memory.hicache_storage_prefetch_policy != defaults.hicache_storage_prefetch_policy)
    return fail(unfit("hicache-storage-prefetch-policy",
                      "--hicache-storage-prefetch-policy changes nothing without a folder, a "
                      "store or peers",
                      "--kv-cache-dir DIR, or --kv-cache-store redis://HOST:6379"));
  return {};
}

// Warns of a limit of files, which take held_bytes now, that the disk cannot hold. A limit that was
// planned fits.
void warn_of_limit(double given_gb, const fs::path& folder, int64_t held_bytes) {
  if (given_gb <= 0) return;
  std::error_code problem;
  const fs::space_info space = fs::space(folder, problem);
  const double room = static_cast<double>(held_bytes) + static_cast<double>(space.available);
  if (!problem && given_gb * 1e9 > room)
    log::warning(
        "--kv-cache-dir-gb {} is more than the {:.2f} GB that are free at {} or hold its pages; "
        "when the disk is full, no prefix is written",
        given_gb, room * 1e-9, folder.string());
}

// Lists the folder's files, bounds what they take, and says what there is.
Result<void> list_folder(PageFiles& files, double given_gb, size_t max_files) {
  const int why = access(files.folder().c_str(), W_OK) == 0 ? 0 : errno;
  const Result<void> listed = why == 0 ? files.list() : files.list(max_files);
  if (why != 0) {
    log::warning(
        "prefixes in files: {} cannot be written ({}), so its {} pages are read, and none is "
        "written. To fix it: let this user write there, or make room",
        files.folder().string(), std::generic_category().message(why), files.figures().files);
    return listed;
  }
  // One that cannot be listed is bounded all the same, by what is known of it.
  const PageFiles::Figures held = files.figures();
  HOCKET_TRY(const int64_t max_bytes,
             folder_limit(given_gb, files.folder(), held.bytes + held.other_bytes));
  warn_of_limit(given_gb, files.folder(), held.bytes + held.other_bytes);
  files.limit(max_bytes, max_files);
  if (is_in_memory(files.folder()))
    log::info(
        "note: {} is in memory, so --kv-cache-dir-gb (here {:.2f}) is taken from that of weights "
        "and pages",
        files.folder().string(), static_cast<double>(max_bytes) * 1e-9);
  if (!listed) return listed;
  const PageFiles::Figures now = files.figures();
  const std::string others =
      now.other_bytes > 0
          ? fmt::format(", beside {:.2f} GB of models or forms that no process uses now",
                        static_cast<double>(now.other_bytes) * 1e-9)
          : "";
  log::info("prefixes in files: {} files, {:.2f} GB of at most {:.2f} GB, in {}{}", now.files,
            static_cast<double>(now.bytes) * 1e-9, static_cast<double>(max_bytes) * 1e-9,
            files.folder().string(), others);
  if (now.evicted_total > 0)
    log::warning(
        "{} files of prefixes were deleted, the longest unused first, because they took more than "
        "--kv-cache-dir-gb allows or were more than {}",
        now.evicted_total, max_files);
  return {};
}

// Checks that a page and a record of the model fit into a message between peers.
Result<void> check_frames(Runner& runner, const char* flag) {
  const int64_t largest = std::max(runner.pages().page_bytes(), border_states_of(runner).bytes());
  if (largest <= PageLink::kMaxPageBytes) return {};
  return fail(unfit(flag,
                    fmt::format("a page or a state of this model has {} bytes, and peers send at "
                                "most {}",
                                largest, PageLink::kMaxPageBytes),
                    fmt::format("leave out --{}; services may share a --kv-cache-dir", flag)));
}

// Opens the folder of the model's pages. The list of its files is waited for at most kListWait: it
// takes long for many, and pages are found without it.
Result<std::shared_ptr<FileStore>> open_files(const MemorySettings& memory, const PageKey& form,
                                              size_t max_files) {
  std::string name;
  for (size_t i = 0; i < 8; ++i) name += fmt::format("{:02x}", form[i]);
  // Pages of other models lie beside these, in folders of their own.
  const fs::path folder = fs::path(memory.kv_cache_dir) / name;
  using Files = std::shared_ptr<PageFiles>;
  HOCKET_TRY(const Files files,
             FileStore::calls_for(folder, FileStore::kOpenLimit)
                 ->run<Files>([folder, has_other = !memory.kv_cache_store.empty()] {
                   auto opened = Result<Files>(PageFiles::open(folder));
                   if (opened && has_other) note_shared(folder);
                   return opened;
                 }));
  const auto waits = std::make_shared<std::atomic<bool>>(true);
  const Result<bool> listed =
      FileStore::calls_for(folder, FileStore::kListWait)
          ->run<bool>(
              [files, given_gb = memory.kv_cache_dir_gb, max_files, waits]() -> Result<bool> {
                if (const Result<void> done = list_folder(*files, given_gb, max_files); !done) {
                  if (!*waits) log::warning("prefixes in files: {}", describe(done.error()));
                  return std::unexpected(done.error());
                }
                return true;
              });
  *waits = false;
  if (!listed && listed.error().code != ErrorCode::timed_out)
    return std::unexpected(listed.error());
  if (!listed)
    log::info(
        "prefixes in files: listing {} takes longer than {:.0f} s, so it continues while the "
        "server runs; until it is done, --kv-cache-dir-gb does not limit the folder",
        folder.string(), to_seconds(FileStore::kListWait));
  return std::make_shared<FileStore>(files, FileStore::calls_for(folder));
}

}  // namespace

Result<void> check_cache_flags(const ServerSettings& settings) {
  const MemorySettings& memory = settings.memory;
  HOCKET_TRY_VOID(parse_storage_prefetch(memory.hicache_storage_prefetch_policy));
  HOCKET_TRY_VOID(parse_storage_writes(memory.hicache_write_policy));
  HOCKET_TRY_VOID(check_peers(settings));
  HOCKET_TRY_VOID(check_needless_flags(settings));
  HOCKET_TRY_VOID(check_store(memory));
  if (!(std::isfinite(memory.kv_cache_dir_gb) && memory.kv_cache_dir_gb >= 0 &&
        memory.kv_cache_dir_gb <= 1e9) ||
      (memory.kv_cache_dir_gb > 0 && memory.kv_cache_dir_gb < kMinStoreGb))
    return fail(unfit("kv-cache-dir-gb",
                      fmt::format("--kv-cache-dir-gb {} is neither 0 nor in {} to 1e9",
                                  memory.kv_cache_dir_gb, kMinStoreGb),
                      "--kv-cache-dir-gb 100"));
  const char* flag = flag_of_pages(settings);
  if (flag != nullptr && settings.scheduler.disable_radix_cache)
    return fail(unfit(flag,
                      fmt::format("--{} brings pages to the prefix cache, and "
                                  "--disable-radix-cache takes that away",
                                  flag),
                      "one of the two"));
  return {};
}

BorderStates border_states_of(Runner& runner) {
  const EngineInfo& info = runner.info();
  return {runner.states(), runner.windows(),
          std::min(info.model.window().max_keys(), info.context_length), info.page_tokens};
}

Result<std::optional<CacheTier::Options>> choose_cache_tier(const ServerSettings& settings,
                                                            Runner& runner,
                                                            const std::string& model) {
  const MemorySettings& memory = settings.memory;
  const PeerFlag asked = peer_flag(settings.peers);
  if (!has_cache_tier(settings)) return std::nullopt;
  HOCKET_TRY(const StoragePrefetch prefetch,
             parse_storage_prefetch(memory.hicache_storage_prefetch_policy));
  HOCKET_TRY(const StorageWrites writes, parse_storage_writes(memory.hicache_write_policy));
  HOCKET_TRY(const std::shared_ptr<const PageForms> forms, page_forms(settings, runner, model));
  CacheTier::Options tier{
      .forms = forms,
      .form = forms->form(),
      .page_tokens = runner.info().page_tokens,
      .prefetch = prefetch,
      .writes = writes,
      .chunk_pages = chunk_pages(runner.plan().chunk_tokens, runner.plan().max_prefill_tokens,
                                 runner.info().page_tokens),
      .num_senders = num_senders(settings)};
  if (!memory.kv_cache_dir.empty()) {
    HOCKET_TRY(tier.files,
               open_files(memory, tier.form, static_cast<size_t>(runner.plan().max_stored_files)));
    tier.row_seconds = tier.files
                           ->run<double>([folder = tier.files->folder()] {
                             return Result<double>(load_row_seconds(folder));
                           })
                           .value_or(0);
  }
  if (!memory.kv_cache_store.empty()) {
    const int64_t max_bytes =
        std::max(runner.pages().page_bytes(), border_states_of(runner).bytes());
    HOCKET_TRY(tier.redis, open_store(settings, tier.form, max_bytes));
  }
  if (!asked.list.empty()) {
    HOCKET_TRY_VOID(check_frames(runner, asked.flag));
    const bool prefill = !settings.peers.disaggregation_prefill_url.empty();
    HOCKET_TRY(std::vector<HostPort> peers, parse_peers(asked.list, asked.flag));
    HOCKET_TRY(std::string token, read_page_token(settings.parallel.cluster_token_file));
    HOCKET_TRY(PageTls tls, read_page_tls(settings.parallel.cluster_tls, token));
    log::info("peers: {} {}", prefill ? "prompts can be computed by" : "pages are asked of",
              asked.list);
    tier.peers = std::make_shared<PeerSource>(
        PeerSource::Options{.peers = std::move(peers),
                            .use = prefill ? PeerUse::prefill : PeerUse::cache,
                            .token = std::move(token),
                            .tls = std::move(tls),
                            .forms = forms});
  }
  tier.role = std::make_shared<PrefillRole>(role_of(settings.peers));
  if (!settings.peers.kv_cache_listen.empty()) {
    tier.prefills = std::make_shared<PrefillWatch>();
    tier.served = std::make_shared<PageServer::Counts>();
  }
  return tier;
}

Result<std::unique_ptr<PageServer>> offer_pages(const ServerSettings& settings, int place,
                                                const CacheTier::Options& tier, Runner& runner,
                                                const PrefillCalls& calls) {
  const std::string& listen = settings.peers.kv_cache_listen;
  if (listen.empty()) return nullptr;
  HOCKET_TRY_VOID(check_frames(runner, "kv-cache-listen"));
  auto address = parse_host_port(listen);
  if (!address || address->port + place > 65535)
    return fail(unfit("kv-cache-listen", fmt::format("'{}' is not host:port", listen),
                      "--kv-cache-listen 0.0.0.0:8998"));
  if (address->port > 0) address->port = static_cast<uint16_t>(address->port + place);
  const Result<std::vector<SocketAddress>> found = resolve(*address);
  if (!found)
    return fail(unfit("kv-cache-listen",
                      fmt::format("--kv-cache-listen: {}", found.error().message),
                      "--kv-cache-listen names an address of this host"));
  HOCKET_TRY(std::string token, read_page_token(settings.parallel.cluster_token_file));
  if (token.empty() && !found->front().is_loopback() && !settings.parallel.insecure_cluster)
    return fail(unfit("kv-cache-listen",
                      fmt::format("{} can be reached from other hosts, and pages are for services "
                                  "that know a token",
                                  to_text(*address)),
                      "--cluster-token-file FILE, on both sides"));
  HOCKET_TRY(PageTls tls, read_page_tls(settings.parallel.cluster_tls, token));
  const EngineInfo& info = runner.info();
  const auto submit = [calls, prefills = tier.prefills, num_tokens = num_prefill_tokens(info.model),
                       most = std::min<int64_t>(info.context_length, info.max_total_tokens)](
                          PrefillPrompt asked) -> Result<RequestId> {
    RequestInput input{.id = calls.next_id(),
                       .prompt = std::move(asked.tokens),
                       .cache_namespace = asked.name_space,
                       .border_tokens = asked.page_tokens,
                       .arrived = RealClock().now()};
    input.sampling.temperature = 0;
    // A prompt that fills context or memory has room for one token.
    const bool has_room = std::ssize(input.prompt) + num_tokens <= most;
    input.sampling.max_new_tokens = has_room ? num_tokens : 1;  // sampled and dropped
    input.sampling.ignore_eos = true;
    const RequestId id = input.id;
    HOCKET_TRY_VOID(prefills->begin(id));
    if (auto taken = calls.submit(std::move(input)); !taken) {
      prefills->end(id);
      return fail(std::move(taken.error()));
    }
    return id;
  };
  HOCKET_TRY(auto server, PageServer::create({.address = found->front(),
                                              .token = std::move(token),
                                              .tls = std::move(tls),
                                              .forms = tier.forms,
                                              .page_bytes = runner.pages().page_bytes(),
                                              .state_bytes = border_states_of(runner).bytes(),
                                              .files = tier.files,
                                              .counts = tier.served,
                                              .prefills = tier.prefills,
                                              .role = tier.role,
                                              .submit = submit,
                                              .abort = calls.abort}));
  log::info("peers: pages are offered at {}", server->address().text());
  return server;
}

}  // namespace hocket
