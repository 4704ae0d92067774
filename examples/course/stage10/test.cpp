#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capstone.h"
#include "checkpoint.h"
#include "dist.h"
#include "random.h"
#include "train.h"
#include "transformer.h"

// What the program asks of the disk, in order: these take the place of the system's functions, do the same,
// and take notes.
namespace {
struct Call {
  std::string name;
  ino_t file = 0;   // of what is synced
  off_t bytes = 0;  // which it has
  std::string to = {};
};
std::vector<Call>* calls = nullptr;
constexpr ino_t kAnyFile = ~ino_t{0};
ino_t fails_once = 0;  // whose next sync fails, as on a disk with a fault; none if 0

int synced(const char* name, long number, int file) {
  struct stat about = {};
  const bool known = ::fstat(file, &about) == 0;
  if (calls && known) calls->push_back({name, about.st_ino, about.st_size});
  if (known && (fails_once == about.st_ino || (fails_once == kAnyFile && S_ISREG(about.st_mode)))) {
    fails_once = 0;
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(number, file));
}
}  // namespace
extern "C" int fsync(int file) {
  return synced("sync", SYS_fsync, file);
}
extern "C" int fdatasync(int file) {
  return synced("sync", SYS_fdatasync, file);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (calls) calls->push_back({"rename", 0, 0, to});
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace {

using namespace engine;
namespace fs = std::filesystem;

/// A folder that is empty at first and gone at last.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("stage10." + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
    return all;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

State one_number(float number) {
  return {{{"x", Tensor({1}, {number})}}, {}};
}

/// The first entry in which two states differ, in words; empty if they are equal to the bit.
std::string difference(const State& a, const State& b) {
  for (const auto& [name, number] : a.integers) {
    if (!b.integers.contains(name)) return name + " is missing";
    if (b.integers.at(name) != number)
      return name + " was " + std::to_string(number) + " and is " + std::to_string(b.integers.at(name));
  }
  for (const auto& [name, tensor] : a.tensors) {
    if (!b.tensors.contains(name)) return name + " is missing";
    if (b.tensors.at(name).shape() != tensor.shape()) return name + " has another shape";
    const std::vector<float> x = tensor.values(), y = b.tensors.at(name).values();
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i]))
        return name + "[" + std::to_string(i) + "] was " + std::to_string(x[i]) + " and is " +
               std::to_string(y[i]);
  }
  if (a.integers.size() != b.integers.size() || a.tensors.size() != b.tensors.size())
    return "there are entries that were not saved";
  return "";
}

State strange_state() {
  using limits = std::numeric_limits<float>;
  State state;
  state.tensors["strange"] =
      Tensor({2, 4}, {-0.0f, limits::denorm_min(), limits::max(), limits::infinity(), -limits::infinity(),
                      std::bit_cast<float>(0x7fc12345u), 0.1f, 1.0f / 3});
  state.tensors["a view"] = Tensor({2, 3}, {1, 2, 3, 4, 5, 6}).transpose(0, 1);
  state.tensors["one"] = Tensor({}, {7});
  state.tensors["none"] = Tensor({3, 0});
  state.integers = {{"least", std::numeric_limits<std::int64_t>::min()},
                    {"most", std::numeric_limits<std::int64_t>::max()}};
  return state;
}

TEST(Save, KeepsEveryBit) {
  const Folder folder;
  const State state = strange_state();
  save_state(folder / "a.ckpt", state);
  EXPECT_EQ(difference(state, load_state(folder / "a.ckpt")), "")
      << "numbers must be written as their bytes, in row-major order, not as text and not through another "
         "type";
}

TEST(Save, LeavesTheOldFileWhole) {
  const Folder folder;
  save_state(folder / "a.ckpt", one_number(1));
  fs::create_hard_link(folder / "a.ckpt", folder / "old");  // a second name of the old file
  save_state(folder / "a.ckpt", one_number(2));
  EXPECT_EQ(load_state(folder / "a.ckpt").tensors.at("x").item(), 2)
      << "the new checkpoint must have the name";
  try {
    EXPECT_EQ(load_state(folder / "old").tensors.at("x").item(), 1)
        << "the old checkpoint was overwritten in place: a kill in the middle would have left neither";
  } catch (const std::exception& error) {
    FAIL() << "the old checkpoint was overwritten in place: " << error.what();
  }
  EXPECT_EQ(folder.files(), "a.ckpt old") << "save_state leaves other files behind";
}

