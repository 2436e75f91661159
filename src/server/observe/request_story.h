// The story of one request: those who serve it tell what becomes of it, and the observer gets a
// note when its tokens are known and another when all is over. A story that is destroyed before its
// end was told is told as a failure of the server.
//
//   Endpoints: begin, began | failed -> ReplyService: ended | failed -> the observer's thread
//
// Thread: whoever serves the request, one at a time (the answer's lock).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/mailbox.h"
#include "base/result.h"
#include "server/observe/request_record.h"

namespace hocket {

struct Answer;

// The status of a request whose client left before the end.
inline constexpr int kClientLeft = 499;

// What the log, the dump, traces and the black box need of each request. texts: the words of
// prompts and answers.
struct ObserverWants {
  bool log = false, texts = false, dump = false, trace = false;
  bool black_box = false;
  bool notes() const { return log || dump || trace; }
  bool any() const { return notes() || black_box; }
};

struct RequestNote {
  enum class Kind : uint8_t { began, ended } kind = Kind::ended;
  RequestRecord record;
};

// The way to the observer's thread. What finds no room is counted and lost: nobody waits for it.
struct ObserverInbox {
  static constexpr size_t kNotesMax = 4096;
  static constexpr int64_t kBytesMax = 256 << 20;  // of bodies, texts and records that wait

  Mailbox<RequestNote> notes{kNotesMax};
  ByteBudget budget{kBytesMax};
  std::atomic<uint64_t> num_lost{0};

  void push(RequestNote&& note);
};

class RequestStory {
 public:
  // `record`: what is known by now. The inbox outlives the story.
  RequestStory(ObserverInbox& inbox, ObserverWants wants, RequestRecord record);
  // An answer that nobody finished is told as a failure of the server.
  ~RequestStory();
  RequestStory(const RequestStory&) = delete;
  RequestStory& operator=(const RequestStory&) = delete;

  // Its prompts are tokens and fit.
  void began(const Answer& answer);
  void failed(const Error& why);
  // The client was told all; or had left, which is 499.
  void ended(const Answer& answer, int status);
  // Another rank answers. If that one refuses, this rank answers, and ended() follows after all.
  void handed_on(std::string to);
  // The status that the client got from the other rank.
  void answered_there(int status) { record_.status = status; }

  // The header traceparent for a request that is handed on; empty: none is sent.
  std::string traceparent() const;

 private:
  void tell();
  void tell_black_box() const;

  ObserverInbox& inbox_;
  const ObserverWants wants_;
  RequestRecord record_;
  bool told_ = false;
};

}  // namespace hocket
