// The server as one thing: HTTP, text threads, replies, probes and metrics around a generator.
//
//   http* -> route -> text*: JSON, template, tokens -> generator -> outbox -> reply -> exchange
//
// Owner: apps, which also owns the generator, the tokenizer and the template and outlives nothing
// of them.   Thread: any, one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/server_settings.h"
#include "server/generator.h"
#include "server/protocol/generation_request.h"

namespace hocket {

class Server {
 public:
  struct Options {
    ServerSettings settings;
    Generator* generator = nullptr;
    const Tokenizer* tokenizer = nullptr;         // null: text endpoints answer no_tokenizer
    const ChatTemplate* chat_template = nullptr;  // null: chat answers template_failed
    // With several processes: the address at which the other ones reach this one.
    std::string internal_host;
    // What is told at /get_server_info besides the generator's own changes.
    std::vector<SettingChange> changes;
    std::vector<SlowPath> slow_paths;
    int num_http_threads = 1;
    int num_text_threads = 2;
  };
  // Starts the generator, listens and is ready. Errors: those of HttpServer::create and of
  // choose_answer_formats.
  static Result<std::unique_ptr<Server>> create(Options options);
  // drain() without patience.
  ~Server();

  int port() const;

  // Reads the files of keys and certificates again. On an error those of before stay.
  Result<void> reload();

  // The end, in order: no new request (probes are answered, the rest gets shutting_down); up to
  // `patience` for what runs; then the rest is aborted, no connection is taken any more and all
  // threads end. True when nothing was aborted.
  // For SIGTERM, patience is settings.http.shutdown_timeout_s.
  bool drain(Duration patience);

  // Why the process should end. Errors: watchdog, the generator has been silent for too long; and
  // Generator::failure.
  Result<void> watchdog() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
