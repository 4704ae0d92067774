// How ranks without MPI meet, and keep strangers out.
#include "dist/launch/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/launch/bootstrap.h"
#include "dist/launch/detail/tcp.h"
#include "dist/launch/launcher.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace athanor::rendezvous_test {

using namespace std::chrono_literals;
using dist::find_rank_info;
using dist::Launcher;
using dist::RankInfo;

class Rendezvous : public testing::Test {
 protected:
  RankInfo rank_info(int rank, int size = 3) const {
    RankInfo at{.launcher = Launcher::torchrun, .rank = rank, .world_size = size};
    at.host = "127.0.0.1";
    at.port = meeting_.port;
    if (rank == 0) at.listening = meeting_.socket;
    at.job = "a test";
    return at;
  }
  static std::string share(const RankInfo& at, const std::string& mine,
                           std::chrono::milliseconds timeout = 120s) {
    const auto bytes = dist::share_from_rank_0(at, std::as_bytes(std::span(mine)), timeout);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", meeting_.port); }
  /// What a stranger gets who says this.
  std::string stranger(const std::string& words) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(meeting_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    (void)!::send(socket, words.data(), words.size(), MSG_NOSIGNAL);
    ::shutdown(socket, SHUT_WR);
    std::string answer;
    char buffer[256];
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(socket, buffer, sizeof buffer, 0);
      answer.append(buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    ::close(socket);
    return answer;
  }

  dist::Listening meeting_ = dist::listen_anywhere();
};

// A name may have several addresses, of which one leads nowhere.
TEST(Tcp, AnAddressThatIsSilentIsNotTheLast) {
  namespace tcp = dist::tcp;
  const auto listen = [](int backlog) {
    tcp::Socket socket = tcp::listen_at(tcp::addresses_of("127.0.0.1", 0));
    EXPECT_EQ(::listen(socket.fd(), backlog), 0);
    return socket;
  };
  const auto address_of = [](const tcp::Socket& socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    return address;
  };
  const tcp::Socket full = listen(0), free = listen(5);
  const auto soon = [] { return tcp::Clock::now() + 1s; };
  std::vector<tcp::Socket> guests;  // nobody takes them in, until no more are heard
  while (guests.empty() || guests.back()) guests.push_back(tcp::connect_to({address_of(full)}, soon()));
  // As long as it may wait for an address, and much longer.
  const auto began = tcp::Clock::now();
  EXPECT_TRUE(tcp::connect_to({address_of(full), address_of(free)}, began + 1h));
  EXPECT_LT(tcp::Clock::now() - began, 200s);
}

TEST_F(Rendezvous, AllRanksGetTheDataOfRank0) {
  const std::string blob(40000, 'x');
  std::atomic<int> right{0};
  std::vector<std::jthread> ranks;
  for (int rank = 2; rank >= 0; --rank) {
    ranks.emplace_back([&, rank] {
      const std::string got = share(rank_info(rank), rank == 0 ? blob : "");
      right += got == blob;
    });
    std::this_thread::sleep_for(20ms);  // rank 0 comes last
  }
  ranks.clear();
  EXPECT_EQ(right, 3);
}

TEST_F(Rendezvous, OneRankNeedsNoPeer) {
  EXPECT_EQ(share({}, "me"), "me");
  ::close(meeting_.socket);
}

TEST_F(Rendezvous, StrangersDoNoHarm) {
  std::string got;
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  EXPECT_EQ(stranger("GET / HTTP/1.1\r\n\r\n and what else a scanner says"), "");
  EXPECT_EQ(stranger(""), "");
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
}

TEST_F(Rendezvous, RanksOfOtherJobsAreRejected) {
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  RankInfo other = rank_info(1, 2), size = rank_info(1, 3), many = rank_info(3, 4);
  other.job = "another";
  many.world_size = 2;
  many.rank = 2;
  EXPECT_ERROR(ArgumentError, share(other, ""), "ranks", "rank 1", "2", "rank 0", address());
  EXPECT_ERROR(ArgumentError, share(size, ""), "ranks", "rank 1", "3", "rank 0", address());
  EXPECT_ERROR(ArgumentError, share(many, ""), "ranks", "rank 2", "2", "rank 0", address());
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
}

/// Ends the conversation with a rank that comes again: as a program that is no rank 0.
void turn_away(const dist::Listening& at) {
  const int guest = ::accept(at.socket, nullptr, nullptr);
  char buffer[64];
  (void)!::recv(guest, buffer, sizeof buffer, 0);
  const std::string words = "HTTP/1.1 400 Bad Request";
  (void)!::send(guest, words.data(), words.size(), MSG_NOSIGNAL);
  ::close(guest);
  ::close(at.socket);
}

// What rank 1 says is heard by a proxy first, which says it to rank 0 and is gone before it has the answer.
TEST_F(Rendezvous, ADisconnectedRankRetries) {
  const dist::Listening proxy = dist::listen_anywhere();
  std::string words;
  std::jthread cut_off([&] {
    const int guest = ::accept(proxy.socket, nullptr, nullptr);
    char buffer[64];
    const ssize_t got = ::recv(guest, buffer, sizeof buffer, 0);
    words.assign(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    ::close(guest);
    turn_away(proxy);
  });
  RankInfo elsewhere = rank_info(1, 2);
  elsewhere.port = proxy.port;
  EXPECT_ERROR(ArgumentError, share(elsewhere, ""), "another program");
  cut_off.join();
  ASSERT_FALSE(words.empty());
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  EXPECT_FALSE(stranger(words).empty());
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
}

TEST_F(Rendezvous, AnExtraRankIsRejected) {
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0), "blob"), "blob"); });
  EXPECT_EQ(share(rank_info(1), ""), "blob");
  EXPECT_ERROR(ArgumentError, share(rank_info(1), ""), "ranks", "rank 1", "3", "rank 0", address());
  EXPECT_EQ(share(rank_info(2), ""), "blob");
}

