// Who is who: what launchers say in the environment, and how ranks without MPI meet.
#include "dist/launch/bootstrap.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/launch/detail/tcp.h"
#include "dist/launch/launcher.h"
#include "dist/launch/rendezvous.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;
using dist::find_rank_info;
using dist::Launcher;
using dist::RankInfo;

using Variables = std::map<std::string, std::string>;

RankInfo info_of(const Variables& variables) {
  return find_rank_info([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  });
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "8"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "0"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.7"},
                          {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "gpu[03-04,9]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),3"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

void expect_info(const RankInfo& info, Launcher launcher, int rank, int size, int local_rank,
                 int local_size) {
  EXPECT_EQ(info.launcher, launcher);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.world_size, size);
  EXPECT_EQ(info.local_rank, local_rank);
  EXPECT_EQ(info.local_size, local_size);
}

TEST(Bootstrap, NobodySpeaksIsOneRank) {
  expect_info(info_of({}), Launcher::none, 0, 1, 0, 1);
  // An address, an empty variable, a shell in an allocation of Slurm's: none of them says who this is.
  expect_info(
      info_of({{"MASTER_ADDR", "somewhere"}, {"RANK", ""}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}),
      Launcher::none, 0, 1, 0, 1);
}

TEST(Bootstrap, EveryLauncherIsUnderstood) {
  expect_info(info_of(kMpirun), Launcher::mpirun, 3, 8, 1, 2);
  const RankInfo torchrun = info_of(kTorchrun);
  expect_info(torchrun, Launcher::torchrun, 2, 4, 0, 2);
  EXPECT_EQ(torchrun.host, "10.0.0.7");
  EXPECT_EQ(torchrun.port, 29500);
  const RankInfo slurm = info_of(kSlurm);
  expect_info(slurm, Launcher::slurm, 5, 7, 1, 3);  // the third machine has three tasks
  EXPECT_EQ(slurm.host, "gpu03");
  EXPECT_EQ(slurm.job, "slurm 4711.0");
  EXPECT_GT(slurm.port, 1024);
  EXPECT_NE(slurm.port, info_of(kSlurm + Variables{{"SLURM_JOB_ID", "4712"}}).port);  // no fixed one
  const RankInfo nccl = info_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"NCCL_COMM_ID", "10.1.1.1:4000"}});
  expect_info(nccl, Launcher::nccl_comm, 1, 2, 0, 1);
  EXPECT_EQ(nccl.host, "10.1.1.1");
  EXPECT_EQ(nccl.port, 4000);
}

