// The fields that each path accepts. The table is made by running each path's parser on examples
// and recording the fields that it reads, so a new field is in it without a change here.
// For `hocket docs fields`; `./hocket test hostile` grows each of them.   Thread: any.
#pragma once

#include "server/protocol/json_body.h"

namespace hocket {

// [{"path": "/generate", "examples": [bodies that are answered], "fields": {"text": {"kind": ..}}}]
// A field is described as in FieldRecorder::Known. Messages, items, content blocks and tools are
// read without the class Fields, so their fields are not in the table; the examples hold some of
// each kind.
Json accepted_fields();

}  // namespace hocket
