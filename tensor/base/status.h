#pragma once

#include "tensor/base/counters.h"
#include "tensor/base/error.h"

namespace athanor::detail {

/// Failure codes of a library below this one. Specialised for each status type next to the library's wrapper:
/// `library` ("CUDA"), ok(status), text(status).
template <class Status> struct StatusTraits;

template <class Status> void check_status(Status status, const char* expression, const Site& site) {
  using Traits = StatusTraits<Status>;
  if (Traits::ok(status)) [[likely]]
    return;
  fail<BackendError>("{}: {} must succeed, but got {} ({}:{})", Traits::library, expression,
                     Traits::text(status), site.file, site.line);
}

}  // namespace athanor::detail

/// Calls a function of CUDA, cuBLAS, cuDNN or NCCL. On failure throws BackendError with the call, its
/// location and the library's text.
#define ATH_TRY(expression) \
  ::athanor::detail::check_status((expression), #expression, ::athanor::Site::current())
