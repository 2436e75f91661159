// The table of fields that each path accepts. It is made by running each path's parser on examples
// and recording the fields that it reads, so a field that is added to a parser needs no change
// here. `hocket docs fields` prints it, and `./hocket test hostile` enlarges each of the fields.
// Thread: any.
#pragma once

#include "server/http/json_body.h"

namespace hocket {

// [{"path": "/generate", "examples": [bodies that are answered], "fields": {"text": {"kind": ..}}}]
// A field is described as in FieldRecorder::Known. Messages, items, content blocks and tools are
// read without the class Fields, so their fields are not in the table; the examples hold some of
// each kind.
Json accepted_fields();

}  // namespace hocket