TEST(Save, ReachesTheDisk) {
  const Folder folder;
  std::vector<Call> noted;
  calls = &noted;
  save_state(folder / "a.ckpt", strange_state());
  calls = nullptr;
  struct stat file = {}, place = {};
  ASSERT_EQ(::stat((folder / "a.ckpt").c_str(), &file), 0) << "there is no file";
  ASSERT_EQ(::stat(folder.path().c_str(), &place), 0);
  std::ptrdiff_t renamed = -1;
  for (std::size_t i = 0; i < noted.size(); ++i)
    if (noted[i].name == "rename" && noted[i].to == folder / "a.ckpt")
      renamed = static_cast<std::ptrdiff_t>(i);
  ASSERT_GE(renamed, 0) << "the file must get its name by rename(), which replaces a name at once";
  const auto is_synced = [&](ino_t what, std::ptrdiff_t from, std::ptrdiff_t to) -> const Call* {
    for (std::ptrdiff_t i = from; i < to; ++i)
      if (const Call& call = noted[static_cast<std::size_t>(i)]; call.name == "sync" && call.file == what)
        return &call;
    return nullptr;
  };
  const auto end = static_cast<std::ptrdiff_t>(noted.size());
  const Call* before = is_synced(file.st_ino, 0, renamed);
  ASSERT_TRUE(before) << "the file must be synced before it gets its name: after a power cut the name may "
                         "stand for an empty file"
                      << (is_synced(file.st_ino, renamed, end) ? "; it was synced after that" : "");
  EXPECT_EQ(before->bytes, file.st_size) << "the file was synced before all of it was written";
  EXPECT_TRUE(is_synced(place.st_ino, renamed, end))
      << "the folder must be synced after the rename: after a power cut the old name may be back";

  const auto throws = [&](ino_t what) {
    fails_once = what;
    bool thrown = false;
    try {
      save_state(folder / "a.ckpt", one_number(2));
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    fails_once = 0;
    return thrown;
  };
  EXPECT_TRUE(throws(kAnyFile))
      << "fsync of the file failed (EIO), but save_state did not say so: look at what fsync returns. A "
         "second "
         "fsync proves nothing, for the kernel may have given up what it could not write";
  EXPECT_EQ(difference(strange_state(), load_state(folder / "a.ckpt")), "")
      << "fsync of the file failed, so it must not get the name of the old one";
  EXPECT_EQ(folder.files(), "a.ckpt") << "fsync of the file failed: the unfinished file must be removed";
  EXPECT_TRUE(throws(place.st_ino))
      << "fsync of the folder failed (EIO), but save_state did not say so: look at what it returns, too";
}

// "" if load_state refuses the file as it must.
std::string refused(const std::string& path) {
  try {
    load_state(path);
    return "load_state did not notice";
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find(path) != std::string::npos) return "";
    return std::string("the error must name the file, but is: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("load_state must throw std::runtime_error, but believed what it read: ") +
           error.what();
  }
}

TEST(Save, ADamagedFileIsRefused) {
  const Folder folder;
  EXPECT_EQ(refused(folder / "none.ckpt"), "") << "there is no such file";
  save_state(folder / "a.ckpt", strange_state());
  const std::string whole = bytes_of(folder / "a.ckpt"), path = folder / "b.ckpt";
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    write_bytes(path, damaged);
    ASSERT_EQ(refused(path), "")
        << "a bit of byte " << i << " of " << whole.size()
        << " was changed: the checksum must cover all of the file, names and sizes, too";
    write_bytes(path, whole.substr(0, i));
    ASSERT_EQ(refused(path), "") << "the file was cut to " << i << " of " << whole.size() << " bytes";
  }
  write_bytes(path, whole + "x");
  EXPECT_EQ(refused(path), "") << "there was a byte too many";
}

/// Runs `work` in a process of its own; its code, or -1 if a signal ended it.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Save, AFullDiskLeavesTheOldCheckpoint) {
  const Folder folder;
  const std::string path = folder / "a.ckpt";
  save_state(path, one_number(1));
  State large;
  large.tensors["large"] = random_tensor({50, 1000}, 1);
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);  // then a write beyond the limit fails, as on a full disk
    const rlimit few = {100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &few);
    try {
      save_state(path, large);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).find(path) != std::string::npos ? 0 : 2;
    } catch (...) {
      return 3;
    }
    return 1;
  });
  EXPECT_NE(code, 1)
      << "half of the file could not be written, but save_state did not say so: look at what write() returns";
  EXPECT_NE(code, 2) << "the error must name the file";
  EXPECT_TRUE(code == 0 || code == 1 || code == 2)
      << "save_state must throw std::runtime_error when the disk is full";
  EXPECT_EQ(folder.files(), "a.ckpt")
      << "the unfinished file must be removed: it takes the room that the disk lacks";
  ASSERT_EQ(refused(path), "load_state did not notice")
      << "the old checkpoint is gone, because the disk was full";
  EXPECT_EQ(load_state(path).tensors.at("x").item(), 1) << "the old checkpoint must be as it was";
}

TEST(Checkpoints, TheLastTwoAreKept) {
  const Folder folder;
  write_bytes(folder / "step-00000007.ckpt.tmp", "half a check");
  const CheckpointFolder checkpoints(folder.path());
  EXPECT_EQ(folder.files(), "")
      << "a killed run has left an unfinished file, which no run will finish: remove it";
  std::ostringstream notes;
  EXPECT_FALSE(checkpoints.newest(notes)) << "there is no checkpoint yet";
  EXPECT_NO_THROW(CheckpointFolder(folder / "runs/today/a")) << "runs/today must be made as well";
  std::filesystem::remove_all(folder / "runs");
  for (const int step : {8, 9, 10, 100}) checkpoints.save(step, one_number(static_cast<float>(step)));
  EXPECT_EQ(folder.files(), "step-00000010.ckpt step-00000100.ckpt");
  EXPECT_EQ(checkpoints.newest(notes)->tensors.at("x").item(), 100);
  EXPECT_EQ(notes.str(), "") << "nothing was damaged";
  const CheckpointFolder three(folder.path(), 3);
  for (const int step : {101, 102}) three.save(step, one_number(static_cast<float>(step)));
  EXPECT_EQ(folder.files(), "step-00000100.ckpt step-00000101.ckpt step-00000102.ckpt")
      << "with keep = 3, three must be kept: two is the default only";
}

