#pragma once

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "dist/collectives/communicator.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"

// What every transport must do: bodies that each rank runs, in a thread or in a process of its own. Small
// whole numbers are exact in every dtype and any order, so that results are compared bit by bit.

namespace athanor::test {

using dist::Algorithm;
using dist::Communicator;
using dist::CommunicatorOptions;
using dist::Range;
using kernels::Combine;

inline constexpr DType kCombined[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                      DType::i64, DType::i32, DType::u8};

/// Every algorithm, and every node size that divides the world.
inline std::vector<CommunicatorOptions> all_algorithms(int world_size) {
  std::vector<CommunicatorOptions> all;
  for (const std::int64_t segment_bytes : {std::int64_t{64}, std::int64_t{1} << 20}) {
    all.push_back({.algorithm = Algorithm::ring, .segment_bytes = segment_bytes});
    for (int size = 1; size <= world_size; ++size) {
      if (world_size % size == 0)
        all.push_back(
            {.algorithm = Algorithm::hierarchical, .node_size = size, .segment_bytes = segment_bytes});
    }
  }
  all.push_back({.algorithm = Algorithm::rank_order});
  return all;
}

/// And what the library below does, where it does.
inline std::vector<CommunicatorOptions> all_algorithms(dist::Transport& transport) {
  std::vector<CommunicatorOptions> all = all_algorithms(transport.world_size());
  if (transport.has_native()) all.push_back({.algorithm = Algorithm::native});
  return all;
}

/// What rank r begins with at element i.
inline double part_of_rank(int rank, std::int64_t i) {
  return static_cast<double>((rank * 5 + i * 3) % 7);
}

inline Tensor ranks_part(int rank, std::int64_t n, DType dtype, Device device = kCpu) {
  const Tensor x = Tensor::empty({n}, {dtype, kCpu});
  dispatch_any(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (sizeof(T) == 2) {
        x.data<T>()[i] = T(static_cast<float>(part_of_rank(rank, i)));
      } else {
        x.data<T>()[i] = static_cast<T>(part_of_rank(rank, i));
      }
    }
  });
  return x.to(device);
}

/// The first element in `range` that is not what all ranks make together; -1 where there is none.
inline std::int64_t first_wrong(const Tensor& x, const Range& range, Combine how, int world_size) {
  const std::vector<double> values = x.to_vector();
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    double expected = part_of_rank(0, i);
    for (int r = 1; r < world_size; ++r) {
      const double value = part_of_rank(r, i);
      expected = how == Combine::sum ? expected + value : std::max(expected, value);
    }
    if (values[static_cast<std::size_t>(i)] != expected) return i;
  }
  return -1;
}

/// reduce_scatter, all_gather and all_reduce by every algorithm: all dtypes, sums and maxima; odd sizes,
/// none, fewer than ranks.
inline void check_reductions(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  const Device device = transport.device();
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    Communicator comm(transport, options);
    const auto check = [&](DType dtype, std::int64_t n, Combine how) {
      const auto where = [&] {
        return fmt::format("{} nodes of {}, {} {}, rank {} of {}", name_of(options.algorithm),
                           options.node_size, dtype, n, rank, world);
      };
      const Range all{0, n}, mine = comm.piece(n, rank);
      const Tensor x = ranks_part(rank, n, dtype, device);
      comm.run(*comm.reduce_scatter(x, how));
      EXPECT_EQ(first_wrong(x, mine, how, world), -1) << "reduce_scatter " << where();
      comm.run(*comm.all_gather(x));
      EXPECT_EQ(first_wrong(x, all, how, world), -1) << "all_gather " << where();
      const Tensor y = ranks_part(rank, n, dtype, device);
      comm.run(*comm.all_reduce(y, how));
      EXPECT_EQ(first_wrong(y, all, how, world), -1) << "all_reduce " << where();
    };
    for (const std::int64_t n : {0, 1, 2, 3, 7, 33, 1031}) check(DType::f32, n, Combine::sum);
    for (const DType dtype : kCombined) check(dtype, 131, Combine::sum);
    check(DType::f32, world - 1, Combine::max);
    check(DType::i64, world + 1, Combine::max);
    check(DType::u8, 40, Combine::max);
  }
}

