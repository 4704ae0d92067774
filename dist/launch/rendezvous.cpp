#include "dist/launch/rendezvous.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>

#include "dist/launch/detail/tcp.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/io/sha256.h"

namespace athanor::dist {
namespace {

using namespace tcp;
using std::chrono::milliseconds;

constexpr std::uint64_t kMagic = 0x35726f6e61687441;  // "Athanor5"
constexpr std::size_t kMax = 64 << 10;
constexpr milliseconds kRetry{50};
/// Time limit for a client, from its first message on, and the number of clients that have not sent one yet.
constexpr milliseconds kHandshake{2000};
constexpr std::size_t kMaxClients = 512;

using Nonce = std::array<std::byte, 16>;  // for one conversation
using Proof = std::array<std::byte, 32>;

struct Hello {
  std::uint64_t magic = kMagic, job = 0;
  std::uint32_t world_size = 0, rank = 0;
  Nonce nonce = {};
};

enum class Status : std::uint32_t { welcome, other_job, other_size, taken, other_secret };

struct Challenge {
  std::uint64_t magic = kMagic;
  Status status = Status::welcome;
  std::uint32_t unused = 0;
  Nonce nonce = {};
};

struct Answer {
  Status status = Status::welcome;
  std::uint32_t bytes = 0;
  Proof proof = {};
};

template <class T> std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Nonce draw_nonce() {
  Nonce nonce;
  if (::getentropy(nonce.data(), nonce.size()) != 0)
    detail::fail<BackendError>("ranks: the system must provide random bytes, but got: {}",
                               std::strerror(errno));
  return nonce;
}

/// The proof of this end, "rank 0" or "client", that it knows the secret, for this conversation.
Proof prove(const RankInfo& info, std::string_view who, const Hello& hello, const Challenge& challenge,
            std::span<const std::byte> blob = {}) {
  std::vector<std::byte> message;
  const auto add = [&](std::span<const std::byte> bytes) {
    message.insert(message.end(), bytes.begin(), bytes.end());
  };
  add(std::as_bytes(std::span(who)));
  add(std::as_bytes(std::span(&hello, 1)));
  add(std::as_bytes(std::span(&challenge, 1)));
  add(blob);
  return hmac_sha256(std::as_bytes(std::span(info.secret)), message);
}

/// Constant-time comparison: the time does not reveal the number of matching bytes.
bool equal(const Proof& a, const Proof& b) {
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

bool is_on_one_machine(const RankInfo& info) {
  return info.local_size == info.world_size;
}

/// Listens at the master's address. Listens at all addresses if that one is not this machine's (it is
/// translated on the way), or is local only (Debian maps a machine's own name to 127.0.1.1).
Socket listen_as_master(const RankInfo& info) {
  std::vector<sockaddr_storage> addresses = addresses_of(info.host.c_str(), info.port);
  if (!is_on_one_machine(info)) std::erase_if(addresses, is_loopback);
  for (const int family : {AF_INET6, AF_INET}) {
    for (const sockaddr_storage& any : addresses_of(nullptr, info.port, family)) addresses.push_back(any);
  }
  Socket socket = listen_at(addresses);
  if (!socket) {
    detail::fail<BackendError>(
        "ranks: rank 0 must be able to listen at port {}, but got: {}; set MASTER_PORT", info.port,
        std::strerror(errno));
  }
  return socket;
}

// Rank 0 ---------------------------------------------------------------------------------------------------

class Server {
 public:
  Server(const RankInfo& info, std::span<const std::byte> blob)
      : info_(info), blob_(blob), served_(static_cast<std::size_t>(info.world_size)) {
    served_[0] = true;
  }

  std::vector<std::size_t> missing() const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < served_.size(); ++rank)
      if (!served_[rank]) ranks.push_back(rank);
    return ranks;
  }