TEST(Checkpoints, ADamagedOneIsPassedOver) {
  const Folder folder;
  const CheckpointFolder checkpoints(folder.path());
  for (const int step : {10, 20}) checkpoints.save(step, one_number(static_cast<float>(step)));
  write_bytes(folder / "step-00000020.ckpt", bytes_of(folder / "step-00000020.ckpt").substr(0, 30));
  write_bytes(folder / "step-00000030.ckpt", "");
  std::ostringstream notes;
  const auto state = checkpoints.newest(notes);
  ASSERT_TRUE(state) << "the checkpoint of step 10 is whole";
  EXPECT_EQ(state->tensors.at("x").item(), 10) << "the newest that is whole is that of step 10";
  const std::string said = notes.str();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2)
      << "one line for each damaged file, but there is:\n"
      << said;
  EXPECT_TRUE(said.starts_with("skipped: ")) << said;
  for (const char* name : {"step-00000030.ckpt", "step-00000020.ckpt"})
    EXPECT_NE(said.find(name), std::string::npos) << "the note must name " << name << ":\n" << said;
  checkpoints.save(15, one_number(15));
  EXPECT_EQ(folder.files(), "step-00000010.ckpt step-00000015.ckpt")
      << "the run went on from step 10, so what is left of steps 20 and 30 must go: kept as \"the newest "
         "two\", the damaged files would "
         "push out every good one";
}

// Training.

/// As many digits as asked for, without a file: blurred bars whose place depends on the class.
Dataset bars(std::int64_t n) {
  Dataset data{Tensor({n, 1, 8, 8}), {}};
  for (std::int64_t i = 0; i < n; ++i) {
    const auto label = static_cast<int>(i % 10);
    data.labels.push_back(label);
    for (std::int64_t y = 0; y < 8; ++y)
      for (std::int64_t x = 0; x < 8; ++x)
        data.images.at({i, 0, y, x}) =
            (y == label % 8 || x == label * 7 % 8 ? 0.8f : 0.1f) +
            0.1f * random_normal(5, static_cast<std::uint64_t>(i * 64 + y * 8 + x));
  }
  return data;
}

/// A network that calls a function before each forward pass.
class Watched final : public Module {
 public:
  Watched(Module& network, std::function<void(const Tensor&)> before)
      : network_(network), before_(std::move(before)) {}
  Variable forward(const Variable& x) override {
    before_(x.value());
    return network_.forward(x);
  }
  std::vector<std::pair<std::string, Variable>> parameters() const override { return network_.parameters(); }
  std::vector<std::pair<std::string, Tensor>> buffers() const override { return network_.buffers(); }
  void train(bool on) override { network_.train(on); }

 private:
  Module& network_;
  std::function<void(const Tensor&)> before_;
};

struct Stopped {};

State copy_of(const State& live) {
  State state = live;
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

/// A run of 14 steps over 50 bars, 10 in a batch, which is stopped before step `stop`. What it saw before
/// each step goes to `states` and `batches`.
struct Training {
  std::vector<State> states;
  std::vector<std::vector<float>> batches;
  std::string notes;
  State end;

  Training(const std::string& folder, std::uint64_t first_weights, std::int64_t stop = -1) {
    const auto network = digits_cnn(first_weights);
    SGD optimizer(network->parameters(), {});
    Tensor scale({}, {first_weights == 1 ? 1.0f : 99.0f});
    TrainingRun* current = nullptr;
    Watched watched(*network, [&](const Tensor& images) {
      if (current->progress.step == stop) throw Stopped();
      states.push_back(copy_of(state_of(*current)));
      batches.push_back(images.values());
    });
    TrainingRun run{watched, optimizer, {{"scaler.scale", scale}}, {}};
    current = &run;
    watched.train(false);  // as after a measurement of the accuracy
    std::ostringstream said;
    try {
      train(run, bars(50),
            {.steps = 14, .batch_size = 10, .warmup = 2, .lr = 0.05f, .folder = folder, .save_every = 3},
            said);
    } catch (const Stopped&) {
    }
    notes = said.str();
    end = copy_of(state_of(run));
  }
};

TEST(Resume, TheStateHoldsEverything) {
  const auto network = digits_cnn(1);
  SGD optimizer(network->parameters(), {});
  Tensor scale({}, {1024});
  TrainingRun run{*network,
                  optimizer,
                  {{"scaler.scale", scale}},
                  {.seed = 0x8000000000000001ull, .step = 3, .epoch = 1, .position = 20}};
  const State state = state_of(run);
  EXPECT_TRUE(state.tensors.contains("model.0.weight")) << "the parameters are missing: \"model.0.weight\"";
  EXPECT_TRUE(state.tensors.contains("model.1.running_var"))
      << "the buffers are missing: evaluation after a resume would use a running variance of 1";
  for (const auto& [name, tensor] : optimizer.state()) {
    ASSERT_TRUE(state.tensors.contains("optimizer." + name))
        << "the optimizer's state is missing: \"optimizer." << name
        << "\". A resumed run would begin with a momentum of 0";
  }
  state.tensors.at("optimizer.0.weight.momentum").data()[0] = 5;
  EXPECT_EQ(state_of(run).tensors.at("optimizer.0.weight.momentum").data()[0], 5)
      << "a momentum that restore() writes does not reach the optimizer: state() of stage 4, in optim.cpp, "
         "must return "
         "its live tensors, not clones";
  ASSERT_TRUE(state.tensors.contains("others.scaler.scale"))
      << "what run.others lists is missing: \"others.scaler.scale\"";
  scale.data()[0] = 512;
  EXPECT_EQ(state.tensors.at("others.scaler.scale").item(), 512)
      << "the state must hold the live tensors, not copies";
  EXPECT_EQ(difference({{}, state.integers}, {{},
                                              {{"seed", std::numeric_limits<std::int64_t>::min() + 1},
                                               {"step", 3},
                                               {"epoch", 1},
                                               {"position", 20}}}),
            "")
      << "the integers";

  const auto sees_all = [&](const std::string& name, const Tensor& tensor) {
    for (const std::int64_t i : {std::int64_t{0}, tensor.numel() - 1}) {
      const std::uint64_t before = hash_of(*network);
      const float kept = std::exchange(tensor.data()[i], tensor.data()[i] + 1);
      EXPECT_NE(hash_of(*network), before)
          << "hash_of does not see number " << i << " of the " << tensor.numel() << " in " << name
          << ": it must go through all numbers of all parameters, then of all buffers";
      tensor.data()[i] = kept;
    }
  };
  for (const auto& [name, variable] : network->parameters()) sees_all(name, variable.value());
  for (const auto& [name, buffer] : network->buffers()) sees_all(name, buffer);
  const Tensor weight = network->parameters()[2].second.value(),
               bias = network->parameters()[3].second.value();
  copy(map(bias, [](float) { return 2.0f; }), bias);
  const std::uint64_t before = hash_of(*network);
  const Tensor kept = weight.clone();
  copy(bias, weight);
  copy(kept, bias);
  EXPECT_NE(hash_of(*network), before)
      << "weight and bias of layer 1 have exchanged their values, and the hash is the same: give "
         "hash_bytes() the hash of what came before, for a sum of hashes knows no order";
}

TEST(Resume, AnotherRunIsRefused) {
  const auto network = digits_cnn(1);
  SGD optimizer(network->parameters(), {});
  TrainingRun run{*network, optimizer, {}, {}};
  const State before = copy_of(state_of(run));
  const auto says = [&](const std::string& what, const std::function<void(State&)>& change) {
    State other = copy_of(before);
    for (auto& [name, tensor] : other.tensors) tensor = map(tensor, [](float x) { return x + 1; });
    change(other);
    try {
      restore(run, other);
      ADD_FAILURE() << what << ": restore must refuse it, but did not";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos)
          << "the error must name " << what << ", but is: " << error.what();
    }
    EXPECT_EQ(difference(before, state_of(run)), "")
        << what << ": restore threw, but had already changed the run: check all, then copy";
  };
  says("model.9.bias", [](State& state) { state.tensors.erase("model.9.bias"); });
  says("model.10.bias", [](State& state) { state.tensors["model.10.bias"] = Tensor({1}); });
  says("model.9.weight", [](State& state) { state.tensors["model.9.weight"] = Tensor({64, 10}); });
  says("position", [](State& state) { state.integers.erase("position"); });
  says("seed", [](State& state) { state.integers["seed"] = 2; });
  std::ostringstream notes;
  EXPECT_THROW(train(run, bars(8), {.steps = 1, .batch_size = 10}, notes), std::invalid_argument)
      << "8 samples do not fill a batch of 10: no epoch would ever have one";
}

