// Records one request. The threads that serve it report its events; the observer gets a note
// when the prompts are tokenized and another when the request has ended. A recorder that is
// destroyed before its end was reported counts as a failure of the server.
//
//   RequestStarter: begin, began | failed -> ReplyService: ended | failed -> the observer's thread
//
// Thread: any that serves the request, one at a time (under the answer's lock).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/mailbox.h"
#include "base/result.h"
#include "server/observe/request_record.h"

namespace hocket {

struct Answer;
struct PreparedRequest;

// The status that is recorded for a request whose client left before the end.
inline constexpr int kClientLeft = 499;

// The outputs that need data of each request: the log, the dump, traces and the black box. texts:
// the log also needs the texts of prompts and answers.
struct ObserverOutputs {
  bool log = false, texts = false, dump = false, trace = false;
  bool black_box = false;
  bool notes() const { return log || dump || trace; }
  bool any() const { return notes() || black_box; }
};

struct RequestNote {
  enum class Kind : uint8_t { began, ended } kind = Kind::ended;
  RequestRecord record;
};

// The queue to the observer's thread. A note that finds no room is dropped and counted, so no
// thread waits for it.
struct ObserverInbox {
  static constexpr size_t kMaxNotes = 4096;
  static constexpr int64_t kMaxBytes = 256 << 20;  // bytes of bodies, texts and records that wait

  Mailbox<RequestNote> notes{kMaxNotes};
  ByteBudget budget{kMaxBytes};
  std::atomic<uint64_t> num_lost{0};

  void push(RequestNote&& note);
};

class RequestRecorder {
 public:
  // `record` holds what is known when the request arrives. The inbox must outlive the recorder.
  RequestRecorder(ObserverInbox& inbox, ObserverOutputs outputs, RequestRecord record);
  // If no end was reported, reports a failure of the server.
  ~RequestRecorder();
  RequestRecorder(const RequestRecorder&) = delete;
  RequestRecorder& operator=(const RequestRecorder&) = delete;

  // The prompts are tokenized and fit the context.
  void began(const PreparedRequest& prepared);
  void failed(const Error& why);
  // The answer was sent to its end with `status`, or the client had left (499).
  void ended(const Answer& answer, int status);
  // Another rank answers. If that rank refuses, this rank answers, and ended() follows.
  void forwarded_to(std::string to);
  // Sets the status that the client got from the other rank.
  void set_remote_status(int status) { record_.status = status; }

  // Returns the header traceparent for a request that is forwarded; empty: none is sent.
  std::string traceparent() const;

 private:
  void report();
  void note_in_black_box() const;

  ObserverInbox& inbox_;
  const ObserverOutputs outputs_;
  RequestRecord record_;
  bool reported_ = false;
};

}  // namespace hocket
