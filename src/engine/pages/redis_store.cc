#include "engine/pages/redis_store.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cluster/member.h"
#include "engine/pages/connect.h"

namespace hocket {
namespace {

constexpr Duration kResolveLimit = std::chrono::seconds(2);

std::string hex_of_key(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Names what the pages depend on: a page of another model or another secret is never asked for.
std::string prefix_of(const PageKey& form, const std::string& secret) {
  std::string text(reinterpret_cast<const char*>(form.data()), form.size());
  if (!secret.empty()) text += "hocket store " + secret;
  PageKey sum{};
  HOCKET_CHECK(EVP_Digest(text.data(), text.size(), sum.data(), nullptr, EVP_sha256(), nullptr) ==
               1);
  return fmt::format("hocket:{}:", hex_of_key(std::span(sum).first(8)));
}

// Returns the value of "name:value" in what INFO says; empty if there is none.
std::string_view info_of(std::string_view info, std::string_view name) {
  for (size_t at = info.find(name); at != std::string_view::npos; at = info.find(name, at + 1)) {
    if ((at > 0 && info[at - 1] != '\n') || !info.substr(at + name.size()).starts_with(':'))
      continue;
    const std::string_view value = info.substr(at + name.size() + 1);
    return value.substr(0, value.find_first_of("\r\n"));
  }
  return {};
}

Error refusal(std::string_view name, const RedisReply& reply) {
  const std::string text = in_one_line(std::string_view(reply.text).substr(0, 200));
  const bool is_login = text.starts_with("NOAUTH") || text.starts_with("WRONGPASS") ||
                        text.starts_with("ERR AUTH") || text.starts_with("ERR invalid password");
  const bool is_cluster = text.starts_with("MOVED") || text.starts_with("CROSSSLOT");
  return error(is_login ? ErrorCode::unauthorized : ErrorCode::io, "{} refuses: {}", name, text)
      .with_param("kv-cache-store")
      .with_fix(is_login ? "--kv-cache-store redis://[USER]:PASSWORD@HOST:PORT with the right ones"
                : is_cluster ? "--kv-cache-store names a single server, or a proxy of the cluster"
                : text.starts_with("OOM")
                    ? "raise its maxmemory, or let it evict: maxmemory-policy allkeys-lru"
                : text.starts_with("READONLY") ? "--kv-cache-store names the primary, not a replica"
                                               : "look at its configuration and its log");
}

}  // namespace

// The reading of one prompt's pages: asks for some ahead, so that they travel while others are
// checked.
class RedisPromptPages final : public PromptPages {
 public:
  RedisPromptPages(RedisStore& store, RedisStore::Link link, std::function<bool()> is_over)
      : store_(store), link_(std::move(link)), is_over_(std::move(is_over)) {
    link_->watch(is_over_);
  }
  ~RedisPromptPages() override {
    link_->watch([] { return false; });
    store_.give_back(std::move(link_));
  }

  Result<size_t> last_held(std::span<const PageKey> keys) override {
    HOCKET_TRY_VOID(settle());
    while (!keys.empty()) {
      const auto some = keys.last(std::min(keys.size(), RedisStore::kMaxAhead));
      keys = keys.first(keys.size() - some.size());
      HOCKET_TRY(const std::vector<bool> there, store_.watch(store_.exist_at(*link_, some)));
      for (size_t i = there.size(); i > 0; --i)
        if (there[i - 1]) return keys.size() + i;
    }
    return 0;
  }

  Result<void> expect(std::span<const PageKey> keys, PageKind /*kind*/) override {
    HOCKET_TRY_VOID(settle());
    expected_.assign(keys.begin(), keys.end());
    num_asked_ = num_got_ = 0;
    return {};
  }

  Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
    if (num_got_ == expected_.size() || expected_[num_got_] != key) return false;
    return store_.watch(take(key, page));
  }

 private:
  // Replies that will not be read end the connection.
  Result<void> settle() {
    if (link_->is_whole()) return {};
    HOCKET_TRY(link_, store_.watch(store_.take_link()));
    link_->watch(is_over_);
    return {};
  }

