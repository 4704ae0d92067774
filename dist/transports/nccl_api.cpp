#include "dist/transports/detail/nccl_api.h"

#include <string>

#include "tensor/error.h"

#if !defined(ATHANOR_SIMT)
#include <dlfcn.h>
#endif

namespace athanor::dist {
namespace {

#if defined(ATHANOR_SIMT)

NcclApi load() {
  return {ncclGetVersion,   ncclGetUniqueId, ncclCommInitRankConfig, ncclCommFinalize,
          ncclCommDestroy,  ncclCommAbort,   ncclCommGetAsyncError,  ncclGetErrorString,
          ncclGetLastError, ncclGroupStart,  ncclGroupEnd,           ncclSend,
          ncclRecv,         ncclAllReduce,   ncclReduceScatter,      ncclAllGather,
          ncclReduce,       ncclBroadcast};
}

#else

constexpr int kLeastVersion = 22000;  // non-blocking communicators whose ends do not hang

NcclApi load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  const char* why = library ? nullptr : dlerror();
  const std::string missing = why ? why : "";
  // Where it was when this was built.
  if (!library) library = dlopen(ATHANOR_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    detail::fail<BackendError>(
        "nccl: ranks on several GPUs need NCCL's library, but there is none: {}; install libnccl2, or point "
        "LD_LIBRARY_PATH to it",
        missing);
  }
  NcclApi api;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(dlsym(library, name));
    if (!function)
      detail::fail<BackendError>("nccl: libnccl.so.2 must have {}, but is too old; install 2.20 or newer",
                                 name);
  };
  find(api.get_version, "ncclGetVersion");
  find(api.get_unique_id, "ncclGetUniqueId");
  find(api.init, "ncclCommInitRankConfig");
  find(api.finalize, "ncclCommFinalize");
  find(api.destroy, "ncclCommDestroy");
  find(api.abort, "ncclCommAbort");
  find(api.async_error, "ncclCommGetAsyncError");
  find(api.error_string, "ncclGetErrorString");
  find(api.last_error, "ncclGetLastError");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  find(api.send, "ncclSend");
  find(api.receive, "ncclRecv");
  find(api.all_reduce, "ncclAllReduce");
  find(api.reduce_scatter, "ncclReduceScatter");
  find(api.all_gather, "ncclAllGather");
  find(api.reduce, "ncclReduce");
  find(api.broadcast, "ncclBroadcast");
  int version = 0;
  if (api.get_version(&version) != ncclSuccess || version < kLeastVersion)
    detail::fail<BackendError>("nccl: libnccl.so.2 must be 2.20 or newer, but is {}", version);
  return api;
}

#endif

}  // namespace

const NcclApi& nccl_api() {
  static const NcclApi api = load();  // tried again where it throws
  return api;
}

}  // namespace athanor::dist
