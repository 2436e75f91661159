// Routes of the page, and of the paths that only it reads: texts under way, the newest steps, the
// experts.
#include <algorithm>

#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/page/live_view.h"
#include "server/page/page.h"
#include "server/reports/expert_distribution.h"

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

}  // namespace

Json Endpoints::live() const {
  LiveView view{.stats = options_.engine->stats(),
                .first_rank = options_.rank_router == nullptr ? 0 : options_.rank_router->rank(),
                .snapshots = options_.engine->request_snapshots(),
                .texts = options_.reply->live_texts(kMaxLiveTexts),
                .num_texts = options_.reply->num_live(),
                .ended = options_.reply->ended()};
  if (const auto ready = options_.health->ready(view.stats); !ready) {
    view.is_ready = false;
    view.not_ready = ready.error();
  }
  return live_json(view, RealClock().now());
}

void Endpoints::add_page(std::vector<Route>& routes) {
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
       [this](const HttpRequest&) -> Result<std::string> { return to_text(live()); });
  text("/steps", HandlerThread::http, [this](const HttpRequest&) -> Result<std::string> {
    return to_text(steps_json(*options_.engine->parts().recent_steps));
  });
  text(kStepsPath, HandlerThread::text, [this](const HttpRequest& r) {
    return step_text(*options_.engine->parts().recent_steps, r.path);
  });
  text("/expert_distribution", HandlerThread::text, [this](const HttpRequest&) {
    return text_of(look_at_expert_record(options_.engine->parts().expert_stats,
                                         options_.engine->stats().moves));
  });
}

}  // namespace hocket
