// hocket top: draws a server's metrics again and again; once if stdout is no terminal.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/live_screen.h"
#include "apps/server_address.h"
#include "base/clock.h"
#include "client/top_view.h"
#include "core/setting_ranges.h"

namespace hocket {
namespace {

struct TopFlags {
  BlockingHttpClient::Options server{.timeout_s = 5};
  std::string url;
  double interval_s = 2;
  bool once = false;
};

Result<bool> parse(TopFlags& f, const Arguments& arguments) {
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "top",
           .about = "show the load of a running server, live; once if the output is no terminal",
           .groups = {server_flags(f.server, f.url),
                      {"View",
                       {{"interval", &f.interval_s, "seconds between two updates", ""},
                        {"once", &f.once, "prints once and ends", ""}}}},
           .takes_config = false},
          arguments));
  if (go) HOCKET_TRY_VOID(check_number("interval", f.interval_s, {.low = 0.1, .high = 1e9}));
  HOCKET_TRY_VOID(take_url(f.url, f.server));
  return go;
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
  return fmt::format("{} | {}", text_of(f.server), text("served_model_name"));
}

// Fetches a server's metrics and draws them; keeps those of the previous call for differences.
class ServerView {
 public:
  explicit ServerView(const TopFlags& f) : flags_(f), client_(f.server) {}

  // Returns a page about the time since the previous call.
  Result<std::string> draw(TopFrame frame) {
    if (!title_) {
      HOCKET_TRY(title_, title_of(client_, flags_));
    }
    HOCKET_TRY(const std::string text, ask(client_, "/metrics"));
    HOCKET_TRY(auto samples, parse_metrics(text));
    MetricView now(std::move(samples));
    const TimePoint at = RealClock().now();
    frame.title = *title_;
    frame.seconds = last_ == TimePoint{} ? 0 : to_seconds(at - last_);
    std::string page = draw_top(now, before_, frame);
    before_ = std::move(now);
    last_ = at;
    return page;
  }

 private:
  const TopFlags& flags_;
  BlockingHttpClient client_;
  std::optional<std::string> title_;
  MetricView before_{{}};
  TimePoint last_{};
};

Result<void> watch(const TopFlags& f) {
  ServerView view(f);
  if (isatty(STDOUT_FILENO) == 0 || f.once) {
    HOCKET_TRY(const std::string page, view.draw({.columns = 0}));
    fmt::print("{}", page);
    return {};
  }
  const LiveScreen screen;
  do {
    const LiveScreen::Size size = LiveScreen::size();
    const Result<std::string> page =
        view.draw({.columns = size.columns, .rows = size.rows, .style = TopFrame::Style::color});
    screen.draw(page ? *page : describe(page.error()));  // continues: the server may come back
  } while (screen.wait(f.interval_s));
  return {};
}

}  // namespace

int top(const Arguments& arguments) {
  TopFlags flags;
  const Result<bool> go = parse(flags, arguments);
  if (!go) return report(go.error());
  if (!*go) return 0;
  const Result<void> done = watch(flags);
  return done ? 0 : report(done.error());
}

}  // namespace hocket
