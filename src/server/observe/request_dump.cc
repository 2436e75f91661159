#include "server/observe/request_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"
#include "core/setting_ranges.h"
#include "core/version.h"
#include "server/generation/answer.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxWaiting = 1 << 20;
constexpr std::string_view kBegins = "hocket-requests-", kEnds = ".jsonl";

Duration since_1970() {
  return std::chrono::system_clock::now().time_since_epoch();
}

double rounded(double ms) {
  return std::round(ms * 1e3) / 1e3;
}

Error io_error(const std::string& path) {
  const int why = errno;
  return error(ErrorCode::io, "{} cannot be written: {}", path, std::strerror(why))
      .with_fix(why == EFBIG
                    ? "a smaller --dump-requests-bytes, or a larger limit of a file (ulimit -f)"
                    : "another --dump-requests-folder, or room on that disk");
}

Json trace_part(const RequestRecord& record, const ChoiceRecord& choice, Duration started) {
  const PromptRecord& prompt = record.prompts[static_cast<size_t>(choice.prompt)];
  Json ids = Json::array(), lengths = Json::array();
  for (const TokenBlock& block : prompt.blocks) {
    ids.push_back(block.id);
    lengths.push_back(block.len);
  }
  const double at_ms = static_cast<double>(record.unix_ns(record.received) - started.count()) / 1e6;
  return {{"timestamp", std::max(0.0, rounded(at_ms))},
          {"input_length", std::max(1, prompt.num_tokens)},
          {"output_length", std::max(1, choice.generated_tokens)},
          {"hash_ids", std::move(ids)},
          {"hash_lengths", std::move(lengths)},
          {"cached_tokens", choice.cached_tokens},
          {"ttft_ms", ms_between(record.received, record.first_token)},
          {"e2e_ms", ms_between(record.received, choice.times.finished)}};
}

}  // namespace

std::string dump_lines(const RequestRecord& record, Duration dump_started) {
  std::string lines;
  for (size_t i = 0; i < record.choices.size(); ++i) {
    const ChoiceRecord& choice = record.choices[i];
    Json line = trace_part(record, choice, dump_started);
    line["status"] = record.status;
    line["finish"] = finish_reason_json(choice.finish);
    line["ids_hash"] = fmt::format("{:016x}", choice.ids_hash);
    line["id"] = record.id;
    line["choice"] = i;
    if (i == 0) {
      line["path"] = record.path;
      line["stream"] = record.stream;
      if (record.prompts.size() == 1)
        line["seed"] = static_cast<int64_t>(record.prompts.front().sampling.seed);
      line["body"] = parse_bounded_json(record.body);
    }
    lines += to_text(line);
    lines += '\n';
  }
  return lines;
}

RequestDump::RequestDump(Options options, DumpCounts& counts)
    : options_(std::move(options)), counts_(counts), started_(since_1970()) {}

RequestDump::~RequestDump() {
  flush();
  close_file();
}

Result<std::unique_ptr<RequestDump>> RequestDump::create(Options options, DumpCounts& counts) {
  HOCKET_TRY_VOID(check_setting("dump-requests-bytes", options.bytes_of_file));
  HOCKET_TRY_VOID(check_setting("dump-requests-files", options.num_files));
  std::error_code ignored;
  fs::create_directories(options.folder, ignored);  // if this fails, begin_file() fails too
  std::unique_ptr<RequestDump> made(new RequestDump(std::move(options), counts));
  HOCKET_TRY_VOID(made->begin_file());
  return made;
}

Result<void> RequestDump::begin_file() {
  HOCKET_TRY_VOID(write());
  close_file();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(started_).count();
  const std::string path = fmt::format("{}/{}{}-{}-{:06}{}", options_.folder, kBegins, seconds,
                                       getpid(), num_begun_++, kEnds);
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file_ < 0) return fail(io_error(path));
  bytes_ = requests_ = whole_bytes_ = 0;
  Json head = {{"hocket_log", 1}, {"hocket_dump", 1}, {"version", kVersion}, {"started", seconds}};
  if (!options_.scheduler.is_null()) head["scheduler"] = options_.scheduler;
  waiting_ = to_text(head) + '\n';
  // An old file is deleted only after the next one could be written.
  if (auto written = write(); !written) {
    unlink(path.c_str());
    close_file();
    return written;
  }
  forget_old_files();
  return {};
}

void RequestDump::close_file() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

// Deletes the oldest files; their names begin with the time.
void RequestDump::forget_old_files() const {
  std::vector<std::string> names;
  std::error_code stop;
  for (fs::directory_iterator at(options_.folder, stop), end; !stop && at != end;
       at.increment(stop))
    if (std::string name = at->path().filename().string();
        name.starts_with(kBegins) && name.ends_with(kEnds))
      names.push_back(std::move(name));
  std::ranges::sort(names);
  std::error_code ignored;
  for (size_t i = 0; i + static_cast<size_t>(options_.num_files) < names.size(); ++i)
    fs::remove(fs::path(options_.folder) / names[i], ignored);
}

bool RequestDump::takes(const RequestRecord& record) {
  return !record.choices.empty() && record.forwarded_to.empty();
}

void RequestDump::add(const RequestRecord& record) {
  if (record.body.empty() || !can_write()) {
    ++counts_.lost;
    return;
  }
  const std::string lines = dump_lines(record, started_);
  const bool full = bytes_ > 0 && bytes_ + std::ssize(lines) > options_.bytes_of_file;
  if (full || (options_.requests_of_file > 0 && requests_ >= options_.requests_of_file)) {
    if (const auto begun = begin_file(); !begun) {
      ++counts_.lost;
      return pause(begun.error());
    }
  }
  waiting_ += lines;
  bytes_ += std::ssize(lines);
  ++requests_;
  ++num_waiting_;
  if (waiting_.size() >= kMaxWaiting) flush();
}

void RequestDump::flush() {
  if (const auto written = write(); !written) pause(written.error());
}

void RequestDump::pause(const Error& why) {
  close_file();
  retry_at_ = RealClock().now() + options_.retry_after;
  if (std::exchange(is_paused_, true)) return;
  log::warning("dump: requests are lost, and it is tried again every {:.0f} s: {}",
               to_seconds(options_.retry_after), describe(why));
}

// Ends a pause if its time is over and a file can be begun. Returns false while it lasts.
bool RequestDump::can_write() {
  if (!is_paused_) return true;
  if (RealClock().now() < retry_at_) return false;
  if (const auto begun = begin_file(); !begun) {
    pause(begun.error());
    return false;
  }
  is_paused_ = false;
  log::info("dump: requests are kept again in {}", options_.folder);
  return true;
}

// Writes waiting_. After an error the file is cut to its last whole line, so that it can be read.
Result<void> RequestDump::write() {
  const std::string text = std::exchange(waiting_, {});
  const uint64_t num_requests = std::exchange(num_waiting_, 0);
  for (std::string_view remaining = text; !remaining.empty() && file_ >= 0;) {
    const ssize_t n = ::write(file_, remaining.data(), remaining.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Error why = io_error(options_.folder);
      counts_.lost += num_requests;
      static_cast<void>(!ftruncate(file_, whole_bytes_));
      return fail(std::move(why));
    }
    remaining.remove_prefix(static_cast<size_t>(n));
  }
  whole_bytes_ += std::ssize(text);
  counts_.written += num_requests;
  return {};
}

}  // namespace hocket
