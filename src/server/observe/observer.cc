#include "server/observe/observer.h"

#include <chrono>
#include <exception>
#include <utility>

#include "base/black_box.h"
#include "base/log.h"
#include "server/access/admin_folder.h"

namespace hocket {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);
constexpr Duration kLastSpans = std::chrono::seconds(2);
constexpr int64_t kMaxDumpedBody = 4 << 20;

Duration steady_to_unix() {
  return std::chrono::system_clock::now().time_since_epoch() - RealClock().now().time_since_epoch();
}

}  // namespace

Observer::Observer(Options options) : options_(std::move(options)) {}

Result<std::unique_ptr<Observer>> Observer::create(Options options) {
  std::unique_ptr<Observer> made(new Observer(std::move(options)));
  const ObserveSettings& settings = made->options_.settings;
  HOCKET_TRY(made->level_, parse_request_log_level(settings.log_requests_level));
  made->logs_ = settings.log_requests;
  if (settings.enable_trace) {
    HOCKET_TRY(made->spans_, SpanSender::create({.endpoint = settings.otlp_traces_endpoint,
                                                 .model = made->options_.model,
                                                 .instance = made->options_.instance}));
    log::info("traces: spans of requests go to {}", settings.otlp_traces_endpoint);
  }
  if (settings.log_requests && made->level_ >= RequestLogLevel::beginnings)
    log::warning(
        "requests: prompts and answers are logged; --log-requests-level 1 leaves them out");
  if (!settings.dump_requests_folder.empty())
    HOCKET_TRY_VOID(made->set_dump(settings.dump_requests_folder, 0));
  made->thread_ = Thread({.name = "observe"}, [o = made.get()] { o->run(); });
  return made;
}

Observer::~Observer() {
  stop();
}

std::shared_ptr<RequestRecorder> Observer::begin(const HttpRequest& request, const Api* api,
                                                 TimePoint arrived) {
  const bool texts = level_.load() >= RequestLogLevel::beginnings;
  ObserverOutputs outputs{.log = logs_, .texts = logs_ && texts, .dump = dumps_};
  const auto parent = spans_ ? parse_traceparent(request.header("traceparent")) : std::nullopt;
  outputs.trace = spans_ != nullptr && (!parent || parent->sampled);
  outputs.black_box = black_box::is_open();
  if (!outputs.any()) return nullptr;
  RequestRecord record;
  record.path = request.path;
  if (api != nullptr) record.operation = api->operation;
  record.model = options_.model;
  record.to_unix = steady_to_unix();
  record.received = arrived;
  if (outputs.trace) record.trace = parent ? span_under(*parent) : begin_trace();
  if (outputs.trace && parent) record.parent_span = parent->span;
  if (outputs.dump && std::ssize(request.body) <= kMaxDumpedBody)
    record.body = record.share.keep(inbox_.budget, request.body);
  return std::make_shared<RequestRecorder>(inbox_, outputs, std::move(record));
}

void Observer::run() {
  const auto guarded = [this](const auto& work) {
    try {
      work();
    } catch (const std::exception&) {
      ++inbox_.num_lost;
    }
  };
  const auto flush = [this] {
    MutexLock lock(mutex_);
    if (dump_) dump_->flush();
  };
  const auto write_due = [&] {
    guarded(flush);
    if (spans_) guarded([this] { spans_->tick(); });
  };
  while (!stopping_) {
    auto note = inbox_.notes.wait_pop(kTick);
    while (note) {
      take_or_lose(*note);
      note = inbox_.notes.pop();
    }
    write_due();
  }
  while (auto note = inbox_.notes.pop()) take_or_lose(*note);
  write_due();
  if (spans_) guarded([this] { spans_->finish(kLastSpans); });
}

// Catches exceptions of libraries, so that they cost one note and not the thread.
void Observer::take_or_lose(const RequestNote& note) {
  try {
    take(note);
  } catch (const std::exception&) {
    ++inbox_.num_lost;
  }
}

void Observer::take(const RequestNote& note) {
  const RequestRecord& record = note.record;
  if (logs_ && note.kind == RequestNote::Kind::began) log_began(record, level_);
  if (note.kind == RequestNote::Kind::began) return;
  if (logs_) log_ended(record, level_);
  if (record.trace) spans_->add(record);
  MutexLock lock(mutex_);
  if (dump_ == nullptr || !dump_->takes(record)) return;
  dump_->add(record);
}

Result<void> Observer::set_dump(const std::string& folder, int64_t requests_of_file) {
  std::unique_ptr<RequestDump> dump;
  const ObserveSettings& settings = options_.settings;
  if (!folder.empty()) {
    HOCKET_TRY(
        dump, RequestDump::create({.folder = folder,
                                   .bytes_of_file = settings.dump_requests_bytes,
                                   .requests_of_file = requests_of_file,
                                   .num_files = settings.dump_requests_files,
                                   .scheduler = options_.scheduler ? options_.scheduler() : Json()},
                                  dump_counts_));
    log::warning("requests: they are kept with their prompts in {}, {} files of {} MB at most",
                 folder, settings.dump_requests_files, settings.dump_requests_bytes >> 20);
  }
  MutexLock lock(mutex_);
  dump_ = std::move(dump);
  dump_folder_ = folder;
  dumps_ = dump_ != nullptr;
  return {};
}

Result<Json> Observer::configure(const Json& body) {
  Fields fields(body);
  bool logs = logs_;
  int level = static_cast<int>(level_.load());
  std::string folder, log_level;
  int64_t of_file = 0;
  fields.read("log_requests", logs);
  fields.read("log_requests_level", level, 0, 3);
  if (fields.read("log_level", log_level))
    if (const auto known = log::parse_level(log_level); !known)
      fields.fail_field("log_level", known.error().message);
  const bool sets_folder = fields.read("dump_requests_folder", folder);
  fields.read("dump_requests_threshold", of_file, 1, 1 << 30);
  fields.refuse("crash_dump_folder", "is set at the start", "--crash-dump-folder");
  fields.refuse("log_requests_format", "is that of all lines", "--log-format");
  HOCKET_TRY_VOID(fields.finish());
  if (sets_folder) {
    if (!folder.empty()) {
      HOCKET_TRY(folder,
                 admin_folder(options_.settings.admin_folder, folder, "dump_requests_folder"));
    }
    if (auto set = set_dump(folder, of_file); !set)
      return fail(error(ErrorCode::invalid_request, "{}", set.error().message)
                      .with_param("dump_requests_folder"));
  }
  if (!log_level.empty()) log::set_level(*log::parse_level(log_level));
  level_ = static_cast<RequestLogLevel>(level);
  logs_ = logs;
  Json now = settings_json();
  log::info("logging: {}", now.dump());
  return now;
}

Json Observer::settings_json() const {
  MutexLock lock(mutex_);
  return {{"log_requests", logs_.load()},
          {"log_requests_level", static_cast<int>(level_.load())},
          {"dump_requests_folder", dump_ ? Json(dump_folder_) : Json()}};
}

ObserverCounts Observer::counts() const {
  ObserverCounts counts{.notes_lost = inbox_.num_lost,
                        .requests_dumped = dump_counts_.written,
                        .requests_not_dumped = dump_counts_.lost};
  if (spans_) {
    counts.spans_sent = spans_->num_sent();
    counts.spans_lost = spans_->num_lost();
  }
  return counts;
}

void Observer::stop() {
  stopping_ = true;
  inbox_.notes.wake();
  if (thread_.joinable()) thread_.join();
}

}  // namespace hocket