TEST(Bootstrap, TheFirstCountsWhereTheyAgree) {
  EXPECT_EQ(info_of(kMpirun +
                    Variables{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})
                .launcher,
            Launcher::mpirun);
  const RankInfo both = info_of(
      kSlurm + Variables{{"RANK", "5"}, {"WORLD_SIZE", "7"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(both.launcher, Launcher::torchrun);
  // mpirun and torchrun work inside a step of Slurm's, which then speaks of the step that started them.
  EXPECT_EQ(info_of(kMpirun + kSlurm).rank, 3);
  EXPECT_EQ(info_of(kTorchrun + kSlurm + Variables{{"TORCHELASTIC_RUN_ID", "x"}}).rank, 2);
}

TEST(Bootstrap, ContradictionsAreErrorsThatListThem) {
  const std::string two = message_of([] { (void)info_of(kMpirun + kTorchrun); });
  for (const char* part : {"mpirun (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE) says rank 3 of 8",
                           "torchrun (RANK, WORLD_SIZE) says rank 2 of 4", "unset"})
    EXPECT_NE(two.find(part), std::string::npos) << two;
  const std::string slurm = message_of([] { (void)info_of(kTorchrun + kSlurm); });
  EXPECT_NE(slurm.find("Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS) says rank 5 of 7"), std::string::npos)
      << slurm;
  const std::string address = message_of([] {
    (void)info_of(kTorchrun + Variables{{"NCCL_COMM_ID", "10.0.0.7:1"}});
  });
  EXPECT_NE(address.find("NCCL_COMM_ID says 10.0.0.7:1, MASTER_ADDR and MASTER_PORT say 10.0.0.7:29500"),
            std::string::npos)
      << address;
  EXPECT_EQ(info_of(kTorchrun + Variables{{"NCCL_COMM_ID", "10.0.0.7:29500"}}).launcher, Launcher::torchrun);
}

TEST(Bootstrap, HalfAndBadWordsAreErrors) {
  const auto refused = [](const Variables& variables, const std::string& part) {
    const std::string message = message_of([&] { (void)info_of(variables); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused({{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "must come with MASTER_ADDR, MASTER_PORT");
  refused({{"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, "WORLD_SIZE");
  refused({{"NCCL_COMM_ID", "a:1"}}, "must come with RANK and WORLD_SIZE");
  refused(kTorchrun + Variables{{"RANK", "4"}}, "RANK must be a whole number in [0, 3], but is '4'");
  refused(kTorchrun + Variables{{"RANK", "1x"}}, "'1x'");
  refused(kTorchrun + Variables{{"WORLD_SIZE", "0"}}, "'0'");
  refused(kTorchrun + Variables{{"MASTER_PORT", "70000"}}, "MASTER_PORT");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NCCL_COMM_ID", "no port"}}, "NCCL_COMM_ID=HOST:PORT");
}

TEST(Bootstrap, TorchrunsAgentKeepsItsPort) {
  Variables variables{{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "a"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(info_of(variables).port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(info_of(variables).port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const int ours = info_of(variables).port;
  EXPECT_NE(ours, 29500);
  EXPECT_GE(ours, 1024);
  variables["RANK"] = "0";
  EXPECT_EQ(info_of(variables).port, ours);
  variables["MASTER_PORT"] = "29501";
  EXPECT_NE(info_of(variables).port, ours);
}

TEST(Bootstrap, TheLaunchersSocketIsRank0s) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "1"},
                      {"ATHANOR_LISTENING", "7"}};
  EXPECT_EQ(info_of(variables).listening, 7);
  variables["RANK"] = "1";
  EXPECT_EQ(info_of(variables).listening, -1);
  variables["RANK"] = "0";
  variables["ATHANOR_LISTENING"] = "7x";
  EXPECT_NE(message_of([&] { info_of(variables); }).find("ATHANOR_LISTENING"), std::string::npos);
}

TEST(Bootstrap, TheSecretIsRead) {
  EXPECT_EQ(info_of(kTorchrun).secret, "");
  EXPECT_EQ(info_of(kTorchrun + Variables{{"ATHANOR_SECRET", "x y"}}).secret, "x y");
  EXPECT_EQ(info_of(kSlurm + Variables{{"ATHANOR_SECRET", "z"}}).secret, "z");
}

TEST(Bootstrap, TheFirstHostOfSlurmsList) {
  EXPECT_EQ(dist::first_host("gpu[03-07,12],login"), "gpu03");
  EXPECT_EQ(dist::first_host("gpu[3]"), "gpu3");
  EXPECT_EQ(dist::first_host("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(dist::first_host("alpha"), "alpha");
  EXPECT_EQ(dist::first_host(""), "");
}

// Rendezvous
// -------------------------------------------------------------------------------------------------

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
  const auto soon = [] { return tcp::Clock::now() + 200ms; };
  std::vector<tcp::Socket> guests;  // nobody takes them in, until no more are heard
  while (guests.empty() || guests.back()) guests.push_back(tcp::connect_to({address_of(full)}, soon()));
  const auto began = tcp::Clock::now();
  EXPECT_TRUE(tcp::connect_to({address_of(full), address_of(free)}, began + 20s));
  EXPECT_LT(tcp::Clock::now() - began, 15s);
}

TEST_F(Rendezvous, AllGetWhatRank0Has) {
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

TEST_F(Rendezvous, OneRankNeedsNobody) {
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

TEST_F(Rendezvous, RanksOfOtherJobsAreSentAway) {
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  RankInfo other = rank_info(1, 2), size = rank_info(1, 3), many = rank_info(3, 4);
  other.job = "another";
  many.world_size = 2;
  many.rank = 2;
  EXPECT_NE(message_of([&] { share(other, ""); }).find("is of another job"), std::string::npos);
  EXPECT_NE(message_of([&] { share(size, ""); }).find("of another size"), std::string::npos);
  EXPECT_NE(message_of([&] { share(many, ""); }).find("has no such rank"), std::string::npos);
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
}

// What rank 1 says is heard by a proxy first, which says it to rank 0 and is gone before it has the answer.
TEST_F(Rendezvous, OneThatIsCutOffAsksAgain) {
  const dist::Listening proxy = dist::listen_anywhere();
  std::string words;
  std::jthread cut_off([&] {
    const int guest = ::accept(proxy.socket, nullptr, nullptr);
    char buffer[64];
    const ssize_t got = ::recv(guest, buffer, sizeof buffer, 0);
    words.assign(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    ::close(guest);
    ::close(proxy.socket);
  });
  RankInfo elsewhere = rank_info(1, 2);
  elsewhere.port = proxy.port;
  EXPECT_THROW(share(elsewhere, "", 200ms), PeerLostError);
  cut_off.join();
  ASSERT_FALSE(words.empty());
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob"), "blob"); });
  EXPECT_FALSE(stranger(words).empty());
  EXPECT_EQ(share(rank_info(1, 2), ""), "blob");
}

TEST_F(Rendezvous, ARankTooManyIsSentAway) {
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0), "blob"), "blob"); });
  EXPECT_EQ(share(rank_info(1), ""), "blob");
  EXPECT_NE(message_of([&] { share(rank_info(1), ""); }).find("has that rank already"), std::string::npos);
  EXPECT_EQ(share(rank_info(2), ""), "blob");
}

// Both are told that they are welcome before either has all.
TEST_F(Rendezvous, OfTwoWhoClaimOnePlaceAtATimeOneHasIt) {
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 7), "blob"), "blob"); });
  for (int rank = 1; rank < 6; ++rank) {
    std::atomic<int> in{0}, out{0};
    std::vector<std::jthread> claims;
    for (int i = 0; i < 4; ++i) {
      claims.emplace_back([&] {
        try {
          in += share(rank_info(rank, 7), "") == "blob";
        } catch (const ArgumentError& error) {
          out += std::string(error.what()).find("has that rank already") != std::string::npos;
        }
      });
    }
    claims.clear();
    EXPECT_EQ(in, 1) << rank;
    EXPECT_EQ(out, 3) << rank;
  }
  EXPECT_EQ(share(rank_info(6, 7), ""), "blob");
}

TEST_F(Rendezvous, WhoDoesNotComeIsNamed) {
  const auto began = std::chrono::steady_clock::now();
  std::jthread guest([&] { EXPECT_EQ(share(rank_info(2, 4), ""), "blob"); });
  try {
    share(rank_info(0, 4), "blob", 3s);
    ADD_FAILURE() << "nobody was missed";
  } catch (const PeerLostError& error) {
    EXPECT_NE(std::string(error.what()).find("within 3 s, but these have not: 1, 3"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
}

TEST_F(Rendezvous, Rank0MustAnswerInTime) {
  ::close(meeting_.socket);
  try {
    share(rank_info(1), "", 300ms);
    ADD_FAILURE() << "who answered?";
  } catch (const PeerLostError& error) {
    EXPECT_NE(std::string(error.what()).find("nobody answers there"), std::string::npos) << error.what();
  }
}

TEST_F(Rendezvous, AnotherProgramAtThatPortIsAnError) {
  std::jthread program([&] {
    const int guest = ::accept(meeting_.socket, nullptr, nullptr);
    char buffer[64];
    (void)!::recv(guest, buffer, sizeof buffer, 0);
    const std::string words = "HTTP/1.1 400 Bad Request";
    (void)!::send(guest, words.data(), words.size(), MSG_NOSIGNAL);
    ::close(guest);
    ::close(meeting_.socket);
  });
  EXPECT_NE(message_of([&] { share(rank_info(1), ""); }).find("there is another program"), std::string::npos);
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

TEST_F(Rendezvous, SilentStrangersKeepNobodyWaiting) {
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to_port(meeting_.port));
  const auto began = std::chrono::steady_clock::now();
  std::jthread server([&] { EXPECT_EQ(share(rank_info(0, 2), "blob", 60s), "blob"); });
  EXPECT_EQ(share(rank_info(1, 2), "", 60s), "blob");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 4s);
  for (const int socket : silent) ::close(socket);
}

TEST_F(Rendezvous, WhoDoesNotKnowTheSecretTakesNobodysPlace) {
  const auto knowing = [&](int rank, const char* secret) {
    RankInfo at = rank_info(rank, 2);
    at.secret = secret;
    return at;
  };
  std::jthread server([&] { EXPECT_EQ(share(knowing(0, "of the job"), "blob"), "blob"); });
  for (const char* guess : {"", "of another", "of the jo"}) {
    EXPECT_NE(message_of([&] { share(knowing(1, guess), ""); }).find("has another ATHANOR_SECRET"),
              std::string::npos);
  }
  EXPECT_EQ(share(knowing(1, "of the job"), ""), "blob");
}

// What a rank says is recorded on its way to rank 0, and said again.
TEST_F(Rendezvous, WhatWasHeardOnceIsOfNoUseAgain) {
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
    ::close(proxy.socket);
  });
  RankInfo server_at = rank_info(0, 2), elsewhere = rank_info(1, 2), late = rank_info(1, 2);
  for (RankInfo* at : {&server_at, &elsewhere, &late}) at->secret = "of the job";
  elsewhere.port = proxy.port;
  std::jthread server([&] { EXPECT_EQ(share(server_at, "blob", 20s), "blob"); });
  EXPECT_THROW(share(elsewhere, "", 300ms), PeerLostError);
  between.join();
  ASSERT_EQ(words.size(), 72u);
  EXPECT_EQ(words.find("of the job"), std::string::npos);
  EXPECT_EQ(stranger(words).find("blob"), std::string::npos);  // its nonce is new
  EXPECT_EQ(share(late, "", 20s), "blob");
}

TEST_F(Rendezvous, AFalseRank0IsRefused) {
  RankInfo host = rank_info(0, 2), guest = rank_info(1, 2);
  host.secret = "a guess";
  std::jthread server([&] { EXPECT_THROW(share(host, "blob", 1s), PeerLostError); });
  guest.secret = "of the job";
  EXPECT_NE(message_of([&] { share(guest, ""); }), "no error");
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
  EXPECT_LT(seconds, 0.2);
  ::close(guest);
}

// Addresses of this machine that are not the master's: nobody listens there.
TEST_F(Rendezvous, Rank0ListensAtTheMastersAddressAlone) {
  ::close(meeting_.socket);
  RankInfo host = rank_info(0, 2), guest = rank_info(1, 2), other = guest;
  host.listening = -1;
  host.local_size = guest.local_size = 2;  // all on this machine
  host.host = guest.host = "127.0.0.2";
  other.host = "127.0.0.1";
  std::jthread server([&] { EXPECT_EQ(share(host, "blob", 20s), "blob"); });
  std::this_thread::sleep_for(200ms);
  EXPECT_NE(message_of([&] { share(other, "", 200ms); }).find("nobody answers there"), std::string::npos);
  EXPECT_EQ(share(guest, "", 20s), "blob");
}

TEST_F(Rendezvous, WithoutASecretThereIsAWarningButOnOneMachine) {
  ::close(meeting_.socket);
  RankInfo at = rank_info(0, 2);
  EXPECT_NE(dist::warn_of_strangers(at).find("ATHANOR_SECRET is not set"), std::string::npos);
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
  const auto got = dist::share_from_rank_0(info, std::as_bytes(std::span(mine)), 20s);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), "rank 0's");
}

// This program starts itself as the ranks.
TEST(Launched, RanksOfOnePerGpuMeet) {
  if (dist::environment()("ATHANOR_JOB")) return be_one_of_three();
  const auto ranks =
      dist::one_per_gpu(3, {"--gtest_filter=Launched.RanksOfOnePerGpuMeet", "--gtest_brief=1"});
  EXPECT_EQ(dist::run_processes(ranks), 0);
}

}  // namespace
}  // namespace athanor