  // Behind a page that is absent the others mostly are, too. Their short replies are read, so that
  // the connection serves the next prompt; a page among them ends it.
  void drain() {
    expected_.clear();
    num_asked_ = num_got_ = 0;
    while (link_->num_awaited() > 0) {
      const auto reply = link_->receive();
      if (!reply || reply->kind == RedisReply::Kind::text) return;
    }
  }

  Result<void> request_ahead(size_t page_bytes) {
    const size_t max_requested =
        std::clamp<size_t>(RedisStore::kMaxAheadBytes / page_bytes, 1, RedisStore::kMaxAhead);
    const std::string kept = std::to_string(std::chrono::seconds(RedisStore::kKept).count());
    for (; num_asked_ < expected_.size() && num_asked_ <= num_got_ + max_requested; ++num_asked_) {
      const std::string name = store_.name_of(expected_[num_asked_]);
      HOCKET_TRY_VOID(link_->send({"GET", name}));
      HOCKET_TRY_VOID(link_->send({"EXPIRE", name, kept}));
    }
    return {};
  }

  Result<bool> take(const PageKey& key, std::span<std::byte> page) {
    HOCKET_TRY_VOID(request_ahead(page.size()));
    HOCKET_TRY(const RedisReply value, link_->receive(page.size() + RedisLink::kShortReply));
    HOCKET_TRY(const RedisReply renewed, link_->receive());  // a replica may refuse that
    ++num_got_;
    const bool is_foreign = value.text.starts_with("WRONGTYPE");  // no page, but a list or a set
    if (value.kind == RedisReply::Kind::refusal && !is_foreign)
      return fail(refusal(link_->name(), value));
    if (value.kind == RedisReply::Kind::absent) {
      store_.forget(key);
      drain();
      return false;
    }
    if (value.kind == RedisReply::Kind::text && unpack(value.text, key, page)) {
      store_.note(key);
      return true;
    }
    ++store_.num_damaged_;
    store_.forget(key);
    HOCKET_TRY_VOID(link_->send({"DEL", store_.name_of(key)}));
    while (link_->num_awaited() > 0)  // so that it is carried out
      HOCKET_TRY_VOID(link_->receive(page.size() + RedisLink::kShortReply));
    expected_.clear();
    num_asked_ = num_got_ = 0;
    return false;
  }

  // Fills `page` with what a value holds. Returns false if that is not the page of this key, whole.
  bool unpack(std::string_view value, const PageKey& key, std::span<std::byte> page) const {
    PageHeader header;
    if (value.size() != sizeof header + page.size()) return false;
    std::memcpy(&header, value.data(), sizeof header);
    std::memcpy(page.data(), value.data() + sizeof header, page.size());
    return fits(header, key, page, store_.options_.secret);
  }

