// The fields that each path takes, found by giving its own parser bodies and noting what it asks
// for: a field that a parser learns is in the table without a word here.
// For `hocket docs fields`; `./hocket test hostile` grows each of them.   Thread: any.
#pragma once

#include "server/protocol/json_body.h"

namespace hocket {

// [{"path": "/generate", "examples": [bodies that are answered], "fields": {"text": {"kind": ..}}}]
// Of a field: FieldRecorder::Known. Messages, items, content blocks and tools are read without
// Fields, so their fields are not in the table: the examples hold some of each kind.
Json accepted_fields();

}  // namespace hocket
