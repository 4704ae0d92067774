#include "dist/launch/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/hash.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint64_t kMagic = 0x32726f6e61687441;  // "Athanor2"
constexpr std::size_t kMost = 64 << 10;
constexpr milliseconds kRetry{50};
/// How long one who has connected may take to say who it is: it keeps nobody else waiting for longer.
constexpr milliseconds kHandshake{2000};

struct Hello {
  std::uint64_t magic = kMagic, job = 0;
  std::uint32_t world_size = 0, rank = 0;
};

enum class Status : std::uint32_t { welcome, other_job, other_size, taken };

struct Answer {
  std::uint64_t magic = kMagic;
  Status status = Status::welcome;
  std::uint32_t bytes = 0;
};

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
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Waits until the socket is ready for `events` or the time is over.
bool ready(int socket, short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    pollfd one{socket, events, 0};
    const int got = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
    if (got > 0) return true;
  }
}

/// All of it, or false: the other end has gone, or the time is over.
bool send_all(int socket, std::span<const std::byte> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!ready(socket, POLLOUT, until)) {
      return false;
    }
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (!ready(socket, POLLIN, until)) {
      return false;
    }
  }
  return true;
}

template <class T> std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

void make_nonblocking(int socket) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL, 0) | O_NONBLOCK);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
}

Socket listen_at(int port) {
  Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  any.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<std::uint16_t>(port));
  const auto* address = reinterpret_cast<const sockaddr*>(&any);
  socklen_t length = sizeof any;
  if (!socket) {  // a machine without IPv6
    socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address = reinterpret_cast<const sockaddr*>(&any4);
    length = sizeof any4;
  } else {
    ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket || ::bind(socket.fd(), address, length) != 0 || ::listen(socket.fd(), 1024) != 0) {
    detail::fail<BackendError>(
        "ranks: rank 0 must be able to listen at port {}, but got: {}; set MASTER_PORT", port,
        std::strerror(errno));
  }
  return socket;
}

// Rank 0 ---------------------------------------------------------------------------------------------------

/// Hears who has connected, and answers. The rank that has been served; -1 where it was none.
int serve_one(int socket, const Place& place, std::span<const std::byte> blob,
              const std::vector<bool>& served, Clock::time_point until) {
  Hello hello;
  if (!receive_all(socket, bytes_of(hello), until) || hello.magic != kMagic) return -1;
  Answer answer{.bytes = static_cast<std::uint32_t>(blob.size())};
  if (hello.job != kernels::fnv1a(place.job)) {
    answer.status = Status::other_job;
  } else if (hello.world_size != static_cast<std::uint32_t>(place.world_size)) {
    answer.status = Status::other_size;
  } else if (hello.rank == 0 || hello.rank >= served.size() || served[hello.rank]) {
    answer.status = Status::taken;
  }
  if (answer.status != Status::welcome) {
    answer.bytes = 0;
    (void)send_all(socket, bytes_of(answer), until);
    return -1;
  }
  std::byte received{};
  const bool served_now = send_all(socket, bytes_of(answer), until) && send_all(socket, blob, until) &&
                          receive_all(socket, bytes_of(received), until);
  return served_now ? static_cast<int>(hello.rank) : -1;
}

std::string names_of_missing(const std::vector<bool>& served) {
  std::string names;
  for (std::size_t rank = 1; rank < served.size(); ++rank) {
    if (!served[rank]) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
  }
  return names;
}

void serve(const Place& place, std::span<const std::byte> blob, Socket listening, Clock::time_point until,
           milliseconds timeout) {
  make_nonblocking(listening.fd());
  std::vector<bool> served(static_cast<std::size_t>(place.world_size));
  for (int left = place.world_size - 1; left > 0;) {
    if (!ready(listening.fd(), POLLIN, until)) {
      detail::fail<PeerLostError>(
          "ranks: all {} must come to rank 0 at port {} within {} s, but these have not: {}",
          place.world_size, place.port, static_cast<double>(timeout.count()) / 1000,
          names_of_missing(served));
    }
    const Socket guest(::accept(listening.fd(), nullptr, nullptr));
    if (!guest) continue;
    make_nonblocking(guest.fd());
    const int rank = serve_one(guest.fd(), place, blob, served, std::min(until, Clock::now() + kHandshake));
    if (rank < 0) continue;
    served[static_cast<std::size_t>(rank)] = true;
    --left;
  }
}