  RedisStore& store_;
  RedisStore::Link link_;
  const std::function<bool()> is_over_;
  std::vector<PageKey> expected_;
  size_t num_asked_ = 0, num_got_ = 0;  // in expected_
};

size_t RedisStore::KeyHash::operator()(const PageKey& key) const noexcept {
  size_t first = 0;
  std::memcpy(&first, key.data(), sizeof first);
  return first;
}

RedisStore::RedisStore(Options options)
    : PageStore(options.retry_interval),
      options_(std::move(options)),
      prefix_(prefix_of(options_.form, options_.secret)),
      name_(fmt::format("the store {}", options_.address.text())),
      resolver_({.name = "kv_resolve",
                 .target = fmt::format("the resolver of {}", options_.address.host.host),
                 .num_threads = 1,
                 .limit = kResolveLimit,
                 .fix = "look at the name service of this host, or name an address",
                 .param = "kv-cache-store"}),
      idle_(options_.trusted_for) {
  HOCKET_CHECK(can_use_redis());
}

std::string RedisStore::name_of(const PageKey& key) const {
  return prefix_ + hex_of_key(key);
}

template <class T>
Result<T> RedisStore::watch(Result<T> result) {
  if (result || result.error().code == ErrorCode::shutting_down) return result;
  ++num_failures_;
  leave();
  idle_.clear();  // they lead to a server that may be gone, with all that it held
  const MutexLock lock(mutex_);
  newer_.clear();
  older_.clear();
  return result;
}

Result<void> RedisStore::log_in(RedisLink& link) {
  const RedisAddress& a = options_.address;
  const auto consent = [&](std::initializer_list<std::string_view> words) -> Result<void> {
    HOCKET_TRY_VOID(link.send(words));
    HOCKET_TRY(const RedisReply reply, link.receive());
    if (reply.kind == RedisReply::Kind::refusal) return fail(refusal(name_, reply));
    return {};
  };
  if (!a.user.empty()) HOCKET_TRY_VOID(consent({"AUTH", a.user, a.password}));
  if (a.user.empty() && !a.password.empty()) HOCKET_TRY_VOID(consent({"AUTH", a.password}));
  if (a.database != 0) HOCKET_TRY_VOID(consent({"SELECT", std::to_string(a.database)}));
  return {};
}

Result<RedisStore::Link> RedisStore::connect_link() {
  using Addresses = std::vector<SocketAddress>;
  const auto unreachable = [&](const Error& why) {
    return fail(error(ErrorCode::io, "{} cannot be reached: {}", name_, why.message)
                    .with_param("kv-cache-store")
                    .with_fix("look whether it runs, and whether this host may reach it"));
  };
  const auto found =
      resolver_.run<Addresses>([host = options_.address.host] { return resolve(host); });
  if (!found) return unreachable(found.error());
  auto socket = connect_to_first(*found, RedisLink::kConnect, [] { return false; });
  if (!socket) return unreachable(socket.error());
  auto link = std::make_unique<RedisLink>(
      ServerStream(*std::move(socket), options_.tls, options_.address.host.host), name_);
  HOCKET_TRY_VOID(link->begin());
  HOCKET_TRY_VOID(log_in(*link));
  return link;
}

Result<RedisStore::Link> RedisStore::take_link() {
  if (Link link = idle_.take()) return link;
  return connect_link();
}

void RedisStore::give_back(Link link) {
  if (link->is_whole() && !is_away()) idle_.give_back(std::move(link));
}

Result<std::unique_ptr<PromptPages>> RedisStore::open(const PagesWanted& wanted) {
  if (is_away()) return nullptr;
  HOCKET_TRY(Link link, watch(take_link()));
  return std::make_unique<RedisPromptPages>(*this, std::move(link), wanted.is_over);
}

void RedisStore::age_known() {
  const TimePoint now = RealClock().now();
  if (now - began_ <= kKnownFor && std::cmp_less(newer_.size(), kMaxKnownKeys)) return;
  older_ = std::exchange(newer_, {});
  if (now - began_ > 2 * kKnownFor) older_.clear();
  began_ = now;
}

bool RedisStore::has(const PageKey& key) {
  const MutexLock lock(mutex_);
  age_known();
  return newer_.contains(key) || older_.contains(key);
}

void RedisStore::note(const PageKey& key) {
  const MutexLock lock(mutex_);
  age_known();
  newer_.insert(key);
}

void RedisStore::forget(const PageKey& key) {
  const MutexLock lock(mutex_);
  newer_.erase(key);
  older_.erase(key);
}

PageStore::Figures RedisStore::figures() const {
  const MutexLock lock(mutex_);
  return {.pages = static_cast<int64_t>(newer_.size() + older_.size()),
          .damaged_total = num_damaged_,
          .failures_total = num_failures_};
}

Result<std::vector<bool>> RedisStore::exist_at(RedisLink& link, std::span<const PageKey> keys) {
  std::vector<bool> there;
  while (!keys.empty()) {
    const auto some = keys.first(std::min(keys.size(), kMaxAhead));
    keys = keys.subspan(some.size());
    for (const PageKey& key : some) HOCKET_TRY_VOID(link.send({"EXISTS", name_of(key)}));
    std::optional<Error> refused;
    for (size_t i = 0; i < some.size(); ++i) {
      HOCKET_TRY(const RedisReply reply, link.receive());
      if (reply.kind == RedisReply::Kind::refusal) refused = refusal(name_, reply);
      there.push_back(reply.kind == RedisReply::Kind::number && reply.number == 1);
    }
    if (refused) return fail(*std::move(refused));
  }
  return there;
}

Result<std::vector<bool>> RedisStore::exist(std::span<const PageKey> keys) {
  HOCKET_TRY(Link link, watch(take_link()));
  HOCKET_TRY(std::vector<bool> there, watch(exist_at(*link, keys)));
  give_back(std::move(link));
  return there;
}

// Sends pages, and returns the first refusal behind all replies.
Result<void> RedisStore::put_some(RedisLink& link, std::span<const Page* const> pages) {
  const std::string kept = std::to_string(std::chrono::seconds(kKept).count());
  for (const Page* page : pages) {
    const PageHeader header = make_page_header(page->key, page->bytes, options_.secret);
    std::string value(reinterpret_cast<const char*>(&header), sizeof header);
    value.append(reinterpret_cast<const char*>(page->bytes.data()), page->bytes.size());
    HOCKET_TRY_VOID(watch(link.send({"SET", name_of(page->key), value, "EX", kept})));
  }
  std::optional<Error> refused;
  for (const Page* page : pages) {
    HOCKET_TRY(const RedisReply reply, watch(link.receive()));
    if (reply.kind == RedisReply::Kind::text)
      note(page->key);
    else if (!refused)
      refused = refusal(name_, reply);
  }
  if (refused) return fail(*std::move(refused));
  return {};
}

Result<size_t> RedisStore::put_at(RedisLink& link, std::span<const Page> pages) {
  std::vector<PageKey> keys;
  for (const Page& page : pages) keys.push_back(page.key);
  HOCKET_TRY(const std::vector<bool> there, watch(exist_at(link, keys)));
  std::vector<const Page*> lacking;
  size_t num_bytes = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (there[i]) {
      note(keys[i]);
      continue;
    }
    lacking.push_back(&pages[i]);
    num_bytes += pages[i].bytes.size();
    if (num_bytes < kMaxAheadBytes && lacking.size() < kMaxAhead) continue;
    HOCKET_TRY_VOID(put_some(link, lacking));
    lacking.clear();
    num_bytes = 0;
  }
  if (!lacking.empty()) HOCKET_TRY_VOID(put_some(link, lacking));
  return pages.size();
}

