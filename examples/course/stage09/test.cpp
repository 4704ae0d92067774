#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dist.h"
#include "random.h"
#include "ranks.h"

namespace {

using namespace engine;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

// run_ranks; but if the job hangs, what that probably means is printed, and the program ends. A job hangs
// that has computed next to nothing for 8 s, which is sure on a busy machine, too; or that has not ended
// after twenty times as long.
void run(int world, const std::string& hang, const std::function<void(Rank&)>& f) {
  using Clock = std::chrono::steady_clock;
  std::future<void> job = std::async(std::launch::async, [&] { run_ranks(world, f); });
  const Clock::time_point begin = Clock::now();
  Clock::time_point since = begin;
  std::clock_t computed = std::clock();  // by all threads
  while (job.wait_for(500ms) == std::future_status::timeout) {
    if (std::clock() - computed >= CLOCKS_PER_SEC / 50) {
      since = Clock::now();
      computed = std::clock();
    }
    if (Clock::now() < since + 8s && Clock::now() < begin + 160s) continue;
    std::cout << "The job of " << world << " ranks hangs: " << hang << std::endl;
    std::_Exit(1);
  }
  job.get();
}

// What run_ranks reports.
std::string failure_of(int world, const std::string& hang, const std::function<void(Rank&)>& f) {
  try {
    run(world, hang, f);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

// Whether run_ranks reports that this rank was the first to fail, and why.
bool reports(const std::string& failure, const std::string& rank, const std::string& why) {
  return failure.rfind(rank, 0) == 0 && failure.find(why) != std::string::npos;
}

// Messages.

TEST(Ranks, DeliverMessagesInOrder) {
  run(3, "send() must not wait until the other rank receives", [](Rank& rank) {
    for (int i = 0; i < 100; ++i) {
      for (int to = 0; to < 3; ++to) {
        Floats message{static_cast<float>(1000 * rank.rank() + i), 7};
        rank.send(to, message);
        message[0] = -1;  // the sender goes on with its buffer
      }
    }
    for (int from = 0; from < 3; ++from) {
      for (int i = 0; i < 100; ++i) {
        const Floats message = rank.receive(from);
        ASSERT_EQ(message.size(), 2u) << "a message must arrive as it was sent";
        ASSERT_NE(message[0], -1) << "send() must copy the values: the sender overwrites its buffer at once";
        ASSERT_EQ(message[0], static_cast<float>(1000 * from + i))
            << "message " << i << " from rank " << from
            << ": each pair of ranks has a queue of its own, whose first message is received first";
      }
    }
    EXPECT_EQ(rank.sent_messages(), 300) << "sent_messages() counts calls of send()";
    EXPECT_EQ(rank.sent_bytes(), 300 * 2 * 4) << "sent_bytes() counts 4 bytes for each value";
    EXPECT_THROW(rank.send(3, Floats{1}), std::invalid_argument) << "there is no rank 3 of three";
    EXPECT_THROW(rank.receive(7), std::invalid_argument) << "there is no rank 7 of three to receive from";
  });
  EXPECT_THROW(run_ranks(0, [](Rank&) {}), std::invalid_argument) << "a job has at least one rank";
  for (const bool up : {true, false}) {
    run(6, "send() woke another rank than the one that the message is for: notify_all", [up](Rank& rank) {
      if (rank.rank() > 0) return rank.send(0, rank.receive(0));
      std::this_thread::sleep_for(20ms);  // all others wait
      for (int k = 1; k < 6; ++k) {
        const int to = up ? k : 6 - k;
        rank.send(to, Floats{1});
        rank.receive(to);
      }
    });
  }
}

TEST(Ranks, OneFailureEndsAll) {
  std::atomic<int> woken = 0;
  const std::string failure =
      failure_of(4, "a failure must wake all ranks that wait, whomever they wait for", [&](Rank& rank) {
        if (rank.rank() == 2) throw std::runtime_error("the disk is full");
        try {
          rank.receive((rank.rank() + 1) % 4);  // 0 waits for 1, which waits for 2; 3 waits for 0
        } catch (const PeerLost&) {
          ++woken;
          throw;
        }
      });
  EXPECT_EQ(woken, 3) << "rank 2 failed, so that receive() must throw PeerLost on the three ranks that wait";
  EXPECT_TRUE(reports(failure, "rank 2", "the disk is full"))
      << "run_ranks must report the first failure, \"rank 2 of 4: the disk is full\", and not one that "
         "followed from it; it reports "
      << failure;

  const std::string apart = failure_of(3,
                                       "ranks 0 and 1 wait for each other, and rank 2 has failed: a failure "
                                       "must wake all, whomever they wait for",
                                       [](Rank& rank) {
                                         if (rank.rank() < 2) {
                                           rank.receive(1 - rank.rank());
                                         } else {
                                           std::this_thread::sleep_for(10ms);  // the others wait
                                           throw std::runtime_error("the disk is full");
                                         }
                                       });
  EXPECT_TRUE(reports(apart, "rank 2", "the disk is full"))
      << "ranks 0 and 1 wait for each other, and rank 2 fails; run_ranks reports " << apart;

  const auto handler = std::set_terminate([] {
    std::cout << "A rank threw an int, which is no std::exception, and the program ended: catch (...), too"
              << std::endl;
    std::_Exit(1);
  });
  const std::string unknown = failure_of(2, "a rank that throws an int has failed, too", [](Rank& rank) {
    if (rank.rank() == 1) throw 7;
    rank.receive(1);
  });
  std::set_terminate(handler);
  EXPECT_TRUE(reports(unknown, "rank 1", ""))
      << "rank 1 threw an int, which is no std::exception: it has failed, too; run_ranks reports " << unknown;

  const std::string silent =
      failure_of(2, "a rank that throws an error without words has failed, too", [](Rank& rank) {
        if (rank.rank() == 1) throw std::runtime_error("");
      });
  EXPECT_TRUE(reports(silent, "rank 1", "")) << "rank 1 threw an error whose text is empty: that it failed "
                                                "must not be known by its text; run_ranks reports "
                                             << silent;

  Floats first;
  const std::string ended =
      failure_of(2, "receive() from a rank that has ended must throw: nothing will come", [&](Rank& rank) {
        if (rank.rank() == 1) return rank.send(0, Floats{5});
        first = rank.receive(1);
        rank.receive(1);
      });
  EXPECT_EQ(first, Floats{5}) << "what a rank sent before it ended must still arrive";
  std::vector<Floats> came;
  const std::string failed =
      failure_of(2, "receive() from a rank that has failed must throw: nothing will come", [&](Rank& rank) {
        if (rank.rank() == 1) {
          rank.send(0, Floats{5});
          rank.send(0, Floats{6});
          throw std::runtime_error("the disk is full");
        }
        came.push_back(rank.receive(1));
        std::this_thread::sleep_for(20ms);  // now rank 1 has failed
        came.push_back(rank.receive(1));
        rank.receive(1);
      });
  EXPECT_EQ(came, (std::vector<Floats>{{5}, {6}}))
      << "what a rank sent before it failed must still arrive: receive() throws only if no message is there";
  EXPECT_TRUE(reports(failed, "rank 1", "the disk is full")) << "run_ranks reports " << failed;
  EXPECT_TRUE(reports(ended, "rank 0", ""))
      << "rank 1 sent one message and ended, rank 0 waits for two: PeerLost there; run_ranks reports "
      << ended;
}

// Collectives.

TEST(Ring, PiecesTileTheBuffer) {
  for (const std::int64_t n : {0, 1, 2, 7, 24, 1000}) {
    for (int world = 1; world <= 8; ++world) {
      std::int64_t next = 0;
      for (int index = 0; index < world; ++index) {
        const Piece piece = piece_of(n, world, index);
        const std::string which = "piece " + std::to_string(index) + " of " + std::to_string(n) +
                                  " elements on " + std::to_string(world) + " ranks ";
        ASSERT_EQ(piece.begin, next) << which << "must begin where the one before ends";
        ASSERT_EQ(piece.begin, n * index / world)
            << which << "begins at another element than the header says";
        next = piece.end;
      }
      ASSERT_EQ(next, n) << n << " elements on " << world << " ranks: the last elements belong to no piece";
    }
  }
}

constexpr const char* kRingHang =
    "in each step every rank sends one piece and receives one; a rank that waits first, or takes a "
    "step more or less than the others, waits for ever";

float whole(int rank, std::int64_t i) {
  return static_cast<float>((rank * 5 + i * 3) % 7 + 1);
}

// What is wrong with element i of a sum over ranks of whole(); or nothing.
std::string wrong_sum(float value, int world, int rank, std::int64_t i) {
  float sum = 0;
  for (int r = 0; r < world; ++r) sum += whole(r, i);
  if (value == sum) return "";
  return "element " + std::to_string(i) + " on rank " + std::to_string(rank) + " of " +
         std::to_string(world) +
         (value > sum ? " has the values of some rank twice: a piece went around too far"
                      : " lacks the values of some rank: a piece was passed on before what had arrived was "
                        "added, or a step is missing");
}

TEST(Ring, ReduceScatterAddsEachRankOnce) {
  for (const int world : {1, 2, 3, 4, 7}) {
    for (const std::int64_t n : {0, 1, 5, 24, 131}) {
      run(world, kRingHang, [&](Rank& rank) {
        Floats values;
        for (std::int64_t i = 0; i < n; ++i) values.push_back(whole(rank.rank(), i));
        reduce_scatter(rank, values);
        const Piece own = piece_of(n, world, rank.rank());
        for (std::int64_t i = own.begin; i < own.end; ++i)
          ASSERT_EQ(wrong_sum(values[static_cast<std::size_t>(i)], world, rank.rank(), i), "");
      });
    }
  }
  const std::string failure = failure_of(2, kRingHang, [](Rank& rank) {
    Floats values(rank.rank() == 0 ? 4 : 8, 1.0f);
    reduce_scatter(rank, values);
  });
  EXPECT_NE(failure, "nothing")
      << "rank 0 reduces 4 values and rank 1 reduces 8, as if they were in different collectives: who "
         "receives a message of a wrong size must throw";
  for (const bool gathers : {true, false}) {
    const std::string other = failure_of(2, kRingHang, [gathers](Rank& rank) {
      Floats memory(64, 1.0f);  // with room for what is copied by mistake
      const std::span<float> values = std::span(memory).first(rank.rank() == 0 ? 4 : 8);
      gathers ? all_gather(rank, values) : broadcast(rank, values);
    });
    EXPECT_NE(other, "nothing") << (gathers ? "all_gather" : "broadcast")
                                << " of 4 values on rank 0 and of 8 on rank 1: in every collective, who "
                                   "receives a message of a wrong size must throw";
  }
}

TEST(Ring, AllGatherGivesEveryPieceToAll) {
  for (const int world : {1, 2, 3, 5}) {
    for (const std::int64_t n : {0, 2, 47}) {
      run(world, kRingHang, [&](Rank& rank) {
        Floats values(static_cast<std::size_t>(n), -1.0f);
        const Piece own = piece_of(n, world, rank.rank());
        for (std::int64_t i = own.begin; i < own.end; ++i)
          values[static_cast<std::size_t>(i)] = static_cast<float>(i);
        all_gather(rank, values);
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(i))
              << "element " << i << " on rank " << rank.rank() << " of " << world
              << " is not what its owner has: in all_gather pieces are stored, not added, and a rank passes "
                 "on the piece that arrived in the step before";
      });
    }
  }
}

TEST(Ring, SendsNoMoreThanTheLowerBound) {
  for (const int world : {1, 2, 3, 4, 6}) {
    for (const std::int64_t n : {120, 7, 2}) {
      run(world, kRingHang, [&](Rank& rank) {
        Floats values(static_cast<std::size_t>(n), 1.0f);
        const std::int64_t own = piece_of(n, world, rank.rank()).size(),
                           next = piece_of(n, world, (rank.rank() + 1) % world).size();
        const auto check = [&](const char* what, std::int64_t sent, std::int64_t bound) {
          EXPECT_LE(sent, bound) << what << " of " << n << " elements on " << world
                                 << " ranks sends a piece too many: P - 1 steps are enough";
          EXPECT_GE(sent, bound) << what << " of " << n << " elements on " << world
                                 << " ranks sends too little: P - 1 steps are needed";
        };
        reduce_scatter(rank, values);
        check("reduce_scatter", rank.sent_bytes() / 4, n - own);
        const std::int64_t before = rank.sent_bytes();
        all_gather(rank, values);
        check("all_gather", (rank.sent_bytes() - before) / 4, n - next);
        const std::int64_t both = rank.sent_bytes();
        all_reduce(rank, values);
        check("all_reduce", (rank.sent_bytes() - both) / 4, 2 * n - own - next);
        const std::int64_t three = rank.sent_bytes();
        broadcast(rank, values);
        EXPECT_EQ((rank.sent_bytes() - three) / 4, rank.rank() < world - 1 ? n : 0)
            << "broadcast of " << n << " elements, on rank " << rank.rank() << " of " << world
            << ": each rank passes the values on to the next once, and the last to none. If rank 0 sent to "
               "all, it would send P - 1 times as much as the others";
        if (n % world == 0) {
          EXPECT_EQ(both, 2 * (world - 1) * n / world * 4)
              << "an all-reduce of n elements costs each rank 2 n (P - 1) / P";
        }
      });
    }
  }
}

// The sum of values[r][i] over ranks r as the header orders it, for element i of n.
float ring_sum(const std::vector<Floats>& values, std::size_t i, std::int64_t n) {
  const int world = static_cast<int>(values.size());
  int piece = 0;
  while (piece_of(n, world, piece).end <= static_cast<std::int64_t>(i)) ++piece;
  float sum = values[static_cast<std::size_t>((piece + 1) % world)][i];
  for (int k = 2; k <= world; ++k) sum += values[static_cast<std::size_t>((piece + k) % world)][i];
  return sum;
}

TEST(Ring, SumsInTheOrderOfTheRing) {
  for (const int world : {3, 4, 5}) {
    constexpr std::int64_t kN = 53;
    std::vector<Floats> parts;
    for (int r = 0; r < world; ++r)
      parts.push_back(random_tensor({kN}, static_cast<std::uint64_t>(r)).values());
    run(world, kRingHang, [&](Rank& rank) {
      Floats values = parts[static_cast<std::size_t>(rank.rank())];
      all_reduce(rank, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float expected = ring_sum(parts, i, kN);
        ASSERT_NEAR(values[i], expected, 1e-4)
            << "all_reduce: element " << i << " on rank " << rank.rank() << " is not the sum";
        ASSERT_EQ(values[i], expected)
            << "all_reduce: element " << i << " on rank " << rank.rank()
            << " is the sum, but for its last bits: ranks were added in another order. The sum of piece p "
               "begins with rank p + 1, and ends with rank p";
      }
    });
  }
}

// DDP.

constexpr const char* kDdpHang =
    "all ranks must send all buckets, also those with a parameter that the pass did not reach: launch "
    "what remains when it has ended";

std::shared_ptr<Module> make_network(std::uint64_t seed) {
  return std::make_shared<Sequential>(
      std::vector<std::shared_ptr<Module>>{std::make_shared<Linear>(7, 6, seed), std::make_shared<ReLU>(),
                                           std::make_shared<Linear>(6, 5, seed + 1)});
}

// Samples begin .. begin + size - 1 of a made-up data set.
Variable loss_of(Module& network, std::int64_t begin, std::int64_t size) {
  Tensor x({size, 7});
  std::vector<int> labels;
  for (std::int64_t i = 0; i < size; ++i) {
    copy(random_tensor({7}, static_cast<std::uint64_t>(100 + begin + i)), x.narrow(0, i, 1).reshape({7}));
    labels.push_back(static_cast<int>((begin + i) * 3 % 5));
  }
  return cross_entropy(network.forward(Variable(x)), labels);
}

Floats values_of(const Parameters& parameters) {
  Floats all;
  for (const auto& [name, parameter] : parameters)
    for (const float value : parameter.value().values()) all.push_back(value);
  return all;
}

Floats grads_of(const Parameters& parameters) {
  Floats all;
  for (const auto& [name, parameter] : parameters) {
    const Floats grad = parameter.grad().values();
    all.insert(all.end(), grad.begin(), grad.end());
  }
  return all;
}

enum class Kind { sgd, adamw };

DistributedOptimizer::Make maker(Kind kind) {
  return [kind](Parameters parameters) -> std::unique_ptr<Optimizer> {
    if (kind == Kind::sgd) return std::make_unique<SGD>(std::move(parameters), SGD::Options{0.9f, 0.01f});
    return std::make_unique<AdamW>(std::move(parameters), AdamW::Options{});
  };
}

constexpr std::int64_t kPart = 4;  // samples of each rank in a step

// One process does the work of all ranks, with the gradients summed as the header orders it.
void reference_gradients(Module& network, int world, std::int64_t begin, std::int64_t bucket_numel) {
  const Parameters parameters = network.parameters();
  std::vector<std::vector<Floats>> grads(parameters.size());  // of each parameter and rank
  for (int r = 0; r < world; ++r) {
    for (const auto& [name, parameter] : parameters) parameter.clear_grad();
    backward(loss_of(network, begin + r * kPart, kPart), 1.0f / static_cast<float>(world));
    for (std::size_t k = 0; k < parameters.size(); ++k)
      grads[k].push_back(parameters[k].second.grad().values());
  }
  for (std::size_t last = parameters.size();
       last > 0;) {  // a bucket each time: parameters first .. last - 1, in reverse
    std::vector<Floats> bucket(static_cast<std::size_t>(world));
    std::size_t first = last;
    while (first > 0 && (first == last || static_cast<std::int64_t>(bucket[0].size()) < bucket_numel)) {
      --first;
      for (std::size_t r = 0; r < bucket.size(); ++r)
        bucket[r].insert(bucket[r].end(), grads[first][r].begin(), grads[first][r].end());
    }
    std::size_t i = 0;
    for (std::size_t k = last; k-- > first;) {
      Floats sum(grads[k][0].size());
      for (float& value : sum) value = ring_sum(bucket, i, static_cast<std::int64_t>(bucket[0].size())), ++i;
      parameters[k].second.grad() = Tensor(parameters[k].second.shape(), sum);
    }
    last = first;
  }
}

// What is wrong with gradients, of ranks whose sum should be `expected`; or nothing.
std::string wrong_gradient(const Floats& grads, const Floats& expected, int world) {
  if (grads == expected) return "";
  if (grads.size() != expected.size()) return "some parameter has no gradient, or one of another size";
  double product = 0, squares = 0, apart = 0;
  for (std::size_t i = 0; i < grads.size(); ++i)
    product += double{grads[i]} * expected[i], squares += double{expected[i]} * expected[i];
  const double ratio = product / squares;
  for (std::size_t i = 0; i < grads.size(); ++i)
    apart = std::max(apart, std::fabs(grads[i] - ratio * expected[i]));
  if (apart > 1e-4) return "it is not the sum over ranks of their gradients";
  if (std::fabs(ratio - world) < 1e-3)
    return "it is P times too large: the sum of means, where their mean must be; share is the seed";
  if (std::fabs(ratio * world - 1) < 1e-3)
    return "it is P times too small: divided by the number of ranks twice";
  if (std::fabs(ratio - 1) > 1e-3)
    return "it is " + std::to_string(ratio) + " times what it must be: divided by a wrong count";
  return "it is right but for its last bits: the pass begins with share as its seed, buckets have the "
         "parameters that the header says, "
         "and nothing is multiplied or divided after that";
}

TEST(Ddp, StartsFromRankZero) {
  run(3, "broadcast: rank 0 sends, the others receive and pass on, the last does not send", [&](Rank& rank) {
    const auto network = make_network(1 + 10 * static_cast<std::uint64_t>(rank.rank()));
    const DistributedOptimizer optimizer(rank, *network, maker(Kind::sgd), {});
    EXPECT_TRUE(values_of(network->parameters()) == values_of(make_network(1)->parameters()))
        << "rank " << rank.rank() << " was made from another seed: it must train rank 0's parameters";
    BatchNorm2d norm(4);
    norm.buffers()[0].second.data()[2] = static_cast<float>(5 - rank.rank());
    const DistributedOptimizer with_buffers(rank, norm, maker(Kind::sgd), {});
    EXPECT_EQ(norm.buffers()[0].second.data()[2], 5)
        << "buffers, such as running statistics, must begin with rank 0's values, too";
  });
  run(3, "with zero1, all ranks must call the same collectives in backward() and step()", [&](Rank& rank) {
    Floats after[2];
    for (const bool same_seed : {true, false}) {
      const auto network = make_network(same_seed ? 1 : 1 + 10 * static_cast<std::uint64_t>(rank.rank()));
      DistributedOptimizer optimizer(rank, *network, maker(Kind::sgd), {Strategy::zero1, 20});
      optimizer.backward(loss_of(*network, rank.rank() * kPart, kPart));
      optimizer.step(0.1f);
      after[same_seed] = values_of(network->parameters());
    }
    EXPECT_TRUE(after[0] == after[1])
        << "ZeRO-1 on ranks whose networks were made from different seeds: after a step, rank " << rank.rank()
        << " has not the parameters that rank 0's seed leads to. Pieces must be made after the broadcast";
  });
}

TEST(Ddp, EqualsOneProcessBitForBit) {
  for (const int world : {1, 2, 3, 4}) {
    for (const std::int64_t bucket_numel : {1, 20, 1000}) {
      const auto reference = make_network(1);
      SGD sgd(reference->parameters(), {0.9f, 0.01f});
      std::vector<Floats> expected;  // gradients and parameters of each step
      for (int step = 0; step < 3; ++step) {
        reference_gradients(*reference, world, step * world * kPart, bucket_numel);
        expected.push_back(grads_of(reference->parameters()));
        sgd.step(0.1f);
        expected.push_back(values_of(reference->parameters()));
      }
      run(world, kDdpHang, [&](Rank& rank) {
        const auto network = make_network(1);
        DistributedOptimizer optimizer(rank, *network, maker(Kind::sgd), {Strategy::ddp, bucket_numel});
        for (int step = 0; step < 3; ++step) {
          optimizer.backward(loss_of(*network, (step * world + rank.rank()) * kPart, kPart));
          const auto at = static_cast<std::size_t>(2 * step);
          ASSERT_EQ(wrong_gradient(grads_of(network->parameters()), expected[at], world), "")
              << "the gradient of step " << step << " on rank " << rank.rank() << " of " << world
              << ", bucket_numel " << bucket_numel
              << (step > 0 ? "; those of the steps before were right, so perhaps they were not cleared" : "");
          optimizer.step(0.1f);
          ASSERT_TRUE(values_of(network->parameters()) == expected[at + 1])
              << "the gradients of step " << step << " are right, but not the parameters after it, on rank "
              << rank.rank() << " of " << world;
        }
      });
      if (HasFailure()) return;  // the same words again would hide them
    }
  }
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    run(2, kDdpHang, [&](Rank& rank) {
      const auto network = make_network(1);
      Parameters stepped;  // the parameters or pieces that the optimizer steps on
      const auto make = [&](Parameters parameters) {
        stepped = parameters;
        return maker(Kind::sgd)(std::move(parameters));
      };
      DistributedOptimizer optimizer(rank, *network, make, {strategy, 20});
      optimizer.backward(loss_of(*network, rank.rank() * kPart, kPart));
      std::vector<Tensor> first;  // as an optimizer may keep them
      for (const auto& [name, parameter] : stepped) first.push_back(parameter.grad());
      const Floats before = grads_of(stepped);
      if (strategy == Strategy::zero1) {
        EXPECT_TRUE(grads_of(network->parameters()).empty())
            << "ZeRO-1: after backward() no parameter has a gradient, for this rank's part of it is not the "
               "mean over the batch; the pieces have theirs";
      }
      optimizer.backward(loss_of(*network, (2 + rank.rank()) * kPart, kPart));
      Floats now;
      for (const Tensor& grad : first)
        for (const float value : grad.values()) now.push_back(value);
      EXPECT_TRUE(now == before) << "the gradients of the first pass changed in the second: they are views "
                                    "of the buckets, which the "
                                    "next pass overwrites. An optimizer may keep them: copy them out";
    });
  }
}

TEST(Ddp, WeighsEachSampleTheSame) {
  const auto network = make_network(1);
  backward(loss_of(*network, 0, 5));
  const Floats expected = grads_of(network->parameters());
  run(2, kDdpHang, [&](Rank& rank) {
    const auto own = make_network(1);
    DistributedOptimizer optimizer(rank, *own, maker(Kind::sgd), {});
    optimizer.backward(rank.rank() == 0 ? loss_of(*own, 0, 3) : loss_of(*own, 3, 2),
                       rank.rank() == 0 ? 0.6f : 0.4f);
    const Floats grads = grads_of(own->parameters());
    ASSERT_EQ(grads.size(), expected.size());
    for (std::size_t i = 0; i < grads.size(); ++i)
      ASSERT_NEAR(grads[i], expected[i], 1e-5)
          << "rank 0 has 3 samples and rank 1 has 2: their shares are 0.6 and 0.4. The mean of the ranks' "
             "means counts a sample of "
             "rank 1 for more";
  });
}

// x, with an operation that calls `between` in the backward pass.
Variable watch(const Variable& x, std::function<void()> between) {
  return record(x.value().clone(), {x}, [between = std::move(between)](const Tensor& dy) {
    between();
    return std::vector<Tensor>{dy.clone()};
  });
}

// x a b, of which a or b is multiplied first, and its gradient is complete 100 ms after the other's; and c,
// which only some ranks use. Each is a bucket of its own: c 0, b 1, a 2.
class Branches final : public Module {
 public:
  Branches(bool a_first, bool with_c) : a_first_(a_first), with_c_(with_c) {}
  Variable forward(const Variable& x) override {
    const Variable first = watch(mul(x, a_first_ ? a_ : b_), [] { std::this_thread::sleep_for(100ms); });
    const Variable product = mul(first, a_first_ ? b_ : a_);
    return with_c_ ? add(sum_all(product), sum_all(c_)) : sum_all(product);
  }
  std::vector<std::pair<std::string, Variable>> parameters() const override {
    return {{"a", a_}, {"b", b_}, {"c", c_}};
  }