/// The same with pieces of other sizes, some of them empty: whole parameters.
inline void check_unequal_pieces(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    Communicator comm(transport, options);
    for (const std::int64_t all_at : {-1, 0, world - 1}) {
      std::vector<Range> pieces(static_cast<std::size_t>(world));
      std::int64_t n = 0;
      for (int place = 0; place < world; ++place) {
        const std::int64_t count = all_at < 0 ? (place * 37) % 3 * 50 : place == all_at ? 131 : 0;
        for (int r = 0; r < world; ++r) {
          if (dist::piece_index(options, world, r) == place)
            pieces[static_cast<std::size_t>(r)] = {n, n + count};
        }
        n += count;
      }
      const Range mine = pieces[static_cast<std::size_t>(rank)];
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Tensor x = ranks_part(rank, n, dtype, transport.device()),
                     y = ranks_part(rank, n, dtype, transport.device());
        comm.run(*comm.reduce_scatter(x, Combine::sum, pieces));
        EXPECT_EQ(first_wrong(x, mine, Combine::sum, world), -1) << name_of(options.algorithm);
        comm.run(*comm.all_gather(x, pieces));
        EXPECT_EQ(first_wrong(x, {0, n}, Combine::sum, world), -1) << name_of(options.algorithm);
        comm.run(*comm.all_reduce(y, Combine::sum, pieces));
        EXPECT_EQ(first_wrong(y, {0, n}, Combine::sum, world), -1) << name_of(options.algorithm);
      }
      if (n == 0) continue;
      const Tensor x = Tensor::zeros({n}, {DType::f32, transport.device()});
      std::vector<Range> hole = pieces;
      hole[static_cast<std::size_t>(rank)].begin += 1;
      EXPECT_THROW((void)comm.all_gather(x, hole), ArgumentError);
      EXPECT_THROW((void)comm.all_gather(Tensor::zeros({n + 1}, x.options()), pieces), ArgumentError);
      EXPECT_THROW((void)comm.all_gather(x, std::vector<Range>(pieces.size() + 1)), ArgumentError);
    }
  }
}

/// Gathers alone: nothing of a piece is known but to its rank.
inline void check_gathers(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    Communicator comm(transport, options);
    for (const std::int64_t n : {world * 16, world * 16 + 5, 3}) {
      const auto filled_with = [&](int time, int one) {  // pieces of `one` rank, or of all; else -1
        std::vector<float> values(static_cast<std::size_t>(n), -1);
        for (int r = 0; r < world; ++r) {
          const Range piece = comm.piece(n, r);
          for (std::int64_t i = piece.begin; i < piece.end && (one < 0 || one == r); ++i)
            values[static_cast<std::size_t>(i)] = static_cast<float>(100 * time + 10 * r + 1);
        }
        return Tensor::from(values, {n});
      };
      const Tensor x = Tensor::zeros({n}, {DType::f32, transport.device()});
      const auto gather = comm.all_gather(x);
      for (int time = 0; time < 2; ++time) {
        x.copy_bytes_from(filled_with(time, rank).to(transport.device()));
        comm.run(*gather);
        EXPECT_TRUE(same_bits(x.to(kCpu), filled_with(time, -1))) << name_of(options.algorithm) << " " << n;
      }
    }
  }
}

/// A collective is made once and started often, on other values each time.
inline void check_restarts(dist::Transport& transport) {
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    Communicator comm(transport, options);
    const Tensor x = Tensor::zeros({77}, {DType::f32, transport.device()});
    const auto sum = comm.all_reduce(x);
    for (int time = 0; time < 3; ++time) {
      x.copy_bytes_from(ranks_part(transport.rank(), 77, DType::f32, transport.device()));
      comm.run(*sum);
      EXPECT_EQ(first_wrong(x, {0, 77}, Combine::sum, transport.world_size()), -1)
          << name_of(options.algorithm);
    }
  }
}

inline void check_broadcasts(dist::Transport& transport) {
  std::vector<CommunicatorOptions> all{{.segment_bytes = 64}};
  if (transport.has_native()) all.push_back({.algorithm = Algorithm::native});
  for (const CommunicatorOptions& options : all) {
    Communicator comm(transport, options);
    for (int root = 0; root < transport.world_size(); ++root) {
      for (const std::int64_t n : {0, 1, 16, 17, 200}) {
        const Tensor x = ranks_part(transport.rank(), n, DType::i32, transport.device());
        comm.run(*comm.broadcast(x, root));
        EXPECT_TRUE(same_bits(x.to(kCpu), ranks_part(root, n, DType::i32)))
            << n << " from " << root << " " << name_of(options.algorithm);
      }
    }
  }
}