/// The end of the same run by a loop that is written out here, with these rates.
State written_out(const std::function<float(std::int64_t)>& rate, bool training = true) {
  const Dataset data = bars(50);
  const auto network = digits_cnn(1);
  SGD optimizer(network->parameters(), {});
  network->train(training);
  for (std::int64_t step = 0; step < 14; ++step) {
    const Dataset batch = batch_of(data, epoch_order(50, 1, step / 5), step % 5 * 10, 10);
    optimizer.clear_grads();
    backward(cross_entropy(network->forward(Variable(batch.images)), batch.labels));
    optimizer.step(rate(step));
  }
  return copy_of(state_of({*network, optimizer, {{"scaler.scale", Tensor({}, {1})}}, {1, 14, 2, 40}}));
}

TEST(Resume, EqualsAnUndisturbedRun) {
  const Training straight("", 1);
  ASSERT_EQ(straight.states.size(), 14u) << "a run of 14 steps makes 14 forward passes";
  const auto has_rates = [&](const std::function<float(std::int64_t)>& rate) {
    return difference(written_out(rate), straight.end).empty();
  };
  std::string guess;
  if (has_rates([](std::int64_t) { return 0.05f; })) guess = ": all steps have the same rate";
  if (has_rates([](std::int64_t step) { return cosine_rate(0.05f, step, 0, 14); }))
    guess = ": the warmup is left out";
  if (has_rates([](std::int64_t step) { return cosine_rate(0.05f, step + 1, 2, 14); }))
    guess = ": each step has the rate of the next; the first is cosine_rate(lr, 0, warmup, steps)";
  const auto right = [](std::int64_t step) { return cosine_rate(0.05f, step, 2, 14); };
  if (difference(written_out(right, false), straight.end).empty())
    guess = ": the network was in evaluation before, and train() has not switched it to training";
  ASSERT_EQ(difference(written_out(right), straight.end), "")
      << "14 steps by train(), and by the loop of stage 4 that is written out in this test" << guess;
  for (std::int64_t stop = 1; stop <= 14; ++stop) {
    const Folder folder;
    Training(folder.path(), 1, stop);
    const Training resumed(folder.path(),
                           2);  // from other first weights: all that counts must come from the checkpoint
    const std::int64_t saved = stop == 14 ? 14 : stop / 3 * 3;
    if (saved == 0) {
      EXPECT_EQ(resumed.notes, "") << "there was no checkpoint yet";
      continue;
    }
    ASSERT_EQ(resumed.notes, "resumed at step " + std::to_string(saved) + " of 14\n")
        << "stopped before step " << stop;
    ASSERT_EQ(resumed.states.size(), static_cast<std::size_t>(14 - saved))
        << "resumed at step " << saved << ": the number of steps it made";
    if (saved < 14) {
      const auto at = static_cast<std::size_t>(saved);
      ASSERT_EQ(difference(straight.states[at], resumed.states[0]), "")
          << "resumed at step " << saved
          << ": the first step does not begin with what the undisturbed run had then";
      const auto seen = std::find(straight.batches.begin(), straight.batches.end(), resumed.batches[0]);
      ASSERT_EQ(seen - straight.batches.begin(), saved)
          << "resumed at step " << saved
          << " in the middle of an epoch: the first batch is another (the number is the step whose batch it "
             "is). The order is that of the epoch, from the position on";
    }
    ASSERT_EQ(difference(straight.end, resumed.end), "")
        << "resumed at step " << saved << ": the end differs";
  }
}