 private:
  Variable a_{Tensor({4}, {2, 2, 2, 2}), true}, b_{Tensor({4}, {5, 5, 5, 5}), true}, c_{Tensor({4}), true};
  bool a_first_, with_c_;
};

TEST(Ddp, LaunchesBucketsInOneOrder) {
  for (const bool with_c : {true, false}) {  // all ranks use c, or rank 0 alone
    run(2, kDdpHang, [&](Rank& rank) {
      Branches network(rank.rank() == 0, with_c || rank.rank() == 0);
      DistributedOptimizer optimizer(rank, network, maker(Kind::sgd), {Strategy::ddp, 1});
      ASSERT_EQ(optimizer.buckets(), 3u)
          << "with bucket_numel 1 each of three parameters has a bucket of its own";
      for (int step = 0; step < 2; ++step) {
        optimizer.backward(network.forward(Variable(Tensor({4}, {1, 1, 1, 1}))));
        const Parameters parameters = network.parameters();
        EXPECT_EQ(parameters[0].second.grad().values(), Floats(4, 5))
            << "step " << step
            << ": the gradient of a, 5 on both ranks, was summed with that of another parameter, or twice, "
               "or "
               "before it was complete: the ranks complete a and b in different orders, and a bucket that is "
               "complete must wait for those before it. Do not count the complete buckets: count those at "
               "the front of the list, up to the first that is not complete";
        EXPECT_EQ(parameters[1].second.grad().values(), Floats(4, 2))
            << "step " << step
            << ": the same for b, 2 on both ranks: its bucket waits for its gradient, "
               "even if that of a is complete";
        EXPECT_EQ(parameters[2].second.grad().values(), Floats(4, with_c ? 1.0f : 0.5f))
            << "step " << step
            << (with_c ? ": c has the gradient 1 on both ranks"
                       : ": rank 1 does not use c, and contributes zeros: half of rank 0's 1");
      }
    });
  }
  Floats grad;
  const std::string failure = failure_of(2, kDdpHang, [&](Rank& rank) {
    Branches network(true, true);
    DistributedOptimizer optimizer(rank, network, maker(Kind::sgd), {Strategy::ddp, 1});
    optimizer.backward(network.forward(Variable(Tensor({4}, {1, 1, 1, 1}), true)));
    if (rank.rank() == 0) grad = grads_of({network.parameters()[0]});
  });
  EXPECT_EQ(failure, "nothing")
      << "the input requires a gradient, and is reported to ready() though it is no parameter: ignore it";
  EXPECT_TRUE(failure != "nothing" || grad == Floats(4, 5))
      << "the input requires a gradient: it was taken for a parameter, and its gradient is in a bucket";
}

// x w v, with an operation between the two products that calls `between` in the backward pass. An engine may
// go to either operand of the second product first.
class Watched final : public Module {
 public:
  explicit Watched(std::function<void()> between, bool v_first = false)
      : between_(std::move(between)), v_first_(v_first) {}
  Variable forward(const Variable& x) override {
    const Variable first = mul(x, w_);
    const Variable watched = watch(first, between_);
    return sum_all(v_first_ ? mul(v_, watched) : mul(watched, v_));
  }
  std::vector<std::pair<std::string, Variable>> parameters() const override { return {{"w", w_}, {"v", v_}}; }

