#include "dist/transports/detail/nccl_api.h"

#include <string>

#include "tensor/base/error.h"

#if defined(ATHANOR_NCCL_LIBRARY)  // else it is linked to programs
#include <dlfcn.h>
#endif

namespace athanor::dist {
namespace {

#if !defined(ATHANOR_NCCL_LIBRARY)

NcclApi load() {
#define ATH_LINKED(member, function) .member = ::function,
  return {ATH_NCCL_FUNCTIONS(ATH_LINKED)};
#undef ATH_LINKED
}

#else

constexpr int kMinVersion = 22000;  // non-blocking communicators that do not hang at the end

NcclApi load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  const char* why = library ? nullptr : dlerror();
  const std::string missing = why ? why : "";
  // The path at build time.
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
#define ATH_FIND(member, function) find(api.member, #function);
  ATH_NCCL_FUNCTIONS(ATH_FIND)
#undef ATH_FIND
  int version = 0;
  if (api.get_version(&version) != ncclSuccess || version < kMinVersion)
    detail::fail<BackendError>("nccl: libnccl.so.2 must be 2.20 or newer, but is {}", version);
  return api;
}

#endif

}  // namespace

const NcclApi& nccl_api() {
  static const NcclApi api = load();  // retried after an exception
  return api;
}

}  // namespace athanor::dist
