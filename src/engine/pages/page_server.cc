#include "engine/pages/page_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kSignOfLife = std::chrono::seconds(1);
constexpr size_t kRefusalBytes = 512;  // limit of an error's text, for the client
constexpr int kAcceptWaitMs = 100;
// The pause after the process ran out of descriptors, memory or threads.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr Duration kEndWait = std::chrono::milliseconds(2);  // for one of kMaxClients to end

}  // namespace

// The talk with one client.   Thread: its own.
class PageConnection {
 public:
  PageConnection(PageServer& server, PageServer::PageClient& client, Fd socket)
      : server_(server),
        client_(client),
        options_(server.options_),
        socket_(socket.get()),
        link_(std::move(socket), "a service that asks for pages", [&server, &client] {
          return server.stopping_ || client.state == PageServer::PageClientState::dropped;
        }) {
    show_socket(socket_);
  }
  ~PageConnection() {
    show_socket(-1);
    if (is_served_) --server_.num_served_;
    if (prefill_) options_.abort(*prefill_);
    if (prefill_) options_.prefills->end(*prefill_);
    give_back_room();
  }

  Result<void> run() {
    HOCKET_TRY_VOID(link_.server_handshake(options_.token, options_.tls));
    HOCKET_TRY(const PageLink::Frame first, link_.receive(PageLink::kSilence, sizeof(PageKey)));
    if (first.type != PageFrame::form || first.payload.size() != sizeof(PageKey)) return stray();
    PageKey form{};
    std::memcpy(form.data(), first.payload.data(), form.size());
    const std::optional<int> page_tokens = options_.forms->size_of(form);
    if (!page_tokens) return link_.send(PageFrame::no, "its pages are of another model or form");
    client_tokens_ = *page_tokens;
    if (!admit()) {
      options_.counts->add(&ServedCounters::served_refused_total);
      return link_.send(PageFrame::busy, {});
    }
    const auto size = static_cast<uint32_t>(options_.forms->page_tokens());
    HOCKET_TRY_VOID(link_.send(PageFrame::ok, {}, std::as_bytes(std::span(&size, 1))));
    while (true) {
      HOCKET_TRY(const PageLink::Frame frame,
                 link_.receive(PageServer::kIdle, PageLink::kMaxAskedBytes));
      HOCKET_TRY_VOID(answer(frame));
    }
  }

 private:
  // A buffer of the server, until it is destroyed.
  class Loan {
   public:
    Loan(PageBuffers& buffers, PageBuffers::Id id) : buffers_(buffers), id_(id) {}
    ~Loan() { HOCKET_CHECK(buffers_.free.push(PageBuffers::Id{id_})); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    std::span<std::byte> first(size_t size) const { return buffers_.of(id_).first(size); }

   private:
    PageBuffers& buffers_;
    const PageBuffers::Id id_;
  };
  using BufferLoan = std::unique_ptr<Loan>;

  // The server may shut the socket down while it is here.
  void show_socket(int socket) {
    const MutexLock lock(client_.mutex);
    client_.socket = socket;
  }
  // The client has shown the token and counts as served from here on, unless too many are.
  bool admit() {
    auto state = PageServer::PageClientState::stranger;
    is_served_ = server_.num_served_.fetch_add(1) < PageServer::kMaxConnections &&
                 client_.state.compare_exchange_strong(state, PageServer::PageClientState::served);
    if (!is_served_) --server_.num_served_;
    return is_served_;
  }
  static std::unexpected<Error> stray() {
    return fail(ErrorCode::io, "it sent an unexpected message");
  }
  Result<void> answer(const PageLink::Frame& frame) {
    switch (frame.type) {
      case PageFrame::exist:
        return exist(frame.payload);
      case PageFrame::prefill:
        return prefill(frame.payload);
      case PageFrame::get:
        return get(frame.payload);
      default:
        return stray();
    }
  }
  static Result<std::vector<PageKey>> keys_of(std::string_view text) {
    const size_t count = text.size() / sizeof(PageKey);
    if (text.size() % sizeof(PageKey) != 0 || count == 0 || count > PageLink::kMaxKeys)
      return stray();
    std::vector<PageKey> keys(count);
    std::memcpy(keys.data(), text.data(), text.size());
    return keys;
  }

  Result<void> exist(std::string_view payload) {
    HOCKET_TRY(const std::vector<PageKey> keys, keys_of(payload));
    std::string there;
    HOCKET_TRY_VOID(wait_for_prefill());
    HOCKET_TRY(const std::vector<bool> found, options_.files->exist(keys));
    for (const bool one : found) there.push_back(one ? 1 : 0);
    return link_.send(PageFrame::exist, there);
  }