 private:
  Variable w_{Tensor({4}, {2, 2, 2, 2}), true}, v_{Tensor({4}, {5, 5, 5, 5}), true};
  std::function<void()> between_;
  bool v_first_;
};

TEST(Ddp, SendsDuringTheBackwardPass) {
  run(2, kDdpHang, [&](Rank& rank) {
    bool sent = false;
    for (const bool v_first : {false, true}) {
      std::int64_t before = 0;
      const auto look = [&] {  // usually the gradient of v is complete
        for (int i = 0; i < 3000 && !sent; ++i) {
          std::this_thread::sleep_for(1ms);
          sent = rank.sent_messages() > before;
        }
      };
      Watched network(look, v_first);
      DistributedOptimizer optimizer(rank, network, maker(Kind::sgd), {Strategy::ddp, 1});
      before = rank.sent_messages();
      optimizer.backward(network.forward(Variable(Tensor({4}, {1, 1, 1, 1}))));
    }
    EXPECT_TRUE(sent) << "bucket 0 was complete in the middle of the pass, but rank " << rank.rank()
                      << " sent nothing before the pass had ended: a second thread must send it meanwhile";
  });
  for (const bool v_first : {false, true}) {
    std::atomic<bool> went_on = false;
    run(2, kDdpHang, [&](Rank& rank) {
      Watched network(
          [&] {
            if (rank.rank() == 0) went_on = true;
          },
          v_first);
      DistributedOptimizer optimizer(rank, network, maker(Kind::sgd), {Strategy::ddp, 1});
      const Variable loss = network.forward(Variable(Tensor({4}, {1, 1, 1, 1})));
      if (rank.rank() == 1) {  // rank 0 waits here only if it does not go on
        for (int i = 0; i < 6000 && !went_on; ++i) std::this_thread::sleep_for(1ms);
        EXPECT_TRUE(went_on) << "rank 1 has not begun its pass, and so the pass of rank 0 stands still: it "
                                "sums bucket 0 itself, and waits for rank 1. A second thread must do that";
      }
      optimizer.backward(loss);
    });
  }
}

TEST(Ddp, AFailingPassEndsTheJob) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    std::atomic<int> passed = 0;
    const std::string failure =
        failure_of(3,
                   "if the backward pass throws, the second thread of that rank must stop waiting for "
                   "buckets, and the error must leave backward()",
                   [&](Rank& rank) {
                     Watched network([&] {
                       if (rank.rank() == 1) throw std::runtime_error("no memory is left");
                     });
                     DistributedOptimizer optimizer(rank, network, maker(Kind::sgd), {strategy, 1});
                     optimizer.backward(network.forward(Variable(Tensor({4}, {1, 1, 1, 1}))));
                     ++passed;
                   });
    EXPECT_TRUE(reports(failure, "rank 1", "no memory is left"))
        << "the pass of rank 1 threw \"no memory is left\"; run_ranks reports " << failure;
    EXPECT_EQ(passed, 0)
        << "the pass of rank 1 failed, and " << passed
        << " other ranks ended theirs without an error: their gradients are sums with what was in rank 1's "
           "buckets. Rank 1 must launch nothing more, but stop its thread; and the others must not drop the "
           "PeerLost of theirs: call get() of the future, not wait()";
  }
}