  /// Answers clients whose first message is there, and takes in others, which delay no one until then.
  void serve(int listening, Clock::time_point until) {
    std::vector<pollfd> ends;
    for (const Socket& client : clients_) ends.push_back({client.fd(), POLLIN, 0});
    ends.push_back({listening, POLLIN, 0});
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    if (::poll(ends.data(), ends.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000))) <= 0)
      return;
    for (std::size_t i = clients_.size(); i-- > 0;) {
      if (ends[i].revents == 0) continue;
      answer(clients_[i].fd());
      clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (ends.back().revents == 0) return;
    Socket client(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) return std::this_thread::sleep_for(kRetry);  // a descriptor may become available
    const int whole = sizeof(Hello);
    ::setsockopt(client.fd(), SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof whole);
    if (clients_.size() == kMaxClients) clients_.erase(clients_.begin());  // that rank tries again
    clients_.push_back(std::move(client));
  }

 private:
  Status judge(const Hello& hello) const {
    if (hello.job != kernels::fnv1a(info_.job)) return Status::other_job;
    if (hello.world_size != static_cast<std::uint32_t>(info_.world_size)) return Status::other_size;
    return hello.rank < served_.size() && !served_[hello.rank] ? Status::welcome : Status::taken;
  }

  /// Rank 0's side of a conversation, with a rank or a stranger.
  void answer(int socket) {
    const Clock::time_point until = Clock::now() + kHandshake;
    const int any = 1;
    Hello hello;
    if (!receive_all(socket, bytes_of(hello), until) || hello.magic != kMagic) return;
    ::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
    Challenge challenge{.status = judge(hello), .nonce = draw_nonce()};
    if (!send_all(socket, bytes_of(challenge), until) || challenge.status != Status::welcome) return;
    Proof proof;
    if (!receive_all(socket, bytes_of(proof), until)) return;
    Answer answer;
    if (equal(proof, prove(info_, "client", hello, challenge))) {
      answer.bytes = static_cast<std::uint32_t>(blob_.size());
      answer.proof = prove(info_, "rank 0", hello, challenge, blob_);
    } else {
      answer.status = Status::other_secret;
    }
    std::byte received{};
    if (!send_all(socket, bytes_of(answer), until) || answer.status != Status::welcome) return;
    if (send_all(socket, blob_, until) && receive_all(socket, bytes_of(received), until))
      served_[hello.rank] = true;
  }

  const RankInfo& info_;
  std::span<const std::byte> blob_;
  std::vector<bool> served_;  // by rank
  std::vector<Socket> clients_;
};

void serve(const RankInfo& info, std::span<const std::byte> blob, const Socket& listening,
           Clock::time_point until, milliseconds timeout) {
  ::fcntl(listening.fd(), F_SETFL, ::fcntl(listening.fd(), F_GETFL, 0) | O_NONBLOCK);
  ::fcntl(listening.fd(), F_SETFD, FD_CLOEXEC);
  Server server(info, blob);
  for (auto missing = server.missing(); !missing.empty(); missing = server.missing()) {
    if (Clock::now() >= until) {
      detail::fail<PeerLostError>(
          "ranks: all {} must connect to rank 0 at port {} within {} s, but these have not: {}",
          info.world_size, info.port, static_cast<double>(timeout.count()) / 1000, fmt::join(missing, ", "));
    }
    server.serve(listening.fd(), until);
  }
}

// The others -----------------------------------------------------------------------------------------------

void check_status(const RankInfo& info, Status status) {
  const char* why = status == Status::other_job      ? "belongs to another job"
                    : status == Status::other_size   ? "belongs to a job of another size"
                    : status == Status::other_secret ? "has another ATHANOR_SECRET"
                                                     : "already has that rank, or expects no such rank";
  ATH_CHECK(status == Status::welcome,
            "ranks: rank {} of {} must be expected by rank 0 at {}:{}, but rank 0 {}", info.rank,
            info.world_size, info.host, info.port, why);
}

