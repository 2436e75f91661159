// The fixture of tests of the service that gives pages to others. For tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_testing.h"
#include "engine/pages/connect.h"
#include "engine/pages/page_server.h"
#include "engine/pages/peer_source.h"

namespace hocket::testing {

class PageServerTest : public FolderTest {
 protected:
  static constexpr int64_t kPageBytes = TierBuffers::kBytes / TierBuffers::kMinServed;

  // Offers the page kKey.
  void start() {
    auto opened = PageFiles::open(folder_);
    ASSERT_TRUE(opened.has_value());
    page_files_ = *std::move(opened);
    const auto files = std::make_shared<FileStore>(page_files_, FileStore::calls_for(folder_));
    write(kKey);
    auto server = PageServer::create({.address = resolve({.host = "127.0.0.1"}).value().front(),
                                      .token = kToken,
                                      .forms = forms_,
                                      .page_bytes = kPageBytes,
                                      .files = files,
                                      .counts = counts_,
                                      .prefills = prefills_,
                                      .role = std::make_shared<PrefillRole>(PrefillRole::Options{
                                          .mode = Disaggregation::prefill, .can_prefill = true}),
                                      .submit = [this](const PrefillPrompt&) { return take(); },
                                      .abort = [](RequestId) {},
                                      .max_wait = max_wait_});
    ASSERT_TRUE(server.has_value());
    server_ = *std::move(server);
    server_->start();
  }
  void write(const PageKey& key) const {
    ASSERT_TRUE(page_files_->write(key, std::vector<std::byte>(kPageBytes, std::byte{5})));
  }
  // Takes a prompt, which is computed until a test ends that.
  Result<RequestId> take() const {
    if (refuses_) return fail(ErrorCode::queue_full, "too many requests wait");
    if (computes_) HOCKET_TRY_VOID(prefills_->begin(kPrompt));
    return kPrompt;
  }
  Fd connect() const {
    const SocketAddress address = server_->address();
    auto socket = connect_to_first({&address, 1}, PageLink::kConnect, [] { return false; });
    EXPECT_TRUE(socket.has_value());
    return *std::move(socket);
  }
  // Connects; `answer` is what the server says to that.
  std::unique_ptr<PageLink> introduce(PageFrame answer) const {
    auto link = std::make_unique<PageLink>(connect(), "the server", [] { return false; });
    EXPECT_TRUE(link->client_handshake(kToken));
    EXPECT_TRUE(link->send(PageFrame::form, text_of(forms_->form())));
    EXPECT_EQ(link->receive(PageLink::kSilence, 1024).value().type, answer);
    return link;
  }
  // Connects, and asks for the page without taking it.
  std::unique_ptr<PageLink> ask() const {
    auto link = introduce(PageFrame::ok);
    EXPECT_TRUE(link->send(PageFrame::get, std::string(1, '\0') + text_of(kKey)));
    return link;
  }
  std::unique_ptr<PeerSource> peer() const {
    return std::make_unique<PeerSource>(
        PeerSource::Options{.peers = {{.host = "127.0.0.1", .port = server_->address().port()}},
                            .use = PeerUse::prefill,
                            .token = kToken,
                            .forms = forms_});
  }
  static bool opens(PeerSource& peer, size_t num_tokens) {
    const std::vector<TokenId> prompt(num_tokens, TokenId{1});
    const auto pages =
        peer.open({.prompt = prompt, .computes = true, .is_over = [] { return false; }});
    return pages && *pages != nullptr;
  }
  static std::string text_of(const PageKey& key) {
    return {reinterpret_cast<const char*>(key.data()), key.size()};
  }
  static PageLink::Frame next(PageLink& link) {
    return link.receive(PageLink::kSilence, sizeof(PageKey) + kPageBytes).value();
  }

  // Returns true as soon as `holds` does.
  static bool comes_true(const std::function<bool()>& holds) {
    const TimePoint end = RealClock().now() + std::chrono::seconds(20);
    while (!holds() && RealClock().now() < end) std::this_thread::yield();
    return holds();
  }

  uint64_t num_refused() const { return counts_->get(&ServedCounters::served_refused_total); }

  static constexpr const char* kToken = "a token of sixteen";
  static constexpr PageKey kKey = {1};
  static constexpr RequestId kPrompt{1};
  const std::shared_ptr<const PageForms> forms_ = std::make_shared<const PageForms>(
      PageForms::Parts{.pages = {.layers = {{.num_heads = 1, .key_dim = 32, .value_dim = 32}}}});
  const std::shared_ptr<PageServer::Counts> counts_ = std::make_shared<PageServer::Counts>();
  std::atomic<bool> refuses_{false};
  bool computes_ = false;  // prompts that are taken, from start() on
  Duration max_wait_ = PageServer::kMaxWait;
  const std::shared_ptr<PrefillWatch> prefills_ = std::make_shared<PrefillWatch>();
  std::shared_ptr<PageFiles> page_files_;
  std::unique_ptr<PageServer> server_;
};

}  // namespace hocket::testing