// The others -----------------------------------------------------------------------------------------------

Socket connect_once(const Place& place, Clock::time_point until) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0)
    return Socket();
  Socket connected;
  for (const addrinfo* at = found; at && !connected; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) {
      int error = errno;
      socklen_t length = sizeof error;
      if (error != EINPROGRESS || !ready(socket.fd(), POLLOUT, until)) continue;
      if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) continue;
    }
    connected = std::move(socket);
  }
  ::freeaddrinfo(found);
  return connected;
}

void check_answer(const Place& place, const Answer& answer) {
  const char* why = answer.status == Status::other_job    ? "is of another job"
                    : answer.status == Status::other_size ? "is of a job of another size"
                                                          : "has that rank already, or has no such rank";
  ATH_CHECK(answer.status == Status::welcome,
            "ranks: rank {} of {} must be one that rank 0 at {}:{} waits for, but that {}", place.rank,
            place.world_size, place.host, place.port, why);
  ATH_CHECK(answer.bytes <= kMost, "ranks: what rank 0 shares must be at most {} bytes, but is {}", kMost,
            answer.bytes);
}

std::vector<std::byte> ask(const Place& place, Clock::time_point until, milliseconds timeout) {
  const char* how_far = "nobody answers there";
  while (Clock::now() < until) {
    const Socket socket = connect_once(place, until);
    if (socket) {
      Hello hello{.job = kernels::fnv1a(place.job),
                  .world_size = static_cast<std::uint32_t>(place.world_size),
                  .rank = static_cast<std::uint32_t>(place.rank)};
      Answer answer;
      if (send_all(socket.fd(), bytes_of(hello), until) &&
          receive_all(socket.fd(), bytes_of(answer), until)) {
        ATH_CHECK(answer.magic == kMagic, "ranks: rank 0 must be at {}:{}, but there is another program",
                  place.host, place.port);
        check_answer(place, answer);
        std::vector<std::byte> blob(answer.bytes);
        std::byte received{1};
        if (receive_all(socket.fd(), blob, until) && send_all(socket.fd(), bytes_of(received), until))
          return blob;
      }
      how_far = "who is there says nothing";
    }
    std::this_thread::sleep_for(kRetry);
  }
  detail::fail<PeerLostError>("ranks: rank 0 must answer rank {} at {}:{} within {} s, but {}", place.rank,
                              place.host, place.port, static_cast<double>(timeout.count()) / 1000, how_far);
}

}  // namespace

std::vector<std::byte> share_from_rank_0(const Place& place, std::span<const std::byte> mine,
                                         const RendezvousOptions& options) {
  ATH_CHECK(mine.size() <= kMost, "ranks: what rank 0 shares must be at most {} bytes, but is {}", kMost,
            mine.size());
  Socket listening(place.listening);
  if (place.alone()) return {mine.begin(), mine.end()};
  ATH_CHECK(!place.host.empty() && place.port > 0,
            "ranks: the address of rank 0 must be known, but is not; set MASTER_ADDR and MASTER_PORT");
  const Clock::time_point until = Clock::now() + options.timeout;
  if (place.rank > 0) return ask(place, until, options.timeout);
  if (!listening) listening = listen_at(place.port);
  serve(place, mine, std::move(listening), until, options.timeout);
  return {mine.begin(), mine.end()};
}

Listening listen_anywhere(const char* host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  if (::getaddrinfo(host, nullptr, &hints, &found) == 0) {
    address.sin_addr = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
    ::freeaddrinfo(found);
  }
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket, 1024) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    if (socket >= 0) ::close(socket);
    detail::fail<BackendError>("ranks: {} must have a free port, but got: {}", host, std::strerror(error));
  }
  return {socket, ntohs(address.sin_port)};
}

}  // namespace athanor::dist