/// One conversation. Returns nullopt if it is interrupted and may be retried.
std::optional<std::vector<std::byte>> ask_once(const RankInfo& info, int socket, Clock::time_point until) {
  Hello hello{.job = kernels::fnv1a(info.job),
              .world_size = static_cast<std::uint32_t>(info.world_size),
              .rank = static_cast<std::uint32_t>(info.rank),
              .nonce = draw_nonce()};
  Challenge challenge;
  const std::span<std::byte> heard = bytes_of(challenge);
  if (!send_all(socket, bytes_of(hello), until) ||
      !receive_all(socket, heard.first(sizeof challenge.magic), until))
    return std::nullopt;
  ATH_CHECK(challenge.magic == kMagic, "ranks: rank 0 must be at {}:{}, but another program answers there",
            info.host, info.port);
  if (!receive_all(socket, heard.subspan(sizeof challenge.magic), until)) return std::nullopt;
  check_status(info, challenge.status);
  Proof proof = prove(info, "client", hello, challenge);
  Answer answer;
  if (!send_all(socket, bytes_of(proof), until) || !receive_all(socket, bytes_of(answer), until))
    return std::nullopt;
  check_status(info, answer.status);
  ATH_CHECK(answer.bytes <= kMax, "ranks: what rank 0 shares must be at most {} bytes, but is {}", kMax,
            answer.bytes);
  std::vector<std::byte> blob(answer.bytes);
  if (!receive_all(socket, blob, until)) return std::nullopt;
  ATH_CHECK(equal(answer.proof, prove(info, "rank 0", hello, challenge, blob)),
            "ranks: rank 0 must be at {}:{}, but the process there does not know ATHANOR_SECRET", info.host,
            info.port);
  std::byte received{1};
  if (!send_all(socket, bytes_of(received), until)) return std::nullopt;
  return blob;
}

std::vector<std::byte> ask(const RankInfo& info, Clock::time_point until, milliseconds timeout) {
  const char* how_far = "nothing answers there";
  while (Clock::now() < until) {
    if (const Socket socket = connect_to(addresses_of(info.host.c_str(), info.port), until)) {
      if (auto blob = ask_once(info, socket.fd(), until)) return *std::move(blob);
      how_far = "the process there says nothing";
    }
    std::this_thread::sleep_for(kRetry);
  }
  detail::fail<PeerLostError>("ranks: rank 0 must answer rank {} at {}:{} within {} s, but {}", info.rank,
                              info.host, info.port, static_cast<double>(timeout.count()) / 1000, how_far);
}

}  // namespace

std::vector<std::byte> share_from_rank_0(const RankInfo& info, std::span<const std::byte> mine,
                                         milliseconds timeout) {
  ATH_CHECK(mine.size() <= kMax, "ranks: what rank 0 shares must be at most {} bytes, but is {}", kMax,
            mine.size());
  Socket listening(info.listening);
  if (info.alone()) return {mine.begin(), mine.end()};
  ATH_CHECK(!info.host.empty() && info.port > 0,
            "ranks: the address of rank 0 must be known, but is not; set MASTER_ADDR and MASTER_PORT");
  const Clock::time_point until = Clock::now() + timeout;
  if (info.rank > 0) return ask(info, until, timeout);
  if (!listening) listening = listen_as_master(info);
  serve(info, mine, listening, until, timeout);
  return {mine.begin(), mine.end()};
}

std::string warn_of_strangers(const RankInfo& info) {
  const bool meets = !info.alone() && !info.host.empty() && info.launcher != Launcher::nccl_comm;
  if (!meets || !info.secret.empty()) return {};
  const std::vector<sockaddr_storage> addresses = addresses_of(info.host.c_str(), info.port);
  const bool local = is_on_one_machine(info) && std::ranges::all_of(addresses, is_loopback);
  if (local) return {};
  return fmt::format(
      "ATHANOR_SECRET is not set: any process that reaches {}:{} can take the place of a rank; set it to the "
      "same random words on all ranks",
      info.host, info.port);
}

std::string draw_secret() {
  std::string hex;
  for (const std::byte byte : draw_nonce()) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

Listening listen_anywhere() {
  Socket socket = listen_at(addresses_of("127.0.0.1", 0, AF_INET));
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (!socket || ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    detail::fail<BackendError>("ranks: 127.0.0.1 must have a free port, but got: {}", std::strerror(errno));
  return {socket.release(), ntohs(address.sin_port)};
}

}  // namespace athanor::dist
