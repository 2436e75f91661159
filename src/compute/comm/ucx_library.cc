#ifdef HOCKET_HAS_UCX

#include "compute/comm/ucx_library.h"

#include <dlfcn.h>

#include <csignal>
#include <cstdlib>

#include "compute/comm/ucx_settings.h"

namespace hocket {

namespace {

template <class Call>
bool find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

std::unexpected<Error> unusable(const char* why) {
  return fail(error(ErrorCode::io, "UCX cannot be used: {}", why)
                  .with_fix("install libucx0 1.13 or newer (Debian, Ubuntu: apt install libucx0)"));
}

Result<UcxLibrary> load() {
  for (const UcxVariable& ours : kUcxVariables)
    if (ours.where != UcxVariable::Where::without_infiniband || !has_infiniband())
      setenv(ours.name, ours.value, 0);
  struct sigaction hang_up{};  // UCX uses this signal for a debugger
  sigaction(SIGHUP, nullptr, &hang_up);
  void* ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  void* ucs = ucp == nullptr ? nullptr : dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
  sigaction(SIGHUP, &hang_up, nullptr);
  if (ucs == nullptr) return unusable(dlerror());
  UcxLibrary ucx;
#define HOCKET_UCX_CALL(name) \
  if (!find(ucp, #name, ucx.name)) return unusable(dlerror());
  HOCKET_UCX_CALLS(HOCKET_UCX_CALL)
#undef HOCKET_UCX_CALL
  if (!find(ucs, "ucs_status_string", ucx.ucs_status_string)) return unusable(dlerror());
  unsigned major = 0, minor = 0, release = 0;
  ucx.ucp_get_version(&major, &minor, &release);
  if (major != UCP_API_MAJOR || minor < UCP_API_MINOR) {
    return unusable(fmt::format("version {}.{} is here, {}.{} is needed", major, minor,
                                UCP_API_MAJOR, UCP_API_MINOR)
                        .c_str());
  }
  return ucx;
}

}  // namespace

Result<const UcxLibrary*> ucx_library() {
  static const Result<UcxLibrary> loaded = load();
  if (!loaded) return std::unexpected(loaded.error());
  return &*loaded;
}

}  // namespace hocket

#endif
