#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

// The TCP that ranks need before they have their own network.

namespace athanor::dist::tcp {

using Clock = std::chrono::steady_clock;

/// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Waits until the socket is ready for `events` or the deadline has passed.
bool ready(int socket, short events, Clock::time_point until);
/// All bytes, or false: the other end is gone, or the deadline has passed.
bool send_all(int socket, std::span<const std::byte> bytes, Clock::time_point until);
bool receive_all(int socket, std::span<std::byte> bytes, Clock::time_point until);

/// Addresses of a host or, if null, any address of this machine.
std::vector<sockaddr_storage> addresses_of(const char* host, int port, int family = AF_UNSPEC);
bool is_loopback(const sockaddr_storage& address);
/// Listens at the first address of this machine among them; otherwise returns no socket and sets errno.
Socket listen_at(const std::vector<sockaddr_storage>& addresses);
/// Connects to the first address that answers, then non-blocking; no socket if none answers.
Socket connect_to(const std::vector<sockaddr_storage>& addresses, Clock::time_point until);

}  // namespace athanor::dist::tcp