TEST_F(Rendezvous, AMissingRankIsNamed) {
  const auto began = std::chrono::steady_clock::now();
  std::jthread guest([&] { EXPECT_EQ(share(rank_info(2, 4), ""), "blob"); });
  pollfd knocks{meeting_.socket, POLLIN, 0};
  ASSERT_EQ(::poll(&knocks, 1, 120'000), 1);
  EXPECT_ERROR(PeerLostError, share(rank_info(0, 4), "blob", 5s), "ranks", "5 s", "1, 3");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 200s);
}

TEST_F(Rendezvous, Rank0MustAnswerInTime) {
  ::close(meeting_.socket);
  EXPECT_ERROR(PeerLostError, share(rank_info(1), "", 300ms), "ranks", "rank 0", "rank 1", address(),
               "0.3 s");
}

TEST_F(Rendezvous, AnotherProgramAtThatPortIsAnError) {
  std::jthread program([&] { turn_away(meeting_); });
  EXPECT_ERROR(ArgumentError, share(rank_info(1), ""), "ranks", "rank 0", address());
}

// Strangers
// ---------------------------------------------------------------------------------------------------

int connect_to_port(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

TEST_F(Rendezvous, SilentStrangersDelayNoRank) {
  std::vector<int> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(connect_to_port(meeting_.port));
  const auto began = std::chrono::steady_clock::now();
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 60s) << "not two seconds for each of the strangers";
  for (const int socket : silent) ::close(socket);
}

TEST_F(Rendezvous, WithoutTheSecretNoPlaceCanBeTaken) {
  const auto knowing = [&](int rank, const char* secret) {
    RankInfo at = rank_info(rank, 2);
    at.secret = secret;
    return at;
  };
  std::jthread server([&] { EXPECT_EQ(share(knowing(0, "of the job"), "blob"), "blob"); });
  for (const char* guess : {"", "of another", "of the jo"}) {
    EXPECT_ERROR(ArgumentError, share(knowing(1, guess), ""), "ranks", "rank 1", "ATHANOR_SECRET");
  }
  EXPECT_EQ(share(knowing(1, "of the job"), ""), "blob");
}

// What a rank says is recorded on its way to rank 0, and said again.
TEST_F(Rendezvous, ReplayedMessagesAreRejected) {
  const dist::Listening proxy = dist::listen_anywhere();
  std::string words;
  std::jthread between([&] {
    const int guest = ::accept(proxy.socket, nullptr, nullptr), host = connect_to_port(meeting_.port);
    char buffer[4096];
    for (const std::size_t bytes : {40, 32}) {  // what a rank says first, and its proof
      const ssize_t got = ::recv(guest, buffer, bytes, MSG_WAITALL);
      ASSERT_EQ(got, static_cast<ssize_t>(bytes));
      words.append(buffer, bytes);
      EXPECT_EQ(::send(host, buffer, bytes, MSG_NOSIGNAL), got);
      if (bytes == 32) break;  // the answer is kept from it
      const ssize_t challenge = ::recv(host, buffer, 32, MSG_WAITALL);
      EXPECT_EQ(::send(guest, buffer, static_cast<std::size_t>(challenge), MSG_NOSIGNAL), challenge);
    }
    ::close(guest);
    ::close(host);
    turn_away(proxy);
  });
  RankInfo server_at = rank_info(0, 2), elsewhere = rank_info(1, 2), late = rank_info(1, 2);
  for (RankInfo* at : {&server_at, &elsewhere, &late}) at->secret = "of the job";
  elsewhere.port = proxy.port;
  std::jthread server([&] { EXPECT_EQ(share(server_at, "blob"), "blob"); });
  EXPECT_ERROR(ArgumentError, share(elsewhere, ""), "another program");
  between.join();
  ASSERT_EQ(words.size(), 72u);
  EXPECT_EQ(words.find("of the job"), std::string::npos);
  EXPECT_EQ(stranger(words).find("blob"), std::string::npos);  // its nonce is new
  EXPECT_EQ(share(late, ""), "blob");
}

TEST_F(Rendezvous, AFalseRank0IsRefused) {
  RankInfo host = rank_info(0, 2), guest = rank_info(1, 2);
  host.secret = "a guess";
  std::jthread server([&] { EXPECT_EQ(share(host, "blob"), "blob"); });
  guest.secret = "of the job";
  EXPECT_ERROR(ArgumentError, share(guest, ""), "ranks", "ATHANOR_SECRET");
  guest.secret = host.secret;  // the place is still free
  EXPECT_EQ(share(guest, ""), "blob");
}

TEST_F(Rendezvous, Rank0SleepsWhileItHasNoDescriptorForAGuest) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int guest = connect_to_port(meeting_.port), next = ::dup(guest);
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  timespec cpu_before{}, cpu_after{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
  ::setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THROW(share(rank_info(0, 2), "blob", 1s), PeerLostError);
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_after);
  const double seconds = static_cast<double>(cpu_after.tv_sec - cpu_before.tv_sec) +
                         static_cast<double>(cpu_after.tv_nsec - cpu_before.tv_nsec) * 1e-9;
  EXPECT_LT(seconds, 0.5) << "of CPU time, in a second";
  ::close(guest);
}

