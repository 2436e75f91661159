// Records the fields that parsers read from a body, for the table of accepted fields
// (server/accepted_fields.h). A serving process has no recorder: `Fields` finds a null pointer.
// Thread: the one that made it.
#pragma once

#include <map>
#include <string>
#include <unordered_set>

#include "server/http/json_body.h"

namespace hocket {

// While the object lives, it records all that `Fields` reads on this thread. Only one may live per
// thread.
class FieldRecorder {
 public:
  // A description per path, such as "tools[].function.name": {"kind": boolean, string, integer,
  // number, object, list, any, ignored or refused; "low", "high", "low_excluded", "entries_max" if
  // they are limits}.
  using Known = std::map<std::string, Json>;

  // Some parsers translate `body` into a second body, which another parser reads. A field that is
  // passed on unchanged gets its kind from that second reading; other fields of the second body
  // are not recorded.
  explicit FieldRecorder(const Json& body);
  ~FieldRecorder();
  FieldRecorder(const FieldRecorder&) = delete;
  FieldRecorder& operator=(const FieldRecorder&) = delete;

  static FieldRecorder* current();
  // Records the field at `path` of `object`. {"kind": "any"} is kept only until a more precise kind
  // is recorded.
  void note(const Json& object, const std::string& path, Json what);
  Known known() const;

 private:
  std::unordered_set<const Json*> objects_;  // the objects of the body
  Known of_body_, of_others_;
};

}  // namespace hocket
