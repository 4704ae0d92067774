#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace athanor {

/// Root of every exception the library throws. The message follows one grammar:
/// `op: what must hold, but got value`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// Continues the message of an error in flight, for a caller who knows more.
  void append(const std::string& more) { std::runtime_error::operator=(std::runtime_error(what() + more)); }
};

/// The caller broke a documented rule (shape, dtype, range, mode).
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// A library below this one failed: CUDA, cuDNN, cuBLAS, NCCL, MPI, oneDNN.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// A file could not be read or written, or has unexpected content. Names file and offset.
class IoError : public Error {
 public:
  using Error::Error;
};

/// Memory ran out. Reports the requested, live and cached bytes, by tag.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// A rank of the job is gone or does not respond. Names the rank and the operation.
class PeerLostError : public Error {
 public:
  using Error::Error;
};

namespace detail {

template <class Exception = ArgumentError, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Exception(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace detail
}  // namespace athanor

/// Checks a rule the caller must keep, in every build; formats the message only on failure.
#define ATH_CHECK(condition, ...)             \
  do {                                        \
    if (!(condition)) [[unlikely]]            \
      ::athanor::detail::fail<>(__VA_ARGS__); \
  } while (false)
