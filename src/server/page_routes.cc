#include "server/page_routes.h"

#include "server/http/error_map.h"
#include "server/page/live_view.h"
#include "server/page/page.h"
#include "server/reports/expert_distribution.h"
#include "server/reports/info_json.h"

namespace hocket {
namespace {

void respond_uncached(HttpExchange& exchange, const Result<std::string>& answer) {
  if (answer)
    exchange.respond(200, kJsonType, *answer, {{"Cache-Control", "no-store"}});
  else
    respond_error(exchange, answer.error());
}

Result<std::string> text_of(const Result<Json>& json) {
  if (!json) return fail(json.error());
  return to_text(*json);
}

Json live(const PageOptions& options) {
  LiveView view{.stats = options.engine->stats(),
                .first_rank = first_rank(*options.engine),
                .snapshots = options.engine->request_snapshots(),
                .texts = options.reply->live_texts(kMaxLiveTexts),
                .num_texts = options.reply->num_live(),
                .ended = options.reply->ended()};
  if (const auto ready = options.health->ready(view.stats); !ready) {
    view.is_ready = false;
    view.not_ready = ready.error();
  }
  return live_json(view, RealClock().now());
}

}  // namespace

void add_page_routes(std::vector<Route>& routes, const PageOptions& options) {
  using Exchange = std::shared_ptr<HttpExchange>;
  for (const char* path : {"/", "/ui/"})
    routes.push_back({"GET", path, HandlerThread::http,
                      [](const HttpRequest& request, const Exchange& exchange, TimePoint) {
                        serve_page(request, *exchange);
                      },
                      Access::open});
  const auto text = [&](std::string_view path, HandlerThread thread, auto answer) {
    routes.push_back(
        {"GET", path, thread, [answer](const HttpRequest& r, const Exchange& e, TimePoint) {
           respond_uncached(*e, answer(r));
         }});
  };
  text("/live", HandlerThread::http,
       [options](const HttpRequest&) -> Result<std::string> { return to_text(live(options)); });
  text("/steps", HandlerThread::http, [options](const HttpRequest&) -> Result<std::string> {
    return to_text(steps_json(*options.engine->parts().recent_steps));
  });
  text(kStepsPath, HandlerThread::text, [options](const HttpRequest& r) {
    return step_text(*options.engine->parts().recent_steps, r.path);
  });
  text("/expert_distribution", HandlerThread::text, [options](const HttpRequest&) {
    return text_of(
        look_at_expert_record(options.engine->parts().expert_stats, options.engine->stats().moves));
  });
}

}  // namespace hocket