/// A NaN of one rank is one everywhere, in sums and in maxima.
inline void check_nan_stays(dist::Transport& transport) {
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    Communicator comm(transport, options);
    for (const DType dtype : {DType::f32, DType::f16}) {
      for (const Combine how : {Combine::sum, Combine::max}) {
        const Tensor x = ranks_part(transport.rank(), 9, dtype);
        if (transport.rank() == transport.world_size() - 1)
          dispatch_floating(dtype, "test", [&]<class T>() { x.data<T>()[4] = T(NAN); });
        const Tensor there = x.to(transport.device());
        comm.run(*comm.all_reduce(there, how));
        const std::vector<double> values = there.to(kCpu).to_vector();
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(std::isnan(values[i]), i == 4)
              << i << " " << name_of(options.algorithm) << " " << name_of(dtype);
      }
    }
  }
}

/// What is on record of a library's own collectives: dtype, elements and, when they are done, bytes.
inline void check_native_records(dist::Transport& transport) {
  Communicator comm(transport, {.algorithm = Algorithm::native});
  const std::int64_t n = 4 * transport.world_size();
  const auto expect = [&](std::unique_ptr<dist::Collective> collective, DType dtype, const char* name) {
    comm.run(*collective, 5);
    const dist::FlightRecord::Entry entry = transport.session().flight().last();
    EXPECT_STREQ(entry.call.name, name);
    EXPECT_EQ(entry.call.dtype, dtype) << name;
    EXPECT_EQ(entry.call.count, n) << name;
    EXPECT_EQ(entry.call.bucket, 5) << name;
    EXPECT_EQ(entry.bytes, n * static_cast<std::int64_t>(size_of(dtype))) << name;
    EXPECT_FALSE(entry.under_way()) << name;
  };
  const auto part = [&](DType dtype) { return ranks_part(transport.rank(), n, dtype, transport.device()); };
  expect(comm.all_reduce(part(DType::f32)), DType::f32, "native all_reduce");
  expect(comm.reduce_scatter(part(DType::bf16)), DType::bf16, "native reduce_scatter");
  expect(comm.all_gather(part(DType::f16)), DType::f16, "native all_gather");
  expect(comm.broadcast(part(DType::i64), 0), DType::i64, "native broadcast");
}

/// Everyone ends with the same bits, though sums of such numbers depend on their order; and twice the same.
inline void check_all_ranks_agree(dist::Transport& transport) {
  constexpr std::int64_t kSize = 515;
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Communicator comm(transport, options);
      const auto sum = [&] {
        const Tensor x =
            filled({{kSize}}, dtype, {static_cast<std::uint64_t>(transport.rank())}).to(transport.device());
        comm.run(*comm.all_reduce(x));
        return x;
      };
      const Tensor x = sum();
      EXPECT_TRUE(same_bits(sum().to(kCpu), x.to(kCpu))) << name_of(options.algorithm);
      const Tensor first = Tensor::empty({kSize}, {dtype, transport.device()});
      first.copy_bytes_from(x);
      comm.run(*comm.broadcast(first, 0));
      EXPECT_TRUE(same_bits(x.to(kCpu), first.to(kCpu))) << name_of(options.algorithm);
    }
  }
}

/// rank_order rounds halves once: what f32 sums in the order of ranks give.
inline void check_rank_order_rounds_once(dist::Transport& transport) {
  constexpr std::int64_t kSize = 203;
  Communicator comm(transport, {.algorithm = Algorithm::rank_order});
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const auto part = [&](int rank) { return filled({{kSize}}, dtype, {static_cast<std::uint64_t>(rank)}); };
    const Tensor x = part(transport.rank()).to(transport.device());
    const Tensor expected = Tensor::empty({kSize}, {dtype, kCpu});
    comm.run(*comm.all_reduce(x));
    dispatch_floating(dtype, "test", [&]<class T>() {
      for (std::int64_t i = 0; i < kSize; ++i) {
        auto sum = Accumulate<T>(part(0).data<T>()[i]);
        for (int r = 1; r < transport.world_size(); ++r) sum += Accumulate<T>(part(r).data<T>()[i]);
        expected.data<T>()[i] = T(sum);
      }
    });
    EXPECT_TRUE(same_bits(x.to(kCpu), expected)) << name_of(dtype);
  }
}

/// Many tags: they come around again.
inline void check_barriers(dist::Transport& transport) {
  Communicator comm(transport);
  const auto barrier = comm.barrier();
  for (int i = 0; i < 100; ++i) comm.run(*barrier);
}

}  // namespace athanor::test
