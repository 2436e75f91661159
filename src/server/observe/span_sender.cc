#include "server/observe/span_sender.h"

#include <thread>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

constexpr uint16_t kDefaultPort = 4318;
constexpr const char* kDefaultPath = "/v1/traces";
constexpr Duration kAnswerPatience = std::chrono::seconds(10);
constexpr Duration kComplainEvery = std::chrono::minutes(1);
constexpr Duration kDeliveryPoll = std::chrono::milliseconds(5);

// True for statuses after which OTLP/HTTP, "Failures", allows a retry. 0: there was no answer.
bool may_try_again(int status) {
  return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

// The result of one call. The client's thread fills it; it is read when `over` is set.
struct SpanSender::Delivery final : HttpSink {
  bool head(int answered, HttpHeaders&&) override {
    status = answered;
    return true;
  }
  bool body(std::string_view) override { return true; }
  void end(HttpEnd how, const std::string& what) override {
    if (how != HttpEnd::whole) status = 0;
    why = what;
    over = true;
  }

  int status = 0;
  std::string why;
  std::atomic<bool> over{false};
};

Result<Collector> parse_collector(std::string_view url) {
  const auto refuse = [&](std::string_view why, std::string fix) {
    return fail(error(ErrorCode::bad_value, "--otlp-traces-endpoint {}: {}", url, why)
                    .with_fix(std::move(fix))
                    .with_param("otlp-traces-endpoint"));
  };
  const char* const form = "http://HOST:4318/v1/traces";
  if (url.starts_with("https://"))
    return refuse("TLS is not spoken to collectors",
                  "a collector on this host, at http://localhost:4318, that sends on over TLS");
  const std::string_view all = url;
  std::string_view rest = url;
  if (rest.starts_with("http://"))
    rest.remove_prefix(7);
  else if (all.find("://") != all.npos)
    return refuse("this is not http", form);
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view place = rest.substr(0, slash), path = rest.substr(slash);
  if (place.ends_with(":4317"))
    return refuse("4317 is where collectors take gRPC", "port 4318 takes HTTP");
  const bool has_port = place.rfind(':') != place.npos && !place.ends_with(']');
  auto address =
      parse_host_port(has_port ? std::string(place) : fmt::format("{}:{}", place, kDefaultPort));
  if (place.empty() || !address) return refuse("this is no address", form);
  return Collector{*std::move(address), path.size() <= 1 ? kDefaultPath : std::string(path)};
}

Result<std::unique_ptr<SpanSender>> SpanSender::create(Options options) {
  HOCKET_TRY(Collector collector, parse_collector(options.endpoint));
  return std::unique_ptr<SpanSender>(new SpanSender(std::move(options), std::move(collector)));
}

SpanSender::SpanSender(Options options, Collector collector)
    : options_(std::move(options)),
      collector_(std::move(collector)),
      source_{options_.model, options_.instance},
      client_({.max_calls = 2, .thread_name = "traces"}) {}

SpanSender::~SpanSender() {
  client_.stop();
}

void SpanSender::add(const RequestRecord& record) {
  std::vector<std::string> spans = spans_of(record);
  if (waiting_.size() + spans.size() > options_.max_spans)
    return lose(spans.size(), "too many wait");
  if (waiting_.empty()) first_waits_ = RealClock().now();
  std::ranges::move(spans, std::back_inserter(waiting_));
  tick();
}

void SpanSender::tick() {
  settle();
  const TimePoint now = RealClock().now();
  if (under_way_ != nullptr) return;
  if (batch_.empty()) {
    const bool due = finishing_ || waiting_.size() >= options_.batch_spans ||
                     now - first_waits_ >= options_.batch_wait;
    if (waiting_.empty() || !due) return;
    while (!waiting_.empty() && batch_.size() < options_.batch_spans) {
      batch_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    first_waits_ = now;
    tries_ = 0;
  } else if (now < next_try_) {
    return;
  }
  send();
}

void SpanSender::send() {
  ++tries_;
  under_way_ = std::make_shared<Delivery>();
  // The name is looked up for each batch, since collectors move. It may take a while, but only this
  // thread waits.
  const auto found = resolve(collector_.address);
  if (!found || found->empty()) {
    under_way_->end(HttpEnd::not_connected, found ? "no address" : found.error().message);
    return settle();
  }
  HttpCall call{.to = found->front(),
                .target = collector_.path,
                .body = export_request(source_, batch_),
                .headers = {{"Content-Type", std::string(kJsonType)}, {"User-Agent", "hocket"}},
                .max_time = kAnswerPatience};
  if (client_.start(std::move(call), under_way_) == 0) {
    under_way_->end(HttpEnd::cancelled, "the server is shutting down");
    settle();
  }
}

void SpanSender::settle() {
  if (under_way_ == nullptr || !under_way_->over) return;
  const auto delivery = std::exchange(under_way_, nullptr);
  if (delivery->status >= 200 && delivery->status < 300) {
    num_sent_ += batch_.size();
    batch_.clear();
    return;
  }
  if (may_try_again(delivery->status) && tries_ < options_.max_tries && !finishing_) {
    next_try_ = RealClock().now() + options_.first_retry * (1 << (tries_ - 1));
    return;
  }
  lose(batch_.size(),
       delivery->status == 0 ? delivery->why : fmt::format("it answered {}", delivery->status));
  batch_.clear();
}

void SpanSender::lose(size_t num_spans, const std::string& why) {
  num_lost_ += num_spans;
  const TimePoint now = RealClock().now();
  if (complained_ != TimePoint{} && now - complained_ < kComplainEvery) return;
  complained_ = now;
  log::warning("traces: {} spans are lost, {} since the start; {}: {}", num_spans, num_lost_.load(),
               to_text(collector_.address), why);
}

void SpanSender::finish(Duration patience) {
  finishing_ = true;
  next_try_ = {};
  const TimePoint deadline = RealClock().now() + patience;
  for (tick(); !waiting_.empty() || !batch_.empty(); tick()) {
    if (RealClock().now() > deadline) break;
    std::this_thread::sleep_for(kDeliveryPoll);
  }
  if (const size_t remaining = waiting_.size() + batch_.size(); remaining > 0)
    lose(remaining, "the server is shutting down");
}

}  // namespace hocket