  Result<void> prefill(std::string_view payload) {
    CacheNamespace name_space;
    if (payload.size() <= sizeof name_space || prefill_ ||
        (payload.size() - sizeof name_space) % sizeof(TokenId) != 0)
      return stray();
    if (!options_.role->takes_prompts())
      return link_.send(PageFrame::no, fmt::format("its --disaggregation-mode is {}",
                                                   disaggregation_name(options_.role->mode())));
    // The client gets the pages from there alone.
    if (!options_.files->takes_writes()) {
      options_.counts->add(&ServedCounters::served_refused_total);
      return link_.send(PageFrame::no, "its folder is full or away, and takes no pages now");
    }
    if (!has_room_for((payload.size() - sizeof name_space) / sizeof(TokenId))) {
      options_.counts->add(&ServedCounters::served_refused_total);
      return link_.send(PageFrame::no,
                        "its folder is too small for the pages of the prompt beside those of "
                        "others, by --kv-cache-dir-gb");
    }
    std::memcpy(&name_space, payload.data(), sizeof name_space);
    payload.remove_prefix(sizeof name_space);
    std::vector<TokenId> tokens(payload.size() / sizeof(TokenId), TokenId{0});
    std::memcpy(tokens.data(), payload.data(), payload.size());
    auto id = options_.submit(
        {.name_space = name_space, .tokens = std::move(tokens), .page_tokens = client_tokens_});
    if (!id) {
      give_back_room();
      options_.counts->add(&ServedCounters::served_refused_total);
      return link_.send(PageFrame::no, id.error().message.substr(0, kRefusalBytes));
    }
    prefill_ = *id;
    options_.counts->add(&ServedCounters::served_prefills_total);
    return link_.send(PageFrame::ok, {});
  }

  // Reserves room in the folder for the pages of a prompt and the record behind them, until the
  // connection ends or the prompt is refused.
  bool has_room_for(size_t num_tokens) {
    const auto num_pages = static_cast<int64_t>(num_tokens) / options_.forms->page_tokens();
    prompt_bytes_ = num_pages * options_.page_bytes + options_.state_bytes;
    const int64_t all = server_.prompt_bytes_.fetch_add(prompt_bytes_) + prompt_bytes_;
    if (all <= options_.files->max_bytes() / PageServer::kShareOfFolder) return true;
    give_back_room();
    return false;
  }
  void give_back_room() { server_.prompt_bytes_ -= std::exchange(prompt_bytes_, 0); }

  Result<void> get(std::string_view payload) {
    if (payload.empty()) return stray();
    const auto kind = static_cast<uint8_t>(payload.front());
    HOCKET_TRY(const std::vector<PageKey> keys, keys_of(payload.substr(1)));
    if (kind > 1) return stray();
    const int64_t size = kind == 0 ? options_.page_bytes : options_.state_bytes;
    if (size == 0) return stray();
    for (const PageKey& key : keys) {
      HOCKET_TRY(const BufferLoan loan, find(key, static_cast<size_t>(size)));
      if (!loan) return link_.send(PageFrame::absent, {});
      options_.counts->add(&ServedCounters::served_pages_total);
      const std::string_view name(reinterpret_cast<const char*>(key.data()), key.size());
      HOCKET_TRY_VOID(link_.send(PageFrame::page, name, loan->first(static_cast<size_t>(size))));
    }
    return {};
  }

  // A prompt that is being computed may still add pages and states.
  Result<void> wait_for_prefill() {
    const TimePoint since = clock_.now();
    while (is_computing() && !has_stalled(since)) HOCKET_TRY_VOID(wait());
    return {};
  }
  // Returns true if no page was written for long, for this client or for those before it in line.
  bool has_stalled(TimePoint since) const {
    return clock_.now() > std::max(since, options_.prefills->last_progress()) + options_.max_wait;
  }
  bool is_computing() const { return prefill_ && options_.prefills->is_watched(*prefill_); }
  // Waits a moment; says every second that this service is there.
  Result<void> wait() {
    if (link_.is_readable() || server_.stopping_) return stray();
    if (clock_.now() - said_ > kSignOfLife) {
      HOCKET_TRY_VOID(link_.send(PageFrame::waiting, {}));
      said_ = clock_.now();
    }
    options_.prefills->wait(std::chrono::milliseconds(20));
    return {};
  }

  // Waits for a page that a prompt's computing is about to add, and for a buffer while others use
  // all. Returns null if the page is absent. The disk is asked at first and at the end, and between
  // only for a page that was written: others wait for the threads that read and write files, too.
  Result<BufferLoan> find(const PageKey& key, size_t size) {
    const TimePoint since = clock_.now();
    for (bool is_first = true;;) {
      // Asks in this order, so that a page which is added between the two is found.
      const bool is_last = !is_computing() || has_stalled(since) || options_.prefills->is_lost(key);
      const bool may_be_there = is_first || is_last || options_.files->has(key);
      if (BufferLoan loan = may_be_there ? borrow() : nullptr) {
        is_first = false;
        const Result<bool> found = options_.files->get(key, loan->first(size));
        if (found && *found) return loan;
        if (!found || is_last) return nullptr;
      }
      HOCKET_TRY_VOID(wait());
    }
  }
  BufferLoan borrow() {
    const auto id = server_.buffers_.free.pop();
    return id ? std::make_unique<Loan>(server_.buffers_, *id) : nullptr;
  }

