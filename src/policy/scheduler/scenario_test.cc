// Runs tests/scenarios/*.txt, stories about the scheduler; their README.md explains the language.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "base/log.h"
#include "base/source_dir_testing.h"
#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/fake_scheduler_hooks_testing.h"
#include "policy/scheduler/scenario_words_testing.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class Scenario {
 public:
  explicit Scenario(const fs::path& file) : file_(file) {}

  // Returns an empty string if all lines held, else the first that did not, with what happened
  // instead.
  std::string run() {
    std::ifstream stream(file_);
    for (std::string line; problem_.empty() && std::getline(stream, line);) {
      ++line_number_;
      const Words words = split(line.substr(0, line.find('#')));
      if (!words.empty()) obey(words);
    }
    if (problem_.empty()) expect_no_events();
    if (problem_.empty() && num_checks_ == 0) differ("at least one line that checks", "none");
    return problem_;
  }

 private:
  struct Actor {
    RequestId id{};
    Words says;
    Request* request = nullptr;  // while the scheduler knows it
    int num_retractions = 0;
    std::unique_ptr<Request> ended;
  };

  void obey(const Words& words) {
    const std::string& verb = words[0];
    const bool claims_event = verb == "retract" || verb == "finish";
    if (!claims_event) expect_no_events();
    if (!problem_.empty()) return;
    if (verb == "pages") return configure(words);
    if (verb == "arrive") return arrive(words);
    if (verb == "crowd") return crowd(words);
    if (verb == "refuse") return refuse(words);
    if (verb == "abort") return abort(words);
    if (verb == "flush") return same(words[1], engine_->scheduler().flush_cache() ? "yes" : "no");
    if (verb == "step") return same(join(Words(words.begin() + 1, words.end())), step());
    if (verb == "steps") return skip(std::stoi(words[1]));
    if (verb == "run") return run_dry();
    if (verb == "expect") return expect(words);
    if (verb == "others") return static_cast<void>(hooks_.others_compute = words[1] == "compute");
    if (verb == "begin") return static_cast<void>(hooks_.nobody_begins = words[1] == "nobody");
    if (verb == "draft") return draft(words);
    if (auto* const guests = guests_of(verb)) return change(*guests, words);
    if (!claims_event) return differ("a known word", verb);
    const std::string event = events_.empty() ? "nothing" : events_.front();
    if (!events_.empty()) events_.pop_front();
    same(join(words), event);
  }

  // Returns the set that "ready a" or "break a" changes: the answers of SchedulerHooks.
  std::set<RequestId>* guests_of(const std::string& verb) {
    if (verb == "ready") return &hooks_.not_ready;
    if (verb == "break") return &hooks_.broken;
    return nullptr;
  }

  void change(std::set<RequestId>& guests, const Words& words) {
    const RequestId id = actors_[words[1]].id;
    if (words[0] == "ready")
      guests.erase(id);
    else
      guests.insert(id);
  }

  void configure(const Words& words) {
    ScenarioSetup setup;
    setup.options.hooks = &hooks_;
    if (const std::string unknown = read_setup(words, setup); !unknown.empty())
      return differ("a known setting", unknown);
    const auto sampler = [this](const Request& request, auto history) {
      return sample(request, history.size());
    };
    engine_ = std::make_unique<FakeEngine>(setup.options, sampler, setup.overlapped);
    engine_->time_steps([fixed_us = setup.fixed_us, row_us = setup.row_us](const Batch& batch) {
      return std::chrono::microseconds(fixed_us + row_us * batch.num_rows);
    });
  }

  // Returns token `position` of the endless text called `name`.
  TokenId token(const std::string& name, size_t position) {
    const auto text = texts_.try_emplace(name, texts_.size() + 1).first->second;
    return TokenId{static_cast<int>(text * 1000 + position)};
  }

  SampledToken sample(const Request& request, size_t position) {
    const std::string& name = name_of(request.id);
    const Words& says = actors_[name].says;
    const size_t index = position - static_cast<size_t>(request.prompt_len);
    if (index >= says.size()) return {token(name, position), false};
    if (says[index] == "nan") return {TokenId{0}, true};
    std::vector<TokenId>& forced = forced_.emplace_back();
    for (size_t i = index + 1; i < says.size() && says[i].starts_with('+'); ++i)
      forced.push_back(TokenId{std::stoi(says[i])});
    return {.token = TokenId{std::stoi(says[index])}, .forced = forced};
  }

  RequestInput input(const Words& words) {
    const std::string& name = words[1];
    auto set = settings(std::span(words).subspan(2));
    auto number = [&](const std::string& key, int otherwise) {
      return set.contains(key) ? std::stoi(set[key]) : otherwise;
    };
    RequestInput input;
    input.id = RequestId{actors_.size() + 1};
    const auto length = static_cast<size_t>(number("prompt", 1));
    const Words prefix = split(set["prefix"], ':');
    for (size_t i = 0; i < length; ++i) {
      const bool borrowed = prefix.size() == 2 && i < static_cast<size_t>(std::stoi(prefix[1]));
      input.prompt.push_back(token(borrowed ? prefix[0] : name, i));
    }
    input.sampling.max_new_tokens = number("new", 1);
    input.sampling.min_new_tokens = number("min", 0);
    input.sampling.ignore_eos = set.contains("ignore_eos");
    input.sampling.prompt_logprobs_from = number("logprobs_from", -1);
    if (set.contains("stop")) input.sampling.stop_ids.push_back(TokenId{number("stop", 0)});
    if (set.contains("priority")) input.priority = number("priority", 0);
    input.client = static_cast<uint64_t>(number("client", 0));
    input.routing_key = static_cast<uint64_t>(number("key", 0));
    input.cache_namespace = static_cast<uint64_t>(number("salt", 0));
    input.arrived = engine_->now();
    return input;
  }

  void arrive(const Words& words) {
    RequestInput made = input(words);
    Actor& actor = actors_[words[1]];
    actor.id = made.id;
    actor.says = split(settings(words)["says"], ',');
    if (words.back() == "held") hooks_.not_ready.insert(actor.id);
    if (const auto added = engine_->scheduler().add(std::move(made)); !added)
      differ("a welcome", describe(added.error()));
  }

  // Executes "draft a 7,8": guesses for the next step with rows of a.
  void draft(const Words& words) {
    std::vector<TokenId>& drafts = hooks_.drafts[actors_[words[1]].id];
    for (const std::string& token : split(words[2], ','))
      drafts.push_back(TokenId{std::stoi(token)});
  }

  // Executes "crowd r 3 ...": r1, r2 and r3 arrive.
  void crowd(Words words) {
    const int count = std::stoi(words[2]);
    const std::string name = words[1];
    words.erase(words.begin() + 2);
    for (int i = 1; i <= count; ++i) {
      words[1] = name + std::to_string(i);
      arrive(words);
    }
  }

  void refuse(const Words& words) {
    RequestInput made = input(words);
    const RequestId id = made.id;
    if (words[words.size() - 2] == "broken") hooks_.broken.insert(id);
    const auto added = engine_->scheduler().add(std::move(made));
    hooks_.broken.erase(id);
    same(words.back(), added ? "accepted" : error_name(added.error().code));
  }

  void abort(const Words& words) {
    if (words.back() == "flight") return static_cast<void>(in_flight_abort_ = words[1]);
    ++num_checks_;
    if (!engine_->scheduler().abort(actors_[words[1]].id, FinishReason::abort, {}))
      differ("an abort", "it is unknown");
    collect_finished();
  }

  std::string step() {
    std::string what = "idle";
    engine_->step([&](const Batch& batch) {
      what = show(batch);
      if (in_flight_abort_.empty()) return;
      engine_->scheduler().abort(actors_[in_flight_abort_].id, FinishReason::abort, {});
      in_flight_abort_.clear();
    });
    collect_finished();
    if (problem_.empty() && !engine_->problem().empty()) differ("sound memory", engine_->problem());
    return what;
  }

  // Describes the batch; also reports requests that were retracted when it was made.
  std::string show(const Batch& batch) {
    std::string chunks, decodes, copies, logprobs;
    for (auto& [name, actor] : actors_)
      if (actor.request != nullptr && actor.num_retractions != actor.request->num_retractions) {
        actor.num_retractions = actor.request->num_retractions;
        events_.push_back("retract " + name);
      }
    for (const Slice& slice : batch.slices) {
      const std::string& name = name_of(slice.request->id);
      actors_[name].request = slice.request;
      if (slice.request->state == Request::State::prefilling && slice.pending_sample < 0)
        chunks += fmt::format(" {}[{},{})", name, slice.begin, slice.begin + slice.len);
      else
        decodes += slice.len == 1 && slice.is_sampled
                       ? " " + name
                       : fmt::format(" {}[{},{})", name, slice.begin, slice.begin + slice.len);
      if (slice.num_drafts > 0) decodes += fmt::format("+{}", slice.num_drafts);
      if (slice.logprobs_from >= 0)
        logprobs += fmt::format(" logprobs {}:{}", name, slice.logprobs_from);
      for (const PageCopy& copy : batch.copies)
        if (std::ranges::find(slice.request->pages, copy.to) != slice.request->pages.end())
          copies += fmt::format(" copy {}:{}", name, copy.tokens);
    }
    if (batch.idle_step) return "idle with others";
    const std::string head = batch.mode == ForwardMode::extend ? "prefill" + chunks
                             : batch.mode == ForwardMode::mixed
                                 ? "mixed" + chunks + " decode" + decodes
                                 : "decode" + decodes;
    return head + copies + logprobs;
  }

  void collect_finished() {
    for (auto& request : engine_->scheduler().take_finished()) {
      const std::string& name = name_of(request->id);
      events_.push_back(fmt::format("finish {} {}", name, finish_name(request->finish)));
      actors_[name].request = nullptr;
      actors_[name].ended = std::move(request);
    }
  }

  void skip(int num_steps) {
    for (int i = 0; i < num_steps && problem_.empty(); ++i) step();
    events_.clear();
  }

  void run_dry() {
    for (int i = 0; i < 10000 && !engine_->scheduler().idle() && problem_.empty(); ++i) step();
    events_.clear();
    if (!engine_->scheduler().idle()) differ("an end", "10000 steps without one");
  }

  void expect(const Words& words) {
    const bool of_one = words[1].find('=') == std::string::npos;
    for (const auto& [key, text] : settings(std::span(words).subspan(of_one ? 2 : 1)))
      same(key + "=" + text, key + "=" + (of_one ? look(words[1], key) : look(key)));
  }

  std::string look(const std::string& key) {
    const SchedulerStats s = engine_->scheduler().stats();
    const std::map<std::string, int64_t> numbers = {
        {"free", s.num_free_pages},
        {"cached", s.num_cached_pages},
        {"private", s.num_private_pages},
        {"running", s.num_running},
        {"waiting", s.num_waiting},
        {"held", s.num_held},
        {"waiting_tokens", s.num_waiting_tokens},
        {"used_tokens", s.num_used_tokens},
        {"retracted", s.num_retracted_total},
        {"evicted", s.num_evicted_pages_total},
        {"free_window", s.num_free_window_pages},
        {"cached_window", s.num_cached_window_pages},
        {"evicted_window", s.num_evicted_window_pages_total},
        {"free_states", s.num_free_states},
        {"cached_states", s.num_cached_states},
        {"evicted_states", s.num_evicted_states_total},
        {"fallbacks", s.num_policy_fallbacks_total},
        {"preempted", s.num_preempted_total},
        {"timed_out", s.num_timed_out_total},
        {"displaced", s.num_displaced_total},
        {"prompt_tokens", s.prompt_tokens_total},
        {"cached_tokens", s.cached_tokens_total},
        {"forced", s.forced_tokens_total},
        {"verified", s.num_verified_total},
        {"drafted", std::accumulate(s.drafted_total.begin(), s.drafted_total.end(), uint64_t{0})},
        {"accepted_drafts",
         std::accumulate(s.accepted_total.begin(), s.accepted_total.end(), uint64_t{0})},
        {"itl_chunk", s.itl_chunk_tokens}};
    if (key == "ratio") return fmt::format("{:.3f}", s.new_token_ratio);
    const auto found = numbers.find(key);
    return found == numbers.end() ? "unknown" : std::to_string(found->second);
  }

  std::string look(const std::string& name, const std::string& key) {
    const Actor& actor = actors_[name];
    const Request* request = actor.ended ? actor.ended.get() : actor.request;
    if (request == nullptr) return "no such request";
    if (key == "finish") return std::string(finish_name(request->finish));
    if (key == "generated") return std::to_string(request->generated());
    if (key == "cached") return std::to_string(request->cached_len);
    if (key == "window")
      return std::to_string(std::ssize(request->window.pages) - request->window.begin);
    if (key == "retractions") return std::to_string(request->num_retractions);
    if (key == "verified") return std::to_string(request->drafts.num_verified);
    if (key == "drafted") return std::to_string(request->drafts.num_drafts);
    if (key == "accepted_drafts") return std::to_string(request->drafts.num_accepted);
    if (key == "matched") return std::to_string(value(request->matched_stop));
    if (key == "error") return error_name(request->error.code);
    return "unknown";
  }

  const std::string& name_of(RequestId id) {
    return std::ranges::find_if(actors_, [&](const auto& actor) { return actor.second.id == id; })
        ->first;
  }

  void expect_no_events() {
    if (!events_.empty()) differ("nothing more", events_.front());
  }
  void same(const std::string& expected, const std::string& actual) {
    ++num_checks_;
    if (expected != actual) differ(expected, actual);
  }
  void differ(const std::string& expected, const std::string& actual) {
    if (!problem_.empty()) return;
    problem_ = fmt::format("{}:{}\n  expected: {}\n  got:      {}", file_.string(), line_number_,
                           expected, actual);
  }

  fs::path file_;
  int line_number_ = 0, num_checks_ = 0;
  std::string problem_;
  FakeSchedulerHooks hooks_;
  std::unique_ptr<FakeEngine> engine_;
  std::map<std::string, Actor> actors_;
  std::map<std::string, size_t> texts_;
  std::deque<std::vector<TokenId>> forced_;  // for each sampled token, the tokens it forces
  std::deque<std::string> events_;
  std::string in_flight_abort_;
};

std::vector<fs::path> scenario_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source_dir() / "tests" / "scenarios"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class ScenarioTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(ScenarioTest, Holds) {
  log::set_level(log::Level::error);
  EXPECT_EQ(Scenario(GetParam()).run(), "");
}

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, ::testing::ValuesIn(scenario_files()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace hocket
