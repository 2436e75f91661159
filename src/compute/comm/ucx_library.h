// libucp, loaded at the first call of ucx_library(). A binary that does not use UCX neither needs
// the library nor runs its constructors, which install signal handlers.
#pragma once

#ifdef HOCKET_HAS_UCX

#include <ucp/api/ucp.h>

#include "base/result.h"

namespace hocket {

#define HOCKET_UCX_CALLS(call)                                                                 \
  call(ucp_cleanup) call(ucp_config_modify) call(ucp_config_read) call(ucp_config_release)     \
      call(ucp_ep_close_nbx) call(ucp_ep_create) call(ucp_ep_flush_nbx) call(ucp_get_version)  \
          call(ucp_get_version_string) call(ucp_init_version) call(ucp_request_cancel)         \
              call(ucp_request_check_status) call(ucp_request_free) call(ucp_tag_msg_recv_nbx) \
                  call(ucp_tag_probe_nb) call(ucp_tag_recv_nbx) call(ucp_tag_send_nbx)         \
                      call(ucp_worker_arm) call(ucp_worker_create) call(ucp_worker_destroy)    \
                          call(ucp_worker_get_address) call(ucp_worker_get_efd)                \
                              call(ucp_worker_progress) call(ucp_worker_release_address)

// The functions of the library under their own names, as ucx.ucp_worker_arm(worker).
struct UcxLibrary {
#define HOCKET_UCX_CALL(name) decltype(&::name) name = nullptr;
  HOCKET_UCX_CALLS(HOCKET_UCX_CALL)
#undef HOCKET_UCX_CALL
  decltype(&::ucs_status_string) ucs_status_string = nullptr;
};

// Loads the library once. Errors: io, with what to install.
// Thread: any; during the first call no other thread may read or set environment variables.
Result<const UcxLibrary*> ucx_library();

}  // namespace hocket

#endif
