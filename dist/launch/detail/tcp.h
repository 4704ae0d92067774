#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

// TCP, as far as ranks need it before they have a network of their own.

namespace athanor::dist::tcp {

using Clock = std::chrono::steady_clock;

/// Closes what it holds.
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

/// Waits until the socket is ready for `events` or the time is over.
bool ready(int socket, short events, Clock::time_point until);
/// All of it, or false: the other end has gone, or the time is over.
bool send_all(int socket, std::span<const std::byte> bytes, Clock::time_point until);
bool receive_all(int socket, std::span<std::byte> bytes, Clock::time_point until);

/// Of a host, or, where that is null, any of this machine's.
std::vector<sockaddr_storage> addresses_of(const char* host, int port, int family = AF_UNSPEC);
bool is_loopback(const sockaddr_storage& address);
/// Listens at the first of them that is this machine's; none, and errno, where there is none.
Socket listen_at(const std::vector<sockaddr_storage>& addresses);
/// Connects to the first of them that answers, without blocking from then on; none where nobody does.
Socket connect_to(const std::vector<sockaddr_storage>& addresses, Clock::time_point until);

}  // namespace athanor::dist::tcp
