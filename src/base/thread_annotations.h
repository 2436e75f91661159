// Says which mutex guards what in a form that clang checks: `./hocket lint` reads all sources with
// -Wthread-safety, and a fault is an error. For other compilers the macros are empty.
//
//   Mutex mutex_;
//   int count_ HOCKET_GUARDED_BY(mutex_);           read and written only while mutex_ is held
//   void grow(int by) HOCKET_REQUIRES(mutex_);      the caller holds mutex_
//
// A lambda that runs under the lock says so, too: [this]() HOCKET_REQUIRES(mutex_) { ... }. Clang
// does not check constructors and destructors, in which no other thread knows the object.
#pragma once

#if defined(__clang__)
#define HOCKET_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define HOCKET_THREAD_ATTRIBUTE(...)
#endif

// On a member: the mutex that guards it, or the object that it points to.
#define HOCKET_GUARDED_BY(...) HOCKET_THREAD_ATTRIBUTE(guarded_by(__VA_ARGS__))
#define HOCKET_PT_GUARDED_BY(...) HOCKET_THREAD_ATTRIBUTE(pt_guarded_by(__VA_ARGS__))
// On a function: its caller holds the mutex.
#define HOCKET_REQUIRES(...) HOCKET_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
// For base/mutex.h.
#define HOCKET_CAPABILITY(...) HOCKET_THREAD_ATTRIBUTE(capability(__VA_ARGS__))
#define HOCKET_SCOPED_CAPABILITY HOCKET_THREAD_ATTRIBUTE(scoped_lockable)
#define HOCKET_ACQUIRE(...) HOCKET_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HOCKET_RELEASE(...) HOCKET_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HOCKET_TRY_ACQUIRE(...) HOCKET_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