// Addresses of this machine that are not the master's: nobody listens there.
TEST_F(Rendezvous, Rank0ListensOnlyAtTheMasterAddress) {
  ::close(meeting_.socket);
  RankInfo host = rank_info(0, 2), guest = rank_info(1, 2), other = guest;
  host.listening = -1;
  host.local_size = guest.local_size = 2;  // all on this machine
  host.host = guest.host = "127.0.0.2";
  other.host = "127.0.0.1";
  std::jthread server([&] { EXPECT_EQ(share(host, "blob"), "blob"); });
  std::this_thread::sleep_for(200ms);
  EXPECT_ERROR(PeerLostError, share(other, "", 200ms), "ranks", "rank 0", "rank 1", "0.2 s");
  EXPECT_EQ(share(guest, ""), "blob");
}

TEST_F(Rendezvous, WarnsWithoutASecretExceptOnOneMachine) {
  ::close(meeting_.socket);
  RankInfo at = rank_info(0, 2);
  EXPECT_TRUE(test::names(dist::warn_of_strangers(at), {"ATHANOR_SECRET", address()}));
  at.secret = dist::draw_secret();
  EXPECT_EQ(dist::warn_of_strangers(at), "");
  at.secret.clear();
  at.local_size = 2;  // at 127.0.0.1
  EXPECT_EQ(dist::warn_of_strangers(at), "");
  at.host = "192.0.2.1";
  EXPECT_NE(dist::warn_of_strangers(at), "");
  EXPECT_EQ(dist::draw_secret().size(), 32u);
  EXPECT_NE(dist::draw_secret(), dist::draw_secret());
}

// What the launcher for GPUs starts, from the beginning to the id that all need -----------------------------

void be_one_of_three() {
  const RankInfo info = find_rank_info();
  EXPECT_EQ(info.launcher, Launcher::devices);
  ASSERT_EQ(info.world_size, 3);
  EXPECT_EQ(info.local_size, 3);
  EXPECT_EQ(info.local_rank, info.rank);
  EXPECT_EQ(info.secret.size(), 32u);
  const std::string mine = fmt::format("rank {}'s", info.rank);
  const auto got = dist::share_from_rank_0(info, std::as_bytes(std::span(mine)), 120s);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), "rank 0's");
}

// This program starts itself as the ranks.
TEST(Launched, RanksOfOnePerGpuMeet) {
  if (dist::environment()("ATHANOR_JOB")) return be_one_of_three();
  EXPECT_EQ(dist::launch({.ranks = 3,
                          .arguments = {"--gtest_filter=Launched.RanksOfOnePerGpuMeet", "--gtest_brief=1"},
                          .nccl = true}),
            0);
}

}  // namespace athanor::rendezvous_test