// ZeRO-1.

struct Trained {
  std::vector<Floats> parameters;   // of each rank, at the end
  std::vector<float> norms;         // of each step, on the last rank
  std::vector<std::int64_t> state;  // numbers that each rank keeps
  std::vector<std::int64_t> bytes;  // that each rank sends in the last step
};

// Clips if max_norm is not 0.
Trained train(int world, Strategy strategy, Kind kind, std::int64_t bucket_numel, float max_norm = 0) {
  Trained result;
  const auto ranks = static_cast<std::size_t>(world);
  result.parameters.resize(ranks), result.state.resize(ranks), result.bytes.resize(ranks);
  run(world, "all ranks must call the same collectives: in backward(), clip_grad_norm() and step()",
      [&](Rank& rank) {
        const auto network = make_network(1);
        DistributedOptimizer optimizer(rank, *network, maker(kind), {strategy, bucket_numel});
        const auto r = static_cast<std::size_t>(rank.rank());
        for (int step = 0; step < 4; ++step) {
          const std::int64_t before = rank.sent_bytes();
          optimizer.backward(loss_of(*network, (step * world + rank.rank()) * kPart, kPart));
          if (max_norm > 0) {
            const float norm = optimizer.clip_grad_norm(max_norm);
            if (rank.rank() == world - 1) result.norms.push_back(norm);
          }
          optimizer.step(0.05f);
          result.bytes[r] = rank.sent_bytes() - before;
        }
        result.parameters[r] = values_of(network->parameters());
        for (const auto& [name, tensor] : optimizer.state())
          if (tensor.rank() > 0) result.state[r] += tensor.numel();  // "steps" has rank 0
      });
  return result;
}

