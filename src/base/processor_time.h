// The time that a thread computes, without that in which it waits or others have its core.
#pragma once

#include "base/clock.h"

namespace hocket {

// Returns the processor's time that the calling thread has used.
Duration thread_processor_time();

}  // namespace hocket