  PageServer& server_;
  PageServer::PageClient& client_;
  const PageServer::Options& options_;
  const RealClock clock_;
  const int socket_;  // link_ owns it
  PageLink link_;
  TimePoint said_{};
  bool is_served_ = false;    // PageServer::num_served_ counts it
  int client_tokens_ = 0;     // the size of the client's pages
  int64_t prompt_bytes_ = 0;  // in PageServer::prompt_bytes_
  std::optional<RequestId> prefill_;
};

PageServer::PageServer(Options options, Fd listener, Buffer memory, size_t num_buffers)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      buffers_(std::move(memory), num_buffers) {}

Result<std::unique_ptr<PageServer>> PageServer::create(Options options) {
  auto listener = listen_on(options.address);
  if (!listener) {
    Error why = std::move(listener.error());
    why.message = fmt::format("pages cannot be offered: {}", why.message);
    why.fix = "--kv-cache-listen names an address of this machine and a free port";
    why.param = "kv-cache-listen";
    return fail(std::move(why));
  }
  const TierBuffers sizes{.page_bytes = options.page_bytes, .record_bytes = options.state_bytes};
  HOCKET_TRY(Buffer memory, Buffer::allocate(sizes.num_served() * sizes.largest_bytes()));
  return std::unique_ptr<PageServer>(new PageServer(std::move(options), *std::move(listener),
                                                    std::move(memory),
                                                    static_cast<size_t>(sizes.num_served())));
}

PageServer::~PageServer() {
  stop();
}

void PageServer::start() {
  thread_ = Thread({.name = "kv_serve"}, [this] { run(); });
}

void PageServer::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void PageServer::run() {
  while (!stopping_) {
    clients_.remove_if([](const PageClient& one) { return one.done.load(); });
    if (clients_.size() < kMaxClients)
      accept_one();
    else
      std::this_thread::sleep_for(kEndWait);
  }
  clients_.clear();  // joins their threads, whose waits end
}

void PageServer::accept_one() {
  pollfd one{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  if (poll(&one, 1, kAcceptWaitMs) <= 0) return;
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) return start_client(std::move(socket));
  // The listener stays ready and would keep this thread awake.
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    std::this_thread::sleep_for(kAcceptPause);
}

// Without a thread for it the connection ends, which the client sees.
void PageServer::start_client(Fd socket) {
  drop_oldest_stranger();
  try {
    std::list<PageClient> started;
    PageClient& client = started.emplace_back();
    client.thread =
        Thread({.name = "kv_client"}, [this, &client, socket = std::move(socket)]() mutable {
          answer(client, std::move(socket));
          client.done = true;
        });
    clients_.splice(clients_.end(), started);
  } catch (const std::exception&) {
    options_.counts->add(&ServedCounters::served_refused_total);
    std::this_thread::sleep_for(kAcceptPause);
  }
}

// Makes room for a stranger.
void PageServer::drop_oldest_stranger() {
  const auto is_stranger = [](const PageClient& one) {
    return one.state == PageClientState::stranger && !one.done;
  };
  if (std::ranges::count_if(clients_, is_stranger) < kMaxStrangers) return;
  const auto oldest = std::ranges::find_if(clients_, is_stranger);
  if (oldest == clients_.end()) return;
  auto state = PageClientState::stranger;
  if (!oldest->state.compare_exchange_strong(state, PageClientState::dropped)) return;
  options_.counts->add(&ServedCounters::served_refused_total);
  const MutexLock lock(oldest->mutex);
  if (oldest->socket >= 0) shutdown(oldest->socket, SHUT_RDWR);  // its wait ends at once
}

void PageServer::answer(PageClient& client, Fd socket) {
  try {
    PageConnection talk(*this, client, std::move(socket));
    // Every talk ends so; the client says why, if it is a fault.
    const auto end = talk.run();
    if (end || end.error().code != ErrorCode::unauthorized) return;
    options_.counts->add(&ServedCounters::served_refused_total);
    if (const auto num_more = warnings_.admit(RealClock().now()))
      log::warning("pages: {} ({} more since the last such line). To fix it: {}",
                   end.error().message, *num_more, end.error().fix);
  } catch (const std::exception&) {  // such as no memory for what the client sent
    options_.counts->add(&ServedCounters::served_refused_total);
  }
}

}  // namespace hocket