// Kills.

constexpr std::int64_t kDrillSteps = 120;

pid_t start_drill(const std::string& folder) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    const auto network = digits_cnn(7);
    AdamW optimizer(network->parameters(), {});
    TrainingRun run{*network, optimizer, {}, {}};
    std::ostringstream notes;
    train(run, bars(100),
          {.steps = kDrillSteps, .batch_size = 8, .lr = 0.01f, .folder = folder, .save_every = 1}, notes);
    ::_exit(notes.str().find("skipped") == std::string::npos ? 0 : 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the run ended by an exception: %s\n", error.what());
    ::_exit(1);
  }
}

std::int64_t newest_step(const std::string& folder) {
  std::int64_t newest = 0;
  std::error_code gone;  // the run removes files while we look
  for (fs::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone))
    if (at->path().extension() == ".ckpt")
      newest = std::max<std::int64_t>(newest, std::atoll(at->path().filename().c_str() + 5));
  return newest;
}

TEST(Kill, TwentyTimes) {
  using namespace std::chrono;
  const Folder folder;
  const std::string straight = folder / "straight", killed = folder / "killed";
  fs::create_directories(straight);
  fs::create_directories(killed);
  const auto begin = steady_clock::now();
  int status = 0;
  ::waitpid(start_drill(straight), &status, 0);
  ASSERT_EQ(status, 0) << "the undisturbed run must end well";
  const double one = duration<double>(steady_clock::now() - begin).count() / kDrillSteps;

  // Beside other work a run may be over before it is killed.
  int kills = 0, unfinished = 0;
  for (int attempt = 0; kills < 10 && attempt < 20; ++attempt) {
    fs::remove_all(killed);
    fs::create_directories(killed);
    kills = 0;
    for (std::uint64_t at = 0; kills < 20; ++at) {
      const std::int64_t from = newest_step(killed),
                         wait_for = static_cast<std::int64_t>(3 * random_uniform(2026, 2 * at));
      const pid_t child = start_drill(killed);
      pid_t ended = 0;
      while (ended == 0 && newest_step(killed) < from + wait_for) {
        std::this_thread::sleep_for(microseconds(200));
        ended = ::waitpid(child, &status, WNOHANG);
      }
      if (ended == 0) {
        std::this_thread::sleep_for(duration<double>(one * random_uniform(2026, 2 * at + 1)));
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
      }
      if (WIFEXITED(status)) {
        ASSERT_NE(WEXITSTATUS(status), 2) << "a kill has left a damaged checkpoint under its final name";
        ASSERT_EQ(WEXITSTATUS(status), 0) << "a run that follows a kill must not fail";
        ASSERT_EQ(newest_step(killed), kDrillSteps) << "a run must save its last step";
        break;
      } else {
        ++kills;
      }
      for (const auto& entry : fs::directory_iterator(killed))
        unfinished += entry.path().extension() == ".tmp";
    }
  }
  ::waitpid(start_drill(killed), &status, 0);
  ASSERT_EQ(status, 0) << "the run must end well after " << kills << " kills";
  EXPECT_GE(kills, 10) << "the run ended before it could be killed often enough";
  RecordProperty("kills", kills);
  RecordProperty("in_a_save", unfinished);
  char name[40];
  std::snprintf(name, sizeof name, "/step-%08lld.ckpt", static_cast<long long>(kDrillSteps));
  EXPECT_EQ(difference(load_state(straight + name), load_state(killed + name)), "")
      << "after " << kills << " kills the run must end with the bits of one that was never killed";
}

// The transformer.

/// Softmax attention in double, with what a mistaken one would do differently.
struct Reference {
  double factor = 0;          // 0: 1 / sqrt(d)
  bool over_queries = false;  // the softmax along the other axis
};
std::vector<double> attend(const Tensor& q, const Tensor& k, const Tensor& v, Reference how = {}) {
  const std::int64_t t = q.shape()[0], s = k.shape()[0], d = q.shape()[1], e = v.shape()[1];
  const double factor = how.factor > 0 ? how.factor : 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> w(static_cast<std::size_t>(t * s));
  const auto weight = [&](std::int64_t i, std::int64_t j) -> double& {
    return w[static_cast<std::size_t>(i * s + j)];
  };
  for (std::int64_t i = 0; i < t; ++i)
    for (std::int64_t j = 0; j < s; ++j) {
      double score = 0;
      for (std::int64_t c = 0; c < d; ++c) score += double{q.at({i, c})} * k.at({j, c});
      weight(i, j) = std::exp(factor * score);
    }
  std::vector<double> result;
  for (std::int64_t i = 0; i < t; ++i)
    for (std::int64_t c = 0; c < e; ++c) {
      double mean = 0;
      for (std::int64_t j = 0; j < s; ++j) {
        double sum = 0;
        for (std::int64_t o = 0; o < (how.over_queries ? t : s); ++o)
          sum += how.over_queries ? weight(o, j) : weight(i, o);
        mean += weight(i, j) / sum * v.at({j, c});
      }
      result.push_back(mean);
    }
  return result;
}

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart = std::abs(a[i] - b[i]);
    if (!(apart <= most)) most = std::isnan(apart) ? INFINITY : apart;
  }
  return most;
}