TEST(Zero1, EqualsDdpBitForBit) {
  for (const Kind kind : {Kind::sgd, Kind::adamw}) {
    for (const auto& [world, bucket_numel] :
         std::vector<std::pair<int, std::int64_t>>{{1, 20}, {2, 20}, {3, 1000}, {4, 1}, {7, 1}}) {
      const Trained ddp = train(world, Strategy::ddp, kind, bucket_numel),
                    zero1 = train(world, Strategy::zero1, kind, bucket_numel);
      const std::string where = " after four steps of " + std::string(kind == Kind::sgd ? "SGD" : "AdamW") +
                                " on " + std::to_string(world) + " ranks, bucket_numel " +
                                std::to_string(bucket_numel);
      for (std::size_t r = 1; r < zero1.parameters.size(); ++r) {
        ASSERT_TRUE(zero1.parameters[r] == zero1.parameters[0])
            << "ranks 0 and " << r << " have different parameters" << where
            << ": the pieces that others have updated must be gathered";
      }
      ASSERT_TRUE(zero1.parameters == ddp.parameters)
          << "ZeRO-1 has other parameters than DDP" << where
          << ": optimizers update element by element, so that pieces must get the bits that whole parameters "
             "get. "
             "Is the gradient of each piece the summed one?";
    }
  }
}

