#include "server/session_routes.h"

#include <charconv>
#include <functional>
#include <future>
#include <utility>

#include "core/request_bounds.h"
#include "server/access/client_key.h"
#include "server/access/request_sender.h"
#include "server/generation/generation_request.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"
#include "server/ranks/rank_router.h"

namespace hocket {
namespace {

constexpr std::string_view kSessionsPath = "/sessions/", kSlotsPath = "/slots/";
// Ranks ask each other how many tokens of a session they know by the path of the request behind
// this.
constexpr std::string_view kOfRanks = "/ranks";
constexpr std::string_view kSessionsOfRanks = "/ranks/sessions/", kSlotsOfRanks = "/ranks/slots/";
// The other ranks answer within this time, or may know the session.
constexpr Duration kFindPatience = Engine::kFindWait + std::chrono::seconds(1);
// A delete may wait for another call for the session, then for steps, and then for its file.
constexpr Duration kDeletePatience =
    2 * Engine::kSessionWait + Engine::kSessionFileWait + std::chrono::seconds(5);

using Exchange = std::shared_ptr<HttpExchange>;

// A request for a session, and the field of its answer that has the number of tokens.
struct SessionAsk {
  SessionRequest request;
  Json answer;  // without numbers
  const char* tokens = "tokens";
  const char* bytes = nullptr;  // null: the answer has none
  const char* millis = "ms";    // null: none
  bool nests_millis = false;    // in "timings"
};

double ms_since(TimePoint begin) {
  return to_ms(RealClock().now() - begin);
}

// Returns the N of /slots/N, or -1.
int slot_of(std::string_view path) {
  const std::string_view rest = path.substr(kSlotsPath.size());
  int slot = -1;
  const auto [stop, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), slot);
  return problem == std::errc() && stop == rest.data() + rest.size() ? slot : -1;
}

SessionRequest request_of(const std::string& owner, SessionAction action, std::string_view session,
                          std::string_view name) {
  return {.action = action,
          .session = session_key_of(owner, session),
          .name = session_key_of(owner, name),
          .owner = session_owner_of(owner)};
}

std::unexpected<Error> unknown_path(std::string_view path) {
  return fail(error(ErrorCode::not_found, "there is no {}", path.substr(0, 128))
                  .with_fix("POST /sessions/NAME/save, restore or delete"));
}

Result<SessionAsk> parse_session(const std::string& owner, std::string_view path,
                                 const HttpRequest&) {
  const std::string_view rest = path.substr(kSessionsPath.size());
  const size_t cut = rest.rfind('/');
  if (cut == rest.npos || cut == 0) return unknown_path(path);
  const std::string_view name = rest.substr(0, cut), verb = rest.substr(cut + 1);
  if (verb != "save" && verb != "restore" && verb != "delete") return unknown_path(path);
  if (cut > kMaxSessionBytes)
    return fail(error(ErrorCode::invalid_request,
                      "the session's name has {} bytes; at most {} are possible", cut,
                      kMaxSessionBytes)
                    .with_fix("use the session_id that its requests have"));
  const auto action = verb == "save"      ? SessionAction::save
                      : verb == "restore" ? SessionAction::restore
                                          : SessionAction::end;
  return SessionAsk{.request = request_of(owner, action, name, name),
                    .answer = {{"session_id", name}, {"action", verb}}};
}

// The fields of llama.cpp's answers.
Result<SessionAsk> parse_slot(const std::string& owner, std::string_view path,
                              const HttpRequest& asked) {
  const int slot = slot_of(path);
  if (slot < 0)
    return fail(error(ErrorCode::not_found, "there is no {}", path.substr(0, 128))
                    .with_fix("POST /slots/0?action=save, restore or erase"));
  const std::string session = slot_session(slot);
  const std::string_view action = query_value(asked.query, "action");
  if (action == "erase")
    return SessionAsk{.request = request_of(owner, SessionAction::end, session, session),
                      .answer = {{"id_slot", slot}, {"n_erased", 0}},
                      .tokens = "n_erased",
                      .millis = nullptr};
  if (action != "save" && action != "restore")
    return fail(error(ErrorCode::invalid_request, "action is '{}', not save, restore or erase",
                      action.substr(0, 64))
                    .with_param("action"));
  HOCKET_TRY(const Json body, parse_json_object(asked.body));
  const auto file = body.find("filename");
  if (file == body.end() || !file->is_string() || file->get_ref<const std::string&>().empty() ||
      file->get_ref<const std::string&>().size() > kMaxSessionBytes)
    return fail(error(ErrorCode::invalid_request, "filename must be a string of 1 to {} bytes",
                      kMaxSessionBytes)
                    .with_param("filename"));
  const auto& name = file->get_ref<const std::string&>();
  const bool saves = action == "save";
  return SessionAsk{
      .request = request_of(owner, saves ? SessionAction::save : SessionAction::restore, session,
                            "file " + name),
      .answer = {{"id_slot", slot}, {"filename", name}},
      .tokens = saves ? "n_saved" : "n_restored",
      .bytes = saves ? "n_written" : "n_read",
      .millis = saves ? "save_ms" : "restore_ms",
      .nests_millis = true};
}

using ParseSession = Result<SessionAsk> (*)(const std::string& owner, std::string_view path,
                                            const HttpRequest& asked);

// Carries the request out with the ranks of this process.
Result<Json> answer_here(Engine& engine, const SessionAsk& ask) {
  const TimePoint begin = RealClock().now();
  HOCKET_TRY(const SessionResult done, engine.change_session(ask.request));
  Json answer = ask.answer;
  answer[ask.tokens] = done.tokens;
  if (ask.bytes != nullptr) answer[ask.bytes] = done.bytes;
  if (ask.nests_millis)
    answer["timings"] = {{ask.millis, ms_since(begin)}};
  else if (ask.millis != nullptr)
    answer[ask.millis] = ms_since(begin);
  return answer;
}

// Returns how many tokens the ranks of this process know of the session, or find saved.
Result<int64_t> find_here(Engine& engine, SessionRequest asked) {
  asked.action =
      asked.action == SessionAction::restore ? SessionAction::find_saved : SessionAction::find;
  HOCKET_TRY(const SessionResult found, engine.change_session(asked));
  return found.tokens;
}

// Returns -1 if the answer names no number of tokens.
int64_t tokens_in(const PeerAnswer& peer, const char* field) {
  const Json said = parse_bounded_json(peer.body);
  if (peer.status != 200 || !said.is_object()) return -1;
  const auto found = said.find(field);
  return found != said.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

// Returns true if the rank did not say how many tokens it knows, and may know some: it had no time
// for the question, or its answer was lost. 400: it has no folder for sessions.
bool left_open(const PeerAnswer& peer, const char* field) {
  if (tokens_in(peer, field) >= 0 || peer.status == 404 || peer.status == 400) return false;
  return peer.status != 0 || peer.may_know;
}

std::string texts_of_open(const std::vector<PeerAnswer>& peers, const char* field) {
  return error_texts(peers, [&](const PeerAnswer& peer) { return left_open(peer, field); });
}

// Returns the answers of the other ranks. Errors: request_timeout.
Result<std::vector<PeerAnswer>> ask_others(RankRouter& ranks, const HttpRequest& request) {
  auto found = std::make_shared<std::promise<std::vector<PeerAnswer>>>();
  auto answers = found->get_future();
  HttpRequest question = request;
  question.path = std::string(kOfRanks) + request.path;
  ranks.broadcast().post_to_all(
      question, [found](std::vector<PeerAnswer>&& all) { found->set_value(std::move(all)); },
      {.patience = kFindPatience});
  if (answers.wait_for(2 * kFindPatience) != std::future_status::ready)
    return fail(error(ErrorCode::request_timeout, "the other ranks have not answered")
                    .with_fix("ask again when they have less to do"));
  return answers.get();
}

// Returns the rank that carries a save or a restore out: a restore this one, if it finds what was
// saved, and else the one that knows most; this one if none knows more. Errors: those of
// find_here(), and lost_rank if another rank may know more, since a save by this one could replace
// a longer list by a shorter one.
Result<int> rank_of_session(RankRouter& ranks, Engine& engine, const SessionRequest& asked,
                            const HttpRequest& request) {
  const Result<int64_t> here = find_here(engine, asked);
  const bool knows_none = !here && (here.error().code == ErrorCode::not_found ||
                                    here.error().code == ErrorCode::invalid_request);
  if (!here && !knows_none) return fail(here.error());
  if (here && asked.action == SessionAction::restore) return ranks.rank();
  HOCKET_TRY(const std::vector<PeerAnswer> others, ask_others(ranks, request));
  if (const std::string open = texts_of_open(others, "tokens"); !open.empty())
    return fail(error(ErrorCode::lost_rank,
                      "some ranks did not answer whether they know the session: {}", open)
                    .with_fix("ask again when they have less to do and /readyz is 200 at all "
                              "ranks"));
  int64_t most = here.value_or(-1);
  int rank = ranks.rank();
  for (const PeerAnswer& peer : others)
    if (const int64_t tokens = tokens_in(peer, "tokens"); tokens > most)
      most = tokens, rank = peer.rank;
  return rank;
}

// Makes one answer of those of all ranks that were asked to forget the session: the largest number
// of tokens counts. A rank that may know it still is named.
Result<Json> merge_ends(Result<Json> here, const char* field,
                        const std::vector<PeerAnswer>& there) {
  if (!here && here.error().code != ErrorCode::not_found) return here;
  for (const PeerAnswer& peer : there) {
    const int64_t tokens = tokens_in(peer, field);
    if (tokens >= 0 && (!here || tokens > (*here)[field].get<int64_t>()))
      here = parse_bounded_json(peer.body);
  }
  const std::string open = texts_of_open(there, field);
  if (open.empty()) return here;
  return fail(error(ErrorCode::lost_rank, "some ranks may keep the session: {}", open)
                  .with_fix("ask again when /readyz is 200 at all ranks"));
}

struct SessionOptions {
  Engine* engine = nullptr;
  const HttpSettings* settings = nullptr;
  RankRouter* ranks = nullptr;
};

void answer_client(const SessionOptions& options, ParseSession parse, const HttpRequest& request,
                   const Exchange& exchange) {
  auto ask = parse(cache_owner_of(request, *options.settings), request.path, request);
  if (!ask) return respond_json(*exchange, std::unexpected(ask.error()));
  ask->request.client = proven_client_hash(request);
  if (options.ranks == nullptr || is_from_rank(request))
    return respond_json(*exchange, answer_here(*options.engine, *ask));
  if (ask->request.action == SessionAction::end)
    return options.ranks->broadcast().post_to_all(
        request,
        [exchange, field = ask->tokens,
         here = answer_here(*options.engine, *ask)](const std::vector<PeerAnswer>& there) {
          respond_json(*exchange, merge_ends(here, field, there));
        },
        {.patience = kDeletePatience});
  const auto rank = rank_of_session(*options.ranks, *options.engine, ask->request, request);
  if (!rank) return respond_json(*exchange, std::unexpected(rank.error()));
  if (!options.ranks->forward_to(*rank, request, exchange))
    respond_json(*exchange, answer_here(*options.engine, *ask));
}

void answer_rank(const SessionOptions& options, ParseSession parse, const HttpRequest& request,
                 const Exchange& exchange) {
  if (!is_from_rank(request))
    return respond_json(*exchange,
                        fail(ErrorCode::not_found, "{} is only for other ranks", kOfRanks));
  const std::string_view path = std::string_view(request.path).substr(kOfRanks.size());
  const auto ask = parse(cache_owner_of(request, *options.settings), path, request);
  if (!ask) return respond_json(*exchange, std::unexpected(ask.error()));
  const Result<int64_t> found = find_here(*options.engine, ask->request);
  if (!found) return respond_json(*exchange, std::unexpected(found.error()));
  respond_json(*exchange, Json{{"tokens", *found}, {"known", true}});
}

}  // namespace

std::string cache_owner_of(const HttpRequest& request, const HttpSettings& settings) {
  const Principal* principal = principal_of(request);
  const bool alone = principal != nullptr && principal->alone;
  return alone && !settings.share_prefixes ? std::string(principal_name(request)) : std::string();
}

uint64_t session_task_key(const HttpRequest& request, const HttpSettings& settings) {
  const std::string owner = cache_owner_of(request, settings);
  const std::string_view path = request.path;
  const auto key_of = [&](std::string_view session) {
    return uint64_t{std::hash<SessionKey>{}(session_key_of(owner, session))};
  };
  if (path.starts_with(kSessionsPath)) {
    const size_t cut = path.rfind('/');
    return cut <= kSessionsPath.size()
               ? 0
               : key_of(path.substr(kSessionsPath.size(), cut - kSessionsPath.size()));
  }
  const int slot = path.starts_with(kSlotsPath) ? slot_of(path) : -1;
  return slot < 0 ? 0 : key_of(slot_session(slot));
}

void add_session_routes(std::vector<Route>& routes, Engine& engine, const HttpSettings& settings,
                        RankRouter* ranks) {
  const SessionOptions options{.engine = &engine, .settings = &settings, .ranks = ranks};
  const auto add = [&](std::string_view path, HandlerThread thread, auto handle,
                       ParseSession parse) {
    routes.push_back(
        {"POST", path, thread,
         [options, handle, parse](const HttpRequest& r, const Exchange& exchange, TimePoint) {
           handle(options, parse, r, exchange);
         }});
  };
  add(kSessionsPath, HandlerThread::session, answer_client, parse_session);
  add(kSlotsPath, HandlerThread::session, answer_client, parse_slot);
  if (ranks == nullptr) return;
  add(kSessionsOfRanks, HandlerThread::find, answer_rank, parse_session);
  add(kSlotsOfRanks, HandlerThread::find, answer_rank, parse_slot);
}

}  // namespace hocket