TEST(Attention, EqualsTheFormula) {
  const Tensor q = random_tensor({3, 4}, 1), k = random_tensor({5, 4}, 2), v = random_tensor({5, 2}, 3);
  const std::vector<float> y = attention(Variable(q), Variable(k), Variable(v)).value().values();
  std::string guess;
  if (distance(y, attend(q, k, v, {.factor = 1})) < 1e-4) guess = ": the scores are not divided by sqrt(d)";
  if (distance(y, attend(q, k, v, {.factor = 0.25})) < 1e-4)
    guess = ": the scores are divided by d, not by sqrt(d)";
  if (distance(y, attend(q, k, v, {.over_queries = true})) < 1e-4)
    guess = ": the softmax runs over the queries; the weights of one query's keys must have the sum 1";
  EXPECT_LT(distance(y, attend(q, k, v)), 1e-4)
      << "softmax(q k^T / sqrt(d)) v of q [3, 4], k [5, 4], v [5, 2]" << guess;

  const Tensor large({1, 3}, {1000, 1001, -1000});
  const std::vector<float> row = softmax(Variable(large)).value().values();
  EXPECT_LT(distance(row, {0.2689414, 0.7310586, 0}), 1e-5)
      << "softmax of scores of 1000: subtract the largest before exp";
}

TEST(LayerNorm, UsesEachTokensOwnStatistics) {
  LayerNorm norm(4);
  const Tensor x({2, 4}, {1, 2, 3, 6, 10, 10, 10, 10});
  const std::vector<float> y = norm.forward(Variable(x)).value().values();
  const double r = 1 / std::sqrt(3.5 + 1e-5);  // mean 3, squares 4 + 1 + 0 + 9 = 14, of 4
  std::string guess;
  if (std::abs(y[0] + 2 / std::sqrt(14.0 / 3 + 1e-5)) < 1e-4)
    guess = ": the variance is divided by 3, but must be by 4";
  if (std::isnan(y[4])) guess = ": four equal numbers have variance 0; add 1e-5 to it, below the root";
  EXPECT_LT(distance(y, {-2 * r, -r, 0, 3 * r, 0, 0, 0, 0}), 1e-4)
      << "the norm of (1, 2, 3, 6), and of four equal numbers" << guess;
}

Variable parameter(const Module& module, const std::string& name) {
  for (const auto& [own, variable] : module.parameters())
    if (own == name) return variable;
  ADD_FAILURE() << "there is no parameter " << name;
  return Variable(Tensor({1}));
}

TEST(SelfAttention, HeadsAreApart) {
  constexpr std::int64_t kT = 3, kWidth = 4, kHead = 2;
  SelfAttention layer(kWidth, 2, 1);
  const Tensor w = parameter(layer, "qkv.weight").value();
  ASSERT_EQ(w.shape(), (Shape{12, 4})) << "\"qkv.weight\" makes queries, keys and values in one product";
  copy(random_tensor({12, 4}, 5), w);
  copy(Tensor({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}),
       parameter(layer, "out.weight").value());
  const Tensor x = random_tensor({2, kT, kWidth}, 6);
  const Tensor y = layer.forward(Variable(x)).value();
  ASSERT_EQ(y.shape(), x.shape());
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t head = 0; head < 2; ++head) {
      std::vector<Tensor> parts;
      for (std::int64_t which = 0; which < 3; ++which) {
        Tensor part({kT, kHead});
        for (std::int64_t t = 0; t < kT; ++t)
          for (std::int64_t c = 0; c < kHead; ++c)
            for (std::int64_t i = 0; i < kWidth; ++i)
              part.at({t, c}) += x.at({n, t, i}) * w.at({which * kWidth + head * kHead + c, i});
        parts.push_back(part);
      }
      const std::vector<float> ours = y.narrow(0, n, 1).narrow(2, head * kHead, kHead).values();
      ASSERT_LT(distance(ours, attend(parts[0], parts[1], parts[2])), 1e-4)
          << "image " << n << ", head " << head
          << ": its columns must be the attention of its own queries, keys and values. [n, t, width] becomes "
             "[n, t, heads, width / heads] by "
             "a reshape, and then [n, heads, t, width / heads] by a transpose; a reshape alone would mix "
             "tokens with heads, and the way "
             "back needs both, too";
    }
  }
  EXPECT_THROW(SelfAttention(4, 3, 1), std::invalid_argument) << "3 heads do not divide a width of 4";
}

/// What a layer makes of x with the parameters that `whole` has under `prefix`.
template <class Layer>
Variable result_of(const std::string& prefix, Layer layer, const Module& whole, const Variable& x) {
  for (const auto& [name, variable] : layer.parameters())
    copy(parameter(whole, prefix + name).value(), variable.value());
  return layer.forward(x);
}

double apart(const Variable& a, const Variable& b) {
  const std::vector<float> values = b.value().values();
  return distance(a.value().values(), {values.begin(), values.end()});
}