// The sum of x w: the gradient of w is x.
struct Wide final : Module {
  Variable w{Tensor({8192}), true};
  Variable forward(const Variable& x) override { return sum_all(mul(x, w)); }
  std::vector<std::pair<std::string, Variable>> parameters() const override { return {{"w", w}}; }
};

TEST(Zero1, ClipsByTheNormOfAll) {
  const auto network = make_network(1);
  reference_gradients(*network, 3, 0, 20);
  double squares = 0;
  for (const float g : grads_of(network->parameters())) squares += double{g} * g;
  const auto norm = static_cast<float>(std::sqrt(squares));
  for (const float most :
       {norm / 2, 0.95f * norm, 100 * norm}) {  // 0.95: no rank's own pieces have as large a norm
    const Trained ddp = train(3, Strategy::ddp, Kind::sgd, 20, most),
                  zero1 = train(3, Strategy::zero1, Kind::sgd, 20, most);
    for (const Trained* result : {&ddp, &zero1}) {
      const std::string which = result == &ddp ? "DDP" : "ZeRO-1";
      ASSERT_GT(result->norms[0], 0.999f * norm)
          << which
          << ": the norm must be that of all gradients, but is smaller: each rank has only the sum of "
             "squares of its own pieces, "
             "and these sums must be added over ranks";
      ASSERT_LT(result->norms[0], 1.001f * norm) << which
                                                 << ": the norm must be that of all gradients, but is "
                                                    "larger: add the squares of ranks, not their norms, and "
                                                    "count each element once";
    }
    ASSERT_TRUE(zero1.norms == ddp.norms) << "ZeRO-1 and DDP must have the same norms, to the bit: both add "
                                             "the same sums, in the order of ranks";
    ASSERT_TRUE(zero1.parameters == ddp.parameters)
        << "clipped to " << most
        << ", ZeRO-1 and DDP must have the same parameters: the scaled gradients must reach the optimizer";
  }
  // One process, one step: the gradient that is clipped to half its norm.
  run(3, kDdpHang, [&](Rank& rank) {
    const auto own = make_network(1);
    DistributedOptimizer optimizer(rank, *own, maker(Kind::sgd), {Strategy::ddp, 20});
    optimizer.backward(loss_of(*own, rank.rank() * kPart, kPart));
    optimizer.clip_grad_norm(norm / 2);
    const Floats clipped = grads_of(own->parameters()), all = grads_of(network->parameters());
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_NEAR(clipped[i], all[i] / 2, 1e-5)
          << "clipped to half their norm, gradients must be half as large";
    EXPECT_NEAR(optimizer.clip_grad_norm(norm), norm / 2, 1e-3 * norm)
        << "a second clip must see what the first has made: scale the buckets, from which the norm is "
           "computed";
  });
  run(2, kDdpHang, [&](Rank& rank) {
    Wide wide;
    DistributedOptimizer optimizer(rank, wide, maker(Kind::sgd), {});
    Tensor x({8192});
    for (std::int64_t i = 0; i < 8192; ++i) x.data()[i] = i % 4096 == 0 ? 4096.0f : 1.0f;
    optimizer.backward(wide.forward(Variable(x)));  // the gradient is x on both ranks, and so is their mean
    EXPECT_NEAR(optimizer.clip_grad_norm(1e6f), std::sqrt(2 * (0x1p24 + 4095)), 0.1)
        << "4096 and 4,095 times 1 on each of two ranks: 2^24 + 1 is 2^24 in float. Add squares in double";
  });
  run(2, kDdpHang, [&](Rank& rank) {
    Branches infinite(true, true);
    DistributedOptimizer optimizer(rank, infinite, maker(Kind::sgd), {});
    constexpr float kInf = std::numeric_limits<float>::infinity();
    optimizer.backward(infinite.forward(Variable(Tensor({4}, {kInf, 1, 1, 1}))));
    const float norm_of_all = optimizer.clip_grad_norm(1);
    EXPECT_TRUE(std::isinf(norm_of_all))
        << "the norm of infinite gradients is infinite, but is " << norm_of_all;
    const Floats kept = grads_of(infinite.parameters());  // 4 of a, b and c each
    EXPECT_TRUE(std::isinf(kept[0]) && kept[1] == 5 && kept[8] == 1)
        << "a norm that is not finite must scale nothing: infinity times 0 is NaN, and 1 times 0 is 0";
  });
}

