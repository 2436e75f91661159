// hocket top: what a server does, again and again; once where its output is no terminal.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/commands.h"
#include "apps/flags.h"
#include "base/clock.h"
#include "bench/http_client.h"
#include "bench/top_view.h"

namespace hocket {
namespace {

struct TopFlags {
  BlockingHttpClient::Options server{.timeout_s = 5};
  double interval_s = 2;
  bool once = false;
};

Result<bool> parse(TopFlags& f, const Arguments& arguments) {
  HOCKET_TRY(const bool goes_on,
             parse_flags({.command = "top",
                          .about = "a live view of a server; one look where the output is a file",
                          .groups = {{"Server",
                                      {{"host", &f.server.host, "of the server", ""},
                                       {"port", &f.server.port, "of the server", ""},
                                       {"api-key", &f.server.api_key, "of the server", ""}}},
                                     {"View",
                                      {{"interval", &f.interval_s, "seconds between looks", ""},
                                       {"once", &f.once, "one look, and the end", ""}}}},
                          .takes_config = false},
                         arguments));
  if (goes_on && !(f.interval_s >= 0.1))
    return fail(ErrorCode::bad_value, "--interval is 0.1 seconds at least");
  return goes_on;
}

Result<std::string> ask(BlockingHttpClient& client, std::string_view path) {
  HOCKET_TRY(HttpAnswer answer, client.get(path));
  if (answer.status == 401)
    return fail(
        error(ErrorCode::unauthorized, "{} asks for a key", path).with_fix("--api-key KEY"));
  if (answer.status != 200) return fail(ErrorCode::io, "{} answers {}", path, answer.status);
  return std::move(answer.body);
}

Result<std::string> title_of(BlockingHttpClient& client, const TopFlags& f) {
  HOCKET_TRY(const std::string body, ask(client, "/get_model_info"));
  const auto info = nlohmann::json::parse(body, nullptr, false);
  if (!info.is_object()) return fail(ErrorCode::io, "/get_model_info answers no object");
  const auto text = [&](const char* key) {
    const auto found = info.find(key);
    return found != info.end() && found->is_string() ? found->get<std::string>() : "";
  };
  return fmt::format("http://{}:{} | {}", f.server.host, f.server.port, text("served_model_name"));
}

int columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

Result<void> watch(const TopFlags& f) {
  BlockingHttpClient client(f.server);
  const bool live = isatty(STDOUT_FILENO) == 1 && !f.once;
  std::optional<std::string> title;
  MetricView before({});
  TimePoint last{};
  while (true) {
    const auto look = [&]() -> Result<std::string> {
      if (!title) {
        HOCKET_TRY(title, title_of(client, f));
      }
      HOCKET_TRY(const std::string text, ask(client, "/metrics"));
      HOCKET_TRY(auto samples, parse_metrics(text));
      MetricView now(std::move(samples));
      const TimePoint at = RealClock().now();
      const TopFrame frame{.title = *title,
                           .seconds = last == TimePoint{} ? 0 : to_seconds(at - last),
                           .columns = columns(),
                           .style = live ? TopFrame::Style::color : TopFrame::Style::plain};
      std::string page = draw_top(now, before, frame);
      before = std::move(now);
      last = at;
      return page;
    };
    Result<std::string> page = look();
    if (!live) {
      if (!page) return fail(std::move(page).error());
      fmt::print("{}", *page);
      return {};
    }
    // A server that is away may come back.
    fmt::print("\x1b[H\x1b[2J{}\n", page ? *page : describe(page.error()));
    std::fflush(stdout);
    std::this_thread::sleep_for(from_seconds(f.interval_s));
  }
}

}  // namespace

int top(const Arguments& arguments) {
  TopFlags flags;
  const Result<bool> goes_on = parse(flags, arguments);
  if (!goes_on) return report(goes_on.error());
  if (!*goes_on) return 0;
  const Result<void> done = watch(flags);
  return done ? 0 : report(done.error());
}

}  // namespace hocket