TEST(Block, TheNormsComeFirst) {
  Block block(8, 2, 1);
  for (const char* name : {"attention.out.weight", "down.weight"}) {
    const Tensor w = parameter(block, name).value();
    copy(Tensor(w.shape()), w);
  }
  const Tensor x = random_tensor({2, 3, 8}, 4);
  const std::vector<float> values = x.values();
  EXPECT_LT(distance(block.forward(Variable(x)).value().values(), {values.begin(), values.end()}), 1e-6)
      << "if attention and MLP give 0, a block is the identity: the norms are on their way, not on that of x";
  const Tensor w = parameter(block, "down.weight").value();
  copy(random_tensor(w.shape(), 3), w);
  EXPECT_GT(distance(block.forward(Variable(x)).value().values(), {values.begin(), values.end()}), 0.1)
      << "the MLP changes nothing";

  const Tensor out = parameter(block, "attention.out.weight").value();
  copy(random_tensor(out.shape(), 5), out);
  const Variable got = block.forward(Variable(x)), on_x(x);
  const Variable y = add(on_x, result_of("attention.", SelfAttention(8, 2, 1), block,
                                         result_of("norm1.", LayerNorm(8), block, on_x)));
  const auto mlp = [&](const Variable& of) {
    return result_of("down.", Linear(16, 8, 1), block, relu(result_of("up.", Linear(8, 16, 1), block, of)));
  };
  const auto norm2 = [&](const Variable& of) { return result_of("norm2.", LayerNorm(8), block, of); };
  std::string guess;
  if (apart(got, add(y, mlp(norm2(on_x)))) < 1e-4) guess = ": the MLP read x, but must read y";
  if (apart(got, add(on_x, mlp(norm2(y)))) < 1e-4)
    guess = ": the MLP's result was added to x, but must be to y";
  if (apart(got, add(y, mlp(y))) < 1e-4) guess = ": norm2 is left out";
  EXPECT_LT(apart(got, add(y, mlp(norm2(y)))), 1e-4)
      << "y = x + attention(norm1(x)), then y + down(relu(up(norm2(y))))" << guess;
}

TEST(Transformer, KnowsTheOrderOfRows) {
  DigitsTransformer network({.width = 8, .heads = 2, .blocks = 1}, 1);
  std::string names;
  for (const auto& [name, variable] : network.parameters()) names += name + " ";
  EXPECT_EQ(
      names,
      "embed.weight embed.bias position block0.norm1.weight block0.norm1.bias block0.attention.qkv.weight "
      "block0.attention.qkv.bias block0.attention.out.weight block0.attention.out.bias block0.norm2.weight "
      "block0.norm2.bias "
      "block0.up.weight block0.up.bias block0.down.weight block0.down.bias norm.weight norm.bias head.weight "
      "head.bias ");
  const Tensor image = random_tensor({1, 1, 8, 8}, 2);
  Tensor upside_down({1, 1, 8, 8});
  for (std::int64_t row = 0; row < 8; ++row) copy(image.narrow(2, row, 1), upside_down.narrow(2, 7 - row, 1));
  copy(random_tensor({8, 8}, 3), parameter(network, "position").value());
  const Tensor a = network.forward(Variable(image)).value();
  ASSERT_EQ(a.shape(), (Shape{1, 10}));
  const std::vector<float> b = network.forward(Variable(upside_down)).value().values();
  EXPECT_GT(distance(a.values(), {b.begin(), b.end()}), 1e-3)
      << "an image upside down gives the same logits: attention and the mean know no order, so \"position\" "
         "must be added to the tokens";
  for (const auto& [name, variable] : network.parameters()) {
    variable.clear_grad();
    backward(sum_all(network.forward(Variable(image))));
    EXPECT_EQ(variable.grad().shape(), variable.shape())
        << name << " gets no gradient: is it left out of the forward pass?";
  }

  const Variable rows(image.reshape({1, 8, 8})), columns(image.reshape({1, 8, 8}).transpose(1, 2)),
      position = parameter(network, "position");
  const auto embedded = [&](const Variable& of) { return result_of("embed.", Linear(8, 8, 1), network, of); };
  const auto block = [&](const Variable& of) { return result_of("block0.", Block(8, 2, 1), network, of); };
  const auto norm = [&](const Variable& of) { return result_of("norm.", LayerNorm(8), network, of); };
  const auto head = [&](const Variable& of) {
    return result_of("head.", Linear(8, 10, 1), network, reshape(mean(of, 1), {1, 8}));
  };
  std::string guess;
  if (apart(Variable(a), head(norm(block(add(embedded(columns), position))))) < 1e-4)
    guess = ": the tokens are the columns of the image, but must be its rows";
  if (apart(Variable(a), head(norm(add(block(embedded(rows)), position)))) < 1e-4)
    guess = ": \"position\" is added behind the blocks, which then know no order";
  if (apart(Variable(a), head(block(add(embedded(rows), position)))) < 1e-4)
    guess = ": \"norm.\" is left out";
  EXPECT_LT(apart(Variable(a), head(norm(block(add(embedded(rows), position))))), 1e-4)
      << "the mean over tokens of norm(block0(embed(rows) + position)), through head" << guess;
}

/// Layers whose first weights are made from one seed are equal, but for their deviation.
void expect_seeds(const Module& network, const Module& with_other_seed) {
  std::map<std::string, std::string> owner;
  for (const auto& [name, variable] : network.parameters()) {
    if (variable.value().rank() < 2) continue;
    const float *w = variable.value().data(), *other = parameter(with_other_seed, name).value().data();
    EXPECT_NE(w[0], other[0]) << name << " does not depend on the seed";
    char ratios[60];
    std::snprintf(ratios, sizeof ratios, "%.3f %.3f", w[1] / w[0], w[2] / w[0]);
    const auto [found, first] = owner.emplace(ratios, name);
    EXPECT_TRUE(first) << name << " begins with the weights of " << found->second
                       << ": they were made from one seed, and layers that begin equal learn alike";
  }
}

