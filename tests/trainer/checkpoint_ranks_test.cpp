// Checkpoints of several ranks: what one number of them saves, any other loads.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "dist/gather_state.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/run_state.h"

namespace athanor::checkpoint_ranks_test {

namespace fs = std::filesystem;
using dist::run_ranks;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Zero1;

class CheckpointOfRanks : public testing::Test {
 protected:
  CheckpointOfRanks() { fs::create_directories(folder_); }
  ~CheckpointOfRanks() override { fs::remove_all(folder_); }
  fs::path file(const std::string& name) const { return folder_ / (name + ".safetensors"); }

 private:
  fs::path folder_ = fs::temp_directory_path() / fmt::format("athanor_ranks_{}", ::getpid());
};

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Kind {
  Precision precision = Precision::f32;
  bool muon = false;
  dist::CommunicatorOptions comm{};
};

/// A model in training, all of whose state is saved.
template <class Sync> struct Training {
  test::MixedNet net;
  Communicator comm;
  ParameterArena arena;
  Sync sync;
  std::unique_ptr<Optimizer> optimizer;
  Ema ema;
  StepBuffer step{kCpu, {.seed = 1, .loss_scale = 1024}};

  Training(Transport& transport, const Kind& kind)
      : comm(transport, kind.comm),
        arena(net.parameters(), net.buffers(),
              test::arena_options<Sync>(
                  {.precision = kind.precision}, comm,
                  {.bucket_bytes = 700, .first_bucket_bytes = 100, .whole_parameters = kind.muon})),
        sync(arena, comm),
        optimizer(test::make_optimizer(kind.muon ? "muon" : "adamw", arena)),
        ema(arena, {.decay = 0.9}) {
    ema.fuse_into(*optimizer);
  }

  /// One step on the same 24 samples for any number of ranks: every rank takes all of them.
  void train(int batch) {
    const auto samples = test::detail::mixed_batch(batch, false, net.fc.weight().dtype(), kCpu);
    arena.zero_grad();
    backward_scaled(cross_entropy(net(samples.images), samples.labels), step,
                    1.0f / static_cast<float>(comm.world_size()));
    sync.reduce(step);
    optimizer->set_learning_rates(step, schedules::constant(0.01f));
    optimizer->step(step);
    ema.update(step);
    finish_step(step, LossScaling{.initial = 1024});
    if constexpr (std::is_same_v<Sync, Zero1>) sync.gather_weights();
  }

  std::vector<StatePart> parts() {
    std::vector<StatePart> parts;
    parts.push_back({"step.", [this] { return state_of(step.read()); },
                     [this](const StateDict& state) { step.write(step_from(state)); }});
    const auto add = [&](const char* prefix, auto& part) {
      parts.push_back({prefix, [&part] { return part.state_dict(); },
                       [&part](const StateDict& state) { part.load_state_dict(state); }});
    };
    add("optimizer.", *optimizer);
    add("ema.", ema);
    add("model.", arena);
    return parts;
  }
  void save(const fs::path& path) {
    sync.settle();
    sync.broadcast_buffers();
    const StateDict state = save_parts(parts());
    dist::gather_state(comm, state,
                       [&](const dist::ReadTensor& read) { save_checkpoint(path, state, read); });
  }
  void load(const fs::path& path) {
    sync.settle();
    load_parts(parts(), load_checkpoint(path));
    sync.gather_weights();
  }
};

template <class Sync> void save_after(int world, const Kind& kind, const fs::path& path) {
  run_ranks(world, [&](Transport& transport) {
    Training<Sync> training(transport, kind);
    for (int batch = 0; batch < 3; ++batch) training.train(batch);
    training.save(path);
  });
}
template <class Sync>
void load_and_save(int world, const Kind& kind, const fs::path& from, const fs::path& to) {
  run_ranks(world, [&](Transport& transport) {
    Training<Sync> training(transport, kind);
    training.load(from);
    training.save(to);
  });
}

const Kind kKinds[] = {
    {.precision = Precision::f32},
    {.precision = Precision::bf16},
    {.precision = Precision::f16},
    {.precision = Precision::bf16, .muon = true},
};

// The file holds no trace of how many ranks wrote it or how they shared the state; and nothing is lost on the
// way through any other number of them: saved again, it has the same bytes.
TEST_F(CheckpointOfRanks, SavedByFourLoadsOnAnyNumber) {
  for (const Kind& kind : kKinds) {
    const fs::path of_4 = file("of_4"), again = file("again");
    save_after<Zero1>(4, kind, of_4);
    const std::string bytes = bytes_of(of_4);
    EXPECT_GT(bytes.size(), 10000u);
    for (const int world : {1, 3, 8, 4}) {
      load_and_save<Zero1>(world, kind, of_4, again);
      EXPECT_TRUE(bytes_of(again) == bytes) << "ZeRO-1, " << world;
      load_and_save<Ddp>(world, kind, of_4, again);
      EXPECT_TRUE(bytes_of(again) == bytes) << "DDP, " << world;
      load_and_save<Zero1>(2, kind, again, file("back"));
      EXPECT_TRUE(bytes_of(file("back")) == bytes) << "and back, " << world;
    }
  }
}

// A part that is refused leaves every rank with what it had.
TEST_F(CheckpointOfRanks, LoadsAllOrNothing) {
  save_after<Zero1>(2, {.precision = Precision::bf16}, file("good"));
  run_ranks(2, [&](Transport& transport) {
    Training<Zero1> training(transport, {.precision = Precision::bf16});
    training.train(5);
    training.save(file("before"));
    StateDict state;
    for (const StateDict::Entry& entry : load_checkpoint(file("good"))) {
      if (entry.name != "model.fc.weight") state.set(entry.name, entry.value);
    }
    EXPECT_THROW(load_parts(training.parts(), state), ArgumentError);
    training.save(file("after"));
  });
  EXPECT_TRUE(bytes_of(file("after")) == bytes_of(file("before")));
}

// What goes wrong on rank 0 ends the save on all, and only the save.
TEST_F(CheckpointOfRanks, AFailedSaveIsReportedOnAllRanks) {
  run_ranks(3, [&](Transport& transport) {
    Training<Zero1> training(transport, {.precision = Precision::bf16});
    const StateDict state = save_parts(training.parts());
    for (const bool midway : {false, true}) {
      const auto save = [&](const dist::ReadTensor& read) {
        if (!midway) detail::fail<IoError>("test: the disk is full");
        for (const StateDict::Entry& entry : state) {
          if (entry.value.index() != 4) continue;
          read(entry, [](auto) { detail::fail<IoError>("test: the disk is full"); });
        }
      };
      EXPECT_ERROR(IoError, dist::gather_state(training.comm, state, save), "test: the disk is full");
    }
    training.train(0);
    training.save(file("fine"));
  });
  EXPECT_NO_THROW((void)load_checkpoint(file("fine")));
}

// Where sharded tensors are read and where there are none: a slow disk is no lost rank.
TEST_F(CheckpointOfRanks, RanksWaitForASlowWrite) {
  run_ranks(3, [&](Transport& transport) {
    Communicator comm(transport, {.timeout = std::chrono::milliseconds(2500)});
    StateDict none, state;
    state.set("x", ShardedTensor{{3}, DType::f32, {{transport.rank(), Tensor::zeros({1})}}});
    int pieces = 0;
    for (const bool sharded : {false, true}) {
      dist::gather_state(comm, sharded ? state : none, [&](const dist::ReadTensor& read) {
        const auto slow = [] { std::this_thread::sleep_for(std::chrono::seconds(3)); };
        slow();
        if (sharded) read(*state.begin(), [&](auto) { slow(), ++pieces; });
        slow();
      });
    }
    EXPECT_EQ(pieces, transport.rank() == 0 ? 1 : 0);
  });
}

TEST_F(CheckpointOfRanks, OneRankAloneCannotSaveShards) {
  StateDict state;
  state.set("whole", Tensor::zeros({3}));
  state.set("fc.weight", ShardedTensor{{10}, DType::f32, {{0, Tensor::zeros({5})}}});
  EXPECT_ERROR(ArgumentError, save_checkpoint(file("alone"), state), "checkpoint", "fc.weight",
               "dist::gather_state()");
  EXPECT_FALSE(fs::exists(file("alone")));
}

TEST_F(CheckpointOfRanks, StatesThatDifferOrDoNotFitAreErrors) {
  run_ranks(2, [&](Transport& transport) {
    Communicator comm(transport);
    const int rank = transport.rank();
    const auto gather = [&](const StateDict& state) {
      return test::message_of([&] { dist::gather_state(comm, state, [](const dist::ReadTensor&) {}); });
    };
    StateDict named, longer;
    named.set(rank == 0 ? "a" : "b", ShardedTensor{{0}, DType::f32, {}});
    EXPECT_TRUE(test::names(gather(named), {"gather_state", "rank 1", "rank 0"}));
    longer.set("a", ShardedTensor{{rank}, DType::f32, {}});
    EXPECT_TRUE(test::names(gather(longer), {"gather_state", "rank 1", "rank 0"}));
    const auto runs = [&](std::int64_t begin, std::int64_t count) {
      StateDict state;
      state.set("x", ShardedTensor{{10}, DType::f32, {{begin, Tensor::zeros({count})}}});
      return state;
    };
    EXPECT_EQ(gather(runs(rank * 4, rank == 0 ? 4 : 6)), "");
    for (const StateDict& state :
         {runs(rank * 5, rank == 0 ? 4 : 5), runs(rank * 4, rank == 0 ? 5 : 6), runs(rank * 4, 4)})
      EXPECT_TRUE(test::names(gather(state), {"gather_state", "'x'"}));
  });
}

// Larger than what travels at once, strided over ranks in many runs.
TEST_F(CheckpointOfRanks, LargeTensorsTravelInPieces) {
  constexpr std::int64_t kElements = (std::int64_t{5} << 20) / 2 + 7, kRun = 300001;
  run_ranks(3, [&](Transport& transport) {
    Communicator comm(transport);
    ShardedTensor part{{kElements}, DType::f32, {}};
    for (std::int64_t begin = 0, i = 0; begin < kElements; begin += kRun, ++i) {
      if (i % 3 != transport.rank()) continue;
      const Tensor values = Tensor::empty({std::min(kRun, kElements - begin)});
      for (std::int64_t k = 0; k < values.numel(); ++k)
        values.data<float>()[k] = static_cast<float>(begin + k);
      part.runs.push_back({begin, values});
    }
    StateDict state;
    state.set("x", part);
    std::int64_t next = 0, wrong = 0, pieces = 0;
    dist::gather_state(comm, state, [&](const dist::ReadTensor& read) {
      read(*state.begin(), [&](std::span<const std::byte> bytes) {
        ++pieces;
        const auto* values = reinterpret_cast<const float*>(bytes.data());
        for (std::size_t k = 0; k < bytes.size() / sizeof(float); ++k)
          wrong += values[k] != static_cast<float>(next++);
      });
    });
    EXPECT_EQ(wrong, 0);
    if (transport.rank() == 0) {
      EXPECT_EQ(next, kElements);
      EXPECT_EQ(pieces, 3);
    }
  });
}

}  // namespace athanor::checkpoint_ranks_test