Result<size_t> RedisStore::put(std::span<const Page> pages, const std::function<bool()>& is_over) {
  HOCKET_TRY(Link link, watch(take_link()));
  link->watch(is_over);
  Result<size_t> done = put_at(*link, pages);
  link->watch([] { return false; });
  give_back(std::move(link));
  return done;
}

Result<std::string> RedisStore::describe() {
  HOCKET_TRY(Link link, watch(take_link()));
  HOCKET_TRY_VOID(watch(link->send({"INFO"})));
  HOCKET_TRY(const RedisReply reply, watch(link->receive(size_t{1} << 20)));
  give_back(std::move(link));
  if (reply.kind != RedisReply::Kind::text)
    return watch(Result<std::string>(fail(refusal(name_, reply))));
  const std::string_view info = reply.text;
  const auto one_of = [&](std::string_view first, std::string_view second) {
    const std::string_view value = info_of(info, first);
    return value.empty() ? info_of(info, second) : value;
  };
  const std::string_view limit = info_of(info, "maxmemory_human");
  return in_one_line(fmt::format("{} {}, {} used of {}, {}", options_.address.text(),
                                 one_of("valkey_version", "redis_version"),
                                 info_of(info, "used_memory_human"),
                                 limit.empty() || limit == "0B" ? "all memory there is" : limit,
                                 info_of(info, "maxmemory_policy")));
}

}  // namespace hocket