TEST(Transformer, LayersHaveSeedsOfTheirOwn) {
  const DigitsTransformer network({.blocks = 3}, 1), other({.blocks = 3}, 2);
  expect_seeds(network, other);
  expect_seeds(*digits_cnn(1), *digits_cnn(2));
  double squares = 0;
  for (const float x : parameter(network, "position").value().values()) squares += double{x} * x;
  EXPECT_NEAR(std::sqrt(squares / 256), 0.02, 0.006)
      << "\"position\" starts normal with deviation 0.02, for tokens of deviation 1";
}

// The capstone.

void set_weights(const Module& network) {
  for (const auto& [name, variable] : network.parameters()) {
    const Tensor& w = variable.value();
    if (w.rank() < 2) continue;  // biases are 0, scales of norms 1
    const float deviation = std::sqrt(2.0f / static_cast<float>(w.numel() / w.shape()[0]));
    for (std::int64_t i = 0; i < w.numel(); ++i) w.data()[i] = capstone::first_value(name, deviation, i);
  }
}

/// The part of a step's batch that begins at `begin`, of `size` images.
Dataset part_of_batch(const Dataset& digits, std::int64_t step, std::int64_t begin, std::int64_t size) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(capstone::image_of(step, begin + i));
  return batch_of(digits, order, 0, size);
}

/// The losses of all steps.
std::vector<double> losses(Module& network, Optimizer& optimizer, float rate) {
  const Dataset digits = read_digits("digits.csv", true);
  set_weights(network);
  network.train(true);
  std::vector<double> all;
  for (std::int64_t step = 0; step < capstone::kSteps; ++step) {
    const Dataset batch = part_of_batch(digits, step, 0, capstone::kBatch);
    const Variable loss = cross_entropy(network.forward(Variable(batch.images)), batch.labels);
    all.push_back(loss.value().item());
    optimizer.clear_grads();
    backward(loss);
    optimizer.step(rate);
  }
  return all;
}

void compare(const std::vector<double>& ours, double capstone::Losses::*theirs) {
  for (const capstone::Losses& recorded : capstone::kAthanor) {
    if (recorded.step > static_cast<std::int64_t>(ours.size())) break;
    const double loss = ours[static_cast<std::size_t>(recorded.step - 1)];
    ASSERT_NEAR(loss, recorded.*theirs, 1e-4)
        << "step " << recorded.step << ": your loss and Athanor's. "
        << (recorded.step == 1
                ? "No update was made yet: the forward passes differ"
                : "The first loss agrees, so the forward pass is right: look at gradients and updates");
  }
}

TEST(Capstone, TheCnnTrainsAsAthanors) {
  const auto network = digits_cnn(1);
  SGD optimizer(network->parameters(), {});
  compare(losses(*network, optimizer, capstone::kCnnRate), &capstone::Losses::cnn);
}

TEST(Capstone, TheTransformerTrainsAsAthanors) {
  DigitsTransformer network({}, 1);
  AdamW optimizer(network.parameters(), {});
  compare(losses(network, optimizer, capstone::kTransformerRate), &capstone::Losses::transformer);
}

/// The transformer's losses in 25 steps, trained by four ranks with eight images of each batch, and the
/// network at the end.
struct OnRanks {
  std::vector<double> losses = std::vector<double>(25);
  std::uint64_t hash = 0;
  std::int64_t state = 0;  // elements that rank 0 keeps
};
OnRanks on_ranks(Strategy strategy) {
  constexpr int kRanks = 4;
  const Dataset digits = read_digits("digits.csv", true);
  OnRanks result;
  std::mutex adding;
  run_ranks(kRanks, [&](Rank& rank) {
    DigitsTransformer network({}, static_cast<std::uint64_t>(rank.rank()));
    if (rank.rank() == 0) set_weights(network);  // the others get them from rank 0
    const auto adamw = [](Parameters parameters) {
      return std::make_unique<AdamW>(std::move(parameters), AdamW::Options{});
    };
    DistributedOptimizer optimizer(rank, network, adamw, {.strategy = strategy, .bucket_numel = 4000});
    for (std::size_t step = 0; step < result.losses.size(); ++step) {
      const Dataset batch = part_of_batch(digits, static_cast<std::int64_t>(step),
                                          rank.rank() * capstone::kBatch / kRanks, capstone::kBatch / kRanks);
      const Variable loss = cross_entropy(network.forward(Variable(batch.images)), batch.labels);
      optimizer.clear_grads();
      optimizer.backward(loss);
      optimizer.step(capstone::kTransformerRate);
      const std::lock_guard lock(adding);
      result.losses[step] += loss.value().item() / kRanks;
    }
    if (rank.rank() != 0) return;
    result.hash = hash_of(network);
    for (const auto& [name, tensor] : optimizer.state()) result.state += tensor.numel();
  });
  return result;
}

TEST(Capstone, ZeroOneTrainsItAsDdpDoes) {
  const OnRanks ddp = on_ranks(Strategy::ddp), zero1 = on_ranks(Strategy::zero1);
  compare(ddp.losses, &capstone::Losses::transformer);
  EXPECT_EQ(ddp.hash, zero1.hash)
      << "after 25 steps on four ranks, DDP and ZeRO-1 must have equal networks, to the bit";
  EXPECT_LT(zero1.state, ddp.state / 3) << "each of four ranks must keep a quarter of the optimizer's state";
}

}  // namespace