TEST(Zero1, KeepsOnlyItsShareOfTheState) {
  for (const int world : {2, 3, 4}) {
    const Trained ddp = train(world, Strategy::ddp, Kind::adamw, 20, 0.5f),
                  zero1 = train(world, Strategy::zero1, Kind::adamw, 20, 0.5f);
    const std::int64_t numel = static_cast<std::int64_t>(ddp.parameters[0].size());
    std::int64_t together = 0;
    for (std::size_t r = 0; r < zero1.state.size(); ++r) {
      ASSERT_EQ(ddp.state[r], 2 * numel)
          << "DDP: AdamW keeps two numbers for each of " << numel << " parameters, on every rank";
      ASSERT_LE(zero1.state[r], 2 * (numel / world + 2))
          << "ZeRO-1: rank " << r << " of " << world << " keeps state for more than its pieces, a " << world
          << "-th of the parameters";
      EXPECT_EQ(zero1.bytes[r], ddp.bytes[r])
          << "ZeRO-1 must send as many bytes in a step as DDP: after a reduce_scatter of gradients, the "
             "all_gather is of parameters. And both exchange the sums of squares for the norm, a float of "
             "each "
             "rank";
      together += zero1.state[r];
    }
    EXPECT_EQ(together, 2 * numel)
        << "the states of all ranks together must be that of one process: each element has one owner";
  }
}

}  // namespace
